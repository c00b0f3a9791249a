//! Turns that do not end by themselves: lost, unreadable, silent, stopped, canceled; and drivers of the old form.

use std::time::Duration;

use bex_proto::TurnNo;
use bex_proto::driver::{Status, TurnState, write_part_record};
use bex_proto::session::{EndedBy, Phase, TruncationReason as R, Verdict};
use bex_proto::{PartIndex, session};
use bex_store::sessions::Cancel;
use jiff::Timestamp;

use crate::support::{Speaker, Stack, T1, keeps_speaking, outcome, parts, speaks, status, stops};
use crate::world::{ReadFault, Sandbox, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_gone_ends_its_turn_at_once() {
    let mut stack = Stack::new().await;
    stack.timings.status_unreadable = Duration::from_secs(3600);
    stack.world.on_turn(keeps_speaking(4));
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("its words are stored", async || {
        stack.parts(&session).len() == 4
    })
    .await;
    stack.world.sandbox(&session, 1, |s| s.alive = false);
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Truncated, Some(R::SandboxLost)));
    assert_eq!(turn.ended_by, Some(EndedBy::Lost));
    assert_eq!(
        (stack.phase(&session).await, stack.states(&session)),
        (Phase::Failed, "1:gone".into())
    );
    assert_eq!(stack.parts(&session), parts(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_that_died_is_cleared_up_long_before_its_grace_ends() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(4));
    let (dies, lives) = (stack.delivered("new").await, stack.delivered("new").await);
    let _completer = stack.completer("a");
    for session in [&dies, &lives] {
        stack.until_settled(session, T1).await;
        assert_eq!(stack.states(session), "1:idle");
    }
    stack.world.sandbox(&dies, 1, |s| s.alive = false);
    eventually("the dead one is gone", async || {
        stack.states(&dies) == "1:gone"
    })
    .await;
    // what it said stays as it was judged, and its directory is removed too
    let turn = stack.turn(&dies, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(stack.phase(&dies).await, Phase::Completed);
    assert_eq!(stack.world.deleted(), [format!("{dies}-g1")]);
    assert_eq!(stack.states(&lives), "1:idle");
    let metrics = stack.metrics.text();
    assert!(metrics.contains("bex_api_idle_lost_total 1\n"), "{metrics}");
}

/// A full log of a turn that goes on: its status says when it spoke last.
fn speaks_on_behind_a_full_log(sandbox: &mut Sandbox, turn: TurnNo, seconds: i64) -> Speaker {
    let mut speaker = Speaker::new(sandbox.generation, turn);
    for part in parts(4) {
        speaker.say(part.as_bytes());
    }
    let spoken = Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    sandbox.status = Some(format!(
        r#"{{"state":"running","generation":{},"turn":{turn},"evidence":{}}}"#,
        sandbox.generation,
        Status::speaking(spoken)
    ));
    speaker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_speaks_on_behind_its_full_log_is_not_silent() {
    let mut stack = Stack::new().await;
    stack.timings.turn_deadline = Duration::from_secs(1);
    stack.world.on_turn(|sandbox, turn| {
        let mut speaker = speaks_on_behind_a_full_log(sandbox, turn, 50);
        speaker.drop_part(b"{}");
        sandbox.logs.insert(turn, speaker.log);
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let over = format!(
        "SELECT now() - delivered_at > interval '3 seconds' FROM turns WHERE session_id = '{session}'"
    );
    eventually("its deadline is over", async || stack.sql(&over) == "t").await;
    assert_eq!(stack.turn(&session, T1).await.verdict, Verdict::Open);
    assert_eq!(stack.world.stopped(), []);
    // it comes to its end by itself, and what the log lacks is told
    stack.world.sandbox(&session, 1, |sandbox| {
        let mut speaker = speaks_on_behind_a_full_log(sandbox, T1, 50);
        let dropped = speaker.drop_part(b"{}");
        speaker.end(TurnState::Succeeded, Some(dropped));
        sandbox.logs.insert(T1, speaker.log);
        sandbox.status = status("idle", 1, T1);
    });
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Truncated, Some(R::LogTruncated)));
    assert_eq!(turn.ended_by, Some(EndedBy::Agent));
    assert_eq!(stack.phase(&session).await, Phase::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_log_s_turn_that_says_nothing_more_is_ended_and_so_is_one_with_an_odd_clock() {
    let mut stack = Stack::new().await;
    stack.timings.turn_deadline = Duration::from_secs(1);
    stack.world.on_stop(|sandbox, turn| {
        let mut speaker = speaks_on_behind_a_full_log(sandbox, turn, 0);
        let dropped = speaker.drop_part(b"{}");
        speaker.end(TurnState::Stopped, Some(dropped));
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", sandbox.generation, turn);
    });
    for seconds in [-60, 3600] {
        stack.world.on_turn(move |sandbox, turn| {
            let mut speaker = speaks_on_behind_a_full_log(sandbox, turn, seconds);
            speaker.drop_part(b"{}");
            sandbox.logs.insert(turn, speaker.log);
        });
        let session = stack.delivered("new").await;
        let _completer = stack.completer("a");
        let turn = stack.until_settled(&session, T1).await;
        assert_eq!(outcome(&turn), (Verdict::Truncated, Some(R::LogTruncated)));
        assert_eq!(turn.ended_by, Some(EndedBy::Deadline));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_is_not_gone_and_heals() {
    let mut stack = Stack::new().await;
    stack.timings.status_unreadable = Duration::from_secs(3600);
    stack.world.on_turn(|sandbox, turn| {
        speaks(3)(sandbox, turn);
        sandbox.read_faults = vec![ReadFault::Transport];
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("it was tried often", async || {
        stack.world.sandbox(&session, 1, |s| s.reads) > 5
    })
    .await;
    assert_eq!(stack.phase(&session).await, Phase::Running);
    stack.world.sandbox(&session, 1, |s| s.read_faults.clear());
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_away_loses_no_turn() {
    let stack = Stack::new().await;
    stack.world.on_turn(|sandbox, turn| {
        speaks(3)(sandbox, turn);
        sandbox.read_faults = vec![ReadFault::Unreachable];
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    // far longer than a status may be unreadable
    let window = stack.timings.status_unreadable.as_secs_f64();
    let age = format!("SELECT extract(epoch FROM now() - delivered_at) > 3 * {window} FROM turns");
    eventually("time passed", async || stack.sql(&age) == "t").await;
    assert_eq!(stack.phase(&session).await, Phase::Running);
    stack.world.sandbox(&session, 1, |s| s.read_faults.clear());
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_turn_is_stopped_and_settled_by_the_deadline() {
    let mut stack = Stack::new().await;
    stack.timings.turn_deadline = Duration::from_millis(400);
    stack.world.on_turn(keeps_speaking(4));
    stack.world.on_stop(stops(4));
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    // the driver proved what it had said; who ended the turn stands beside it
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        ((Verdict::Complete, None), Some(EndedBy::Deadline))
    );
    assert_eq!(stack.world.stopped(), [(session.clone(), T1)]);
    eventually("the sandbox is gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_turn_s_last_words_are_waited_for_as_long_as_any() {
    let mut stack = Stack::new().await;
    stack.timings.turn_deadline = Duration::from_millis(400);
    stack.timings.status_unreadable = Duration::from_secs(3600);
    stack.world.on_turn(keeps_speaking(4));
    stack.world.on_stop(|sandbox, turn| {
        stops(6)(sandbox, turn);
        // not readable at once
        sandbox.read_faults = vec![ReadFault::Transport, ReadFault::CutWithSuccess(usize::MAX)];
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        ((Verdict::Complete, None), Some(EndedBy::Deadline))
    );
    assert_eq!(stack.parts(&session), parts(6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_turn_whose_last_words_can_not_be_read_is_settled_in_the_end() {
    let mut stack = Stack::new().await;
    stack.timings.turn_deadline = Duration::from_millis(400);
    stack.world.on_turn(keeps_speaking(4));
    // readable before it is stopped and never after it
    stack.world.on_stop(|sandbox, _| {
        let fine = ReadFault::CutWithSuccess(usize::MAX);
        sandbox.read_faults = [ReadFault::Transport, fine].repeat(10_000);
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        (
            (Verdict::Truncated, Some(R::TurnDeadline)),
            Some(EndedBy::Deadline)
        )
    );
    assert_eq!(stack.parts(&session), parts(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_did_not_reach_the_driver_is_asked_again() {
    let stack = Stack::new().await;
    stack.world.on_turn(keeps_speaking(4));
    stack.world.on_stop(stops(4));
    let session = stack.delivered("new").await;
    assert!(stack.db.request_stop(&session, T1).await.expect("stored"));
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        ((Verdict::Complete, None), Some(EndedBy::Stopped))
    );
    assert_eq!(
        (stack.phase(&session).await, stack.states(&session)),
        (Phase::Completed, "1:idle".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_harvests_first_and_leaves_nothing_alive() {
    let stack = Stack::new().await;
    stack.world.on_turn(keeps_speaking(6));
    stack.world.on_stop(stops(6));
    let session = stack.delivered("new").await;
    assert_eq!(
        stack.db.request_cancel(&session).await.expect("stored"),
        Cancel::Canceling
    );
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.ended_by),
        ((Verdict::Complete, None), Some(EndedBy::Canceled))
    );
    assert_eq!(stack.parts(&session), parts(6));
    eventually("it is canceled and gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
    assert_eq!(stack.phase(&session).await, Phase::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_canceled_before_delivery_ends_without_a_word() {
    let stack = Stack::new().await;
    let session = stack.create("new").await;
    assert_eq!(
        stack.db.request_cancel(&session).await.expect("stored"),
        Cancel::Canceling
    );
    let (_completer, _dispatcher) = (stack.completer("a"), stack.dispatcher());
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (turn.verdict, turn.ended_by),
        (Verdict::Truncated, Some(EndedBy::Canceled))
    );
    assert_eq!(stack.phase(&session).await, session::Phase::Canceled);
    assert_eq!(
        (stack.world.created(), stack.parts(&session).len()),
        (vec![], 0)
    );
    assert_eq!(stack.sql("SELECT count(*) FROM dispatches"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_driver_is_complete_only_when_nothing_is_missing() {
    fn log(indexes: &[u32]) -> Vec<u8> {
        let mut log = Vec::new();
        for n in indexes {
            let text = crate::support::part(*n as usize);
            write_part_record(
                &mut log,
                Timestamp::UNIX_EPOCH,
                T1,
                PartIndex(*n),
                text.as_bytes(),
            );
        }
        log
    }
    type Case = (&'static str, &'static str, &'static [u32], Option<R>, Phase);
    let cases: [Case; 4] = [
        (
            "whole",
            r#"{"state":"succeeded"}"#,
            &[0, 1, 2],
            None,
            Phase::Completed,
        ),
        (
            "a hole",
            r#"{"state":"succeeded"}"#,
            &[0, 2],
            Some(R::LegacyUnproved),
            Phase::Completed,
        ),
        (
            "skipped records",
            r#"{"state":"succeeded","evidence":{"truncated":true}}"#,
            &[0, 1],
            Some(R::LegacyUnproved),
            Phase::Completed,
        ),
        (
            "failed",
            r#"{"state":"failed"}"#,
            &[0, 1],
            Some(R::LegacyUnproved),
            Phase::Failed,
        ),
    ];
    let stack = Stack::new().await;
    let _completer = stack.completer("a");
    for (what, status, indexes, reason, phase) in cases {
        stack
            .world
            .on_turn(move |sandbox: &mut Sandbox, turn: TurnNo| {
                sandbox.logs.insert(turn, log(indexes));
                sandbox.status = Some(status.into());
            });
        let session = stack.delivered("old").await;
        let turn = stack.until_settled(&session, T1).await;
        assert_eq!(turn.reason, reason, "{what}");
        assert_eq!(
            (
                turn.verdict == Verdict::Complete,
                stack.phase(&session).await
            ),
            (reason.is_none(), phase),
            "{what}"
        );
        // one turn, one life
        eventually("the sandbox is gone", async || {
            stack.states(&session) == "1:gone"
        })
        .await;
        assert!(stack.world.sandbox_gone(&session), "{what}");
    }
}

impl crate::world::World {
    fn sandbox_gone(&self, session: &bex_proto::SessionId) -> bool {
        self.deleted().contains(&format!("{session}-g1"))
    }
}
