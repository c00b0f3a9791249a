//! From a recorded turn to a driver that has it.

use bex_api::exec_client::ExecFailure;
use bex_api::sandbox::CreateError;
use bex_proto::session::{EndedBy, Phase, TruncationReason as R, Verdict};

use crate::support::{Stack, T1, outcome, speaks};
use crate::world::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_does_not_answer_is_asked_again_and_nobody_else_is() {
    let mut stack = Stack::new().await;
    stack.timings.status_unreadable = std::time::Duration::from_secs(3600);
    stack.world.on_turn(|sandbox, turn| {
        sandbox.delivery_faults.clear();
        speaks(2)(sandbox, turn);
    });
    let session = stack.create("new").await;
    stack.world.hang_at(Some(2));
    {
        // killed while it delivers: delivery had begun
        let _killed = stack.dispatcher();
        stack.world.hung.notified().await;
    }
    stack.world.hang_at(None);
    stack.world.sandbox(&session, 1, |s| {
        s.delivery_faults = vec![
            ExecFailure::Transport,
            ExecFailure::Busy,
            ExecFailure::Timeout,
        ];
    });
    stack.expire_leases();
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(stack.world.created().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_dies_after_delivery_began_loses_the_turn() {
    let stack = Stack::new().await;
    let session = stack.create("new").await;
    stack.world.hang_at(Some(2));
    {
        let _killed = stack.dispatcher();
        stack.world.hung.notified().await;
    }
    stack.world.hang_at(None);
    stack.world.sandbox(&session, 1, |s| s.alive = false);
    stack.expire_leases();
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        (
            (Verdict::Truncated, Some(R::SandboxLost)),
            Some(EndedBy::Lost)
        )
    );
    assert_eq!(
        (stack.phase(&session).await, stack.world.created().len()),
        (Phase::Failed, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_dies_before_delivery_is_replaced_by_the_next_generation() {
    let stack = Stack::new().await;
    let session = stack.create("new").await;
    stack.world.fail_creates(vec![CreateError::Ended]);
    let _dispatcher = stack.dispatcher();
    stack.until_delivered(&session, T1).await;
    assert_eq!(stack.turn(&session, T1).await.generation.0, 2);
    assert_eq!(stack.world.created(), [format!("{session}-g2")]);
    let _completer = stack.completer("a");
    eventually("the first life is cleaned up", async || {
        stack.states(&session).starts_with("1:gone")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_made_fails_the_session_and_says_why() {
    let stack = Stack::new().await;
    stack
        .world
        .fail_creates(vec![CreateError::Impossible("no")]);
    let (impossible, unknown) = (
        stack.create("new").await,
        stack.create("no-such-profile").await,
    );
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    for session in [&impossible, &unknown] {
        let turn = stack.until_settled(session, T1).await;
        assert_eq!(
            outcome(&turn),
            (Verdict::Truncated, Some(R::ProvisioningFailed))
        );
        assert_eq!(stack.phase(session).await, Phase::Failed);
    }
    let reason = |id| {
        stack.sql(&format!(
            "SELECT failure_reason FROM sessions WHERE id = '{id}'"
        ))
    };
    assert_eq!(
        (reason(&impossible), reason(&unknown)),
        ("sandbox_impossible".into(), "profile_unknown".into())
    );
    eventually("nothing is left", async || {
        stack.states(&impossible) == "1:gone"
    })
    .await;
    assert_eq!(stack.sql("SELECT count(*) FROM dispatches"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_settled_only_after_its_delivery_was_concluded() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(4));
    // the driver speaks and ends while the store keeps the dispatcher from saying that it delivered
    stack.sql(
        "CREATE TABLE held (); CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN IF to_regclass(''public.held'') IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = ''40001''; END IF;
            RETURN NEW; END';
         CREATE TRIGGER hold BEFORE UPDATE OF delivered_at ON turns FOR EACH ROW EXECUTE FUNCTION hold()",
    );
    let session = stack.create("new").await;
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    eventually("its words are stored", async || {
        stack.parts(&session).len() == 4
    })
    .await;
    let turn = stack.turn(&session, T1).await;
    assert_eq!(
        (turn.verdict, stack.phase(&session).await),
        (Verdict::Open, Phase::Creating)
    );
    stack.sql("DROP TABLE held");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(turn.delivery_mode, bex_proto::session::DeliveryMode::Fresh);
    assert!(turn.delivered_at.is_some());
}

/// A key ring may turn between two attempts, and replicas may have read it at different times.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_keeps_the_key_that_was_recorded_for_it() {
    let key = |kid: &str, byte: &str| format!("{kid}:{}", byte.repeat(32));
    let (old, new) = (key("k", "ab"), key("n", "cd"));
    for (ring, kid, generation) in [(format!("{new},{old}"), "k", 1), (new.clone(), "n", 2)] {
        let stack = Stack::new().await;
        stack.world.slow_creates(1);
        let session = stack.create("new").await;
        {
            let _before = stack.dispatcher();
            eventually("a create", async || stack.world.keys().len() == 1).await;
        }
        stack.expire_leases();
        let _after = stack.dispatcher_with(&ring);
        stack.until_delivered(&session, T1).await;
        let keys = stack.world.keys();
        assert_eq!((keys.len(), keys[0] == keys[1]), (2, generation == 1));
        let row = stack.db.latest_sandbox(&session).await.expect("read");
        let row = row.expect("a sandbox");
        assert_eq!((&*row.driver_kid, row.generation.0), (kid, generation));
    }
}

/// Waiting for a sandbox is no failure: neither of its node, nor of an API server that says nothing for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_takes_its_time_uses_up_no_attempts() {
    let stack = Stack::new().await;
    stack.world.slow_creates(7);
    let session = stack.create("new").await;
    let _dispatcher = stack.dispatcher();
    eventually("it was waited for often", async || {
        let wake = bex_store::wake::Channel::Dispatch;
        stack.db.notify(wake, &session).await.expect("told");
        stack.world.keys().len() == 7
    })
    .await;
    stack.world.unknown_looks(1);
    stack.world.sandbox(&session, 1, |s| s.alive = false);
    stack.until_delivered(&session, T1).await;
    assert_eq!(
        stack.world.created(),
        [format!("{session}-g1"), format!("{session}-g2")]
    );
}
