//! Several Completers, several sessions, several writers of one row.

use std::time::Duration;

use bex_proto::session::{DeliveryMode, Phase, Verdict};
use bex_proto::{TurnNo, limits};
use bex_store::dispatch::{BeginDelivery, Delivery, NewSandbox, Step};
use bex_store::sessions::{BeginTurn, NewTurn};
use bex_store::transcript::{Append, AppendOutcome, HarvestStep, Marks};

use crate::support::{Stack, T1, outcome, parts, speaks};
use crate::world::{ReadFault, eventually};

fn second_turn(session: &bex_proto::SessionId) -> NewTurn {
    NewTurn {
        session: session.clone(),
        workspace: "acme".parse().expect("an id"),
        prompt: "again".into(),
        idempotency: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_completers_have_one_set_of_side_effects() {
    let mut stack = Stack::new().await;
    stack.timings.idle_grace = Duration::ZERO;
    stack.world.on_turn(speaks(500));
    let (_dispatcher, _a, _b) = (
        stack.dispatcher(),
        stack.completer("a"),
        stack.completer("b"),
    );
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(stack.create("new").await);
    }
    for session in &sessions {
        eventually("the sandbox is gone", async || {
            stack.states(session) == "1:gone"
        })
        .await;
        assert_eq!(
            outcome(&stack.turn(session, T1).await),
            (Verdict::Complete, None)
        );
        assert_eq!(stack.settles(session), "1");
        assert_eq!(stack.parts(session), parts(500));
    }
    let mut deleted = stack.world.deleted();
    deleted.sort();
    let mut expected: Vec<_> = sessions.iter().map(|s| format!("{s}-g1")).collect();
    expected.sort();
    assert_eq!(deleted, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_session_keeps_nobody_waiting() {
    let mut stack = Stack::new().await;
    stack.timings.status_unreadable = Duration::from_secs(3600);
    stack.world.on_turn(speaks(3));
    let mut sessions = Vec::new();
    for _ in 0..50 {
        sessions.push(stack.create("new").await);
    }
    {
        let _dispatcher = stack.dispatcher();
        for session in &sessions {
            stack.until_delivered(session, T1).await;
        }
    }
    // one cannot be read, one cannot be stored
    let (unreadable, refused) = (&sessions[0], &sessions[1]);
    stack.world.sandbox(unreadable, 1, |s| {
        s.read_faults = vec![ReadFault::Transport]
    });
    stack.sql(&format!(
        "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN RAISE EXCEPTION USING ERRCODE = ''22000''; END';
         CREATE TRIGGER poison BEFORE INSERT ON transcript_parts FOR EACH ROW
           WHEN (NEW.session_id = '{refused}') EXECUTE FUNCTION poison()"
    ));
    let _completer = stack.completer("a");
    for session in &sessions[2..] {
        assert_eq!(
            outcome(&stack.until_settled(session, T1).await),
            (Verdict::Complete, None)
        );
    }
    assert_eq!(stack.phase(unreadable).await, Phase::Running);
    // bounded retries, then a marked turn
    let turn = stack.until_settled(refused, T1).await;
    assert_eq!(
        turn.reason,
        Some(bex_proto::session::TruncationReason::StoreFailed)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_logs_wait_for_room_and_none_fails() {
    let stack = Stack::new().await;
    // more than a reader takes without a window of its own
    stack.world.on_turn(speaks(12_000));
    let mut sessions = Vec::new();
    for _ in 0..3 * limits::HARVEST_WINDOWS {
        sessions.push(stack.create("new").await);
    }
    {
        let _dispatcher = stack.dispatcher();
        for session in &sessions {
            stack.until_delivered(session, T1).await;
        }
    }
    let log = stack.world.sandbox(&sessions[0], 1, |s| s.logs[&T1].len());
    assert!(log as u64 > limits::HARVEST_SMALL_BYTES);
    let _completer = stack.completer("a");
    for session in &sessions {
        let turn = stack.until_settled(session, T1).await;
        assert_eq!(outcome(&turn), (Verdict::Complete, None));
    }
    let metrics = stack.metrics.text();
    for line in [
        "bex_api_harvest_windows 0\n",
        "bex_api_harvest_faults_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    for result in ["failed", "timed_out", "lease_lost"] {
        assert!(
            !metrics.contains(&format!("rounds_total{{result=\"{result}\"}}")),
            "{metrics}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_sandbox_is_told_of_the_agent_s_own_session() {
    let mut stack = Stack::new().await;
    stack.timings.idle_grace = Duration::ZERO;
    stack.world.on_turn(|sandbox, turn| {
        speaks(2)(sandbox, turn);
        let named = sandbox
            .status
            .take()
            .map(|s| s.replace('}', r#","agentSessionId":"s-1"}"#));
        sandbox.status = named;
    });
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    let session = stack.create("new").await;
    eventually("the sandbox is gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
    // what can not be kept is let alone
    stack.world.on_turn(|sandbox, turn| {
        speaks(2)(sandbox, turn);
        let named = sandbox
            .status
            .take()
            .map(|s| s.replace('}', r#","agentSessionId":"s\u0000"}"#));
        sandbox.status = named;
    });
    for turn in [2, 3] {
        let begun = stack.db.begin_turn(&second_turn(&session)).await;
        assert!(
            matches!(begun, Ok(BeginTurn::Redispatched { .. })),
            "{begun:?}"
        );
        stack.until_settled(&session, TurnNo(turn)).await;
        eventually("the sandbox is gone", async || {
            stack.living(&session) == "0"
        })
        .await;
    }
    let primed = stack.world.primed();
    assert_eq!(primed.len(), 3);
    assert_eq!(primed[0], None);
    for primed in &primed[1..] {
        let primed = primed.as_deref().expect("told");
        assert!(primed.contains(r#""agentSessionId":"s-1""#), "{primed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loser_of_the_idle_race_dispatches_again() {
    let mut stack = Stack::new().await;
    stack.timings.idle_grace = Duration::ZERO;
    stack.world.on_turn(speaks(2));
    let (_dispatcher, _a, _b) = (
        stack.dispatcher(),
        stack.completer("a"),
        stack.completer("b"),
    );
    let (mut live, mut fresh) = (0, 0);
    for _ in 0..12 {
        let session = stack.create("new").await;
        stack.until_settled(&session, T1).await;
        match stack
            .db
            .begin_turn(&second_turn(&session))
            .await
            .expect("stored")
        {
            BeginTurn::Delivering { .. } => live += 1,
            BeginTurn::Redispatched { .. } => fresh += 1,
            other => panic!("{other:?}"),
        }
        let turn = stack.until_settled(&session, TurnNo(2)).await;
        assert_eq!(outcome(&turn), (Verdict::Complete, None), "{session}");
        eventually("nothing lives", async || {
            !stack.states(&session).contains("idle")
        })
        .await;
    }
    assert_eq!(live + fresh, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_own_deadline_is_near_gets_no_further_turn() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(3));
    let session = stack.create("new").await;
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    stack.until_settled(&session, T1).await;
    stack.world.short_lives();
    let begun = stack.db.begin_turn(&second_turn(&session)).await;
    assert!(
        matches!(begun, Ok(BeginTurn::Delivering { .. })),
        "{begun:?}"
    );
    let turn = stack.until_settled(&session, TurnNo(2)).await;
    assert_eq!(
        (outcome(&turn), turn.generation.0, turn.delivery_mode),
        ((Verdict::Complete, None), 2, DeliveryMode::Fresh)
    );
    eventually("the old one is gone", async || {
        stack.states(&session) == "1:gone 2:idle"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_sessions_sandbox_has_no_grace() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(3));
    let session = stack.create("new").await;
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    stack.until_settled(&session, T1).await;
    assert_eq!(stack.states(&session), "1:idle");
    stack.db.archive(&session).await.expect("stored");
    eventually("its sandbox is gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_idle_driver_gets_the_next_turn() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(3));
    let session = stack.create("new").await;
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    stack.until_settled(&session, T1).await;
    assert_eq!(stack.states(&session), "1:idle");
    let begun = stack
        .db
        .begin_turn(&second_turn(&session))
        .await
        .expect("stored");
    assert_eq!(
        begun,
        BeginTurn::Delivering {
            turn: TurnNo(2),
            generation: bex_proto::Generation(1)
        }
    );
    let turn = stack.until_settled(&session, TurnNo(2)).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(
        stack.world.sandbox(&session, 1, |s| s.delivered.clone()),
        [T1, TurnNo(2)]
    );
    assert_eq!(stack.world.created().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_teardown_is_tried_again_later() {
    let mut stack = Stack::new().await;
    stack.timings.idle_grace = Duration::ZERO;
    stack.world.on_turn(speaks(1));
    stack.world.fail_deletes(1);
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("the failure is counted", async || {
        stack.sql("SELECT teardown_attempts || ' ' || state FROM sandboxes") == "1 stopping"
    })
    .await;
    // the back-off is a minute: as if it had passed
    stack.sql("UPDATE sandboxes SET teardown_after = now()");
    eventually("the sandbox is gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
}

/// The first append of a log refers to its session while it holds the turn; whoever holds the session waits for the turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_harvest_and_the_end_of_a_delivery_do_not_block_each_other() {
    let stack = Stack::new().await;
    let session = stack.create("new").await;
    let claim = stack
        .db
        .claim_dispatches("d", 1)
        .await
        .expect("claimed")
        .remove(0);
    let new = NewSandbox {
        kind: "local",
        namespace: "ns",
        container: "c",
        legacy: false,
        driver_kid: "k",
    };
    stack
        .db
        .begin_generation(&claim, &new)
        .await
        .expect("begun");
    let generation = bex_proto::Generation(1);
    assert_eq!(
        stack
            .db
            .sandbox_ready(&claim, generation, "uid")
            .await
            .expect("ready"),
        Step::Done
    );
    assert_eq!(
        stack
            .db
            .begin_delivery(&claim, generation)
            .await
            .expect("begun"),
        BeginDelivery::Begun
    );
    stack.sql(
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
         CREATE TRIGGER linger BEFORE INSERT ON harvest_offsets FOR EACH ROW EXECUTE FUNCTION linger()",
    );
    let (db, id) = (stack.db.clone(), session.clone());
    let append = tokio::spawn(async move {
        db.append(Append {
            session: &id,
            turn: T1,
            generation,
            parts: &[],
            marks: Marks::Clean,
            harvest: Some(HarvestStep {
                log_id: "a",
                from: 0,
                to: 7,
            }),
        })
        .await
    });
    let lingers = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    eventually("the append lingers", async || stack.sql(lingers) == "1").await;
    let delivered = stack
        .db
        .delivered(&claim, Delivery::Accepted)
        .await
        .expect("not broken by the server");
    assert_eq!(delivered, Step::Done);
    let appended = append
        .await
        .expect("no panic")
        .expect("not broken by the server");
    assert!(matches!(appended, AppendOutcome::Stored(_)), "{appended:?}");
}
