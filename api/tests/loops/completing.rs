//! From a delivered turn to its verdict.

use bex_proto::driver::TurnState;
use bex_proto::ids::PartId;
use bex_proto::session::{EndedBy, Phase, TruncationReason as R, Verdict};
use bex_proto::transcript::{Part, inspect};
use bex_proto::{Generation, TurnNo};
use bex_store::transcript::{Append, Marks};

use crate::support::{Speaker, Stack, T1, outcome, part, parts, speaks, status};
use crate::world::{ReadFault, Sandbox, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_from_the_outbox_to_complete_and_its_sandbox_away() {
    let mut stack = Stack::new().await;
    stack.timings.idle_grace = std::time::Duration::ZERO;
    stack.world.on_turn(speaks(2500));
    let session = stack.create("new").await;
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(
        (turn.ended_by, turn.expected_parts),
        (Some(EndedBy::Agent), Some(2500))
    );
    assert_eq!(stack.phase(&session).await, Phase::Completed);
    assert_eq!(stack.parts(&session), parts(2500));
    eventually("the sandbox is gone", async || {
        stack.states(&session) == "1:gone"
    })
    .await;
    assert_eq!(stack.world.deleted(), [format!("{session}-g1")]);
    assert_eq!(stack.settles(&session), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_log_is_read_from_where_the_last_tick_stopped() {
    let stack = Stack::new().await;
    stack.world.on_turn(crate::support::keeps_speaking(10));
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("the first parts are stored", async || {
        stack.parts(&session).len() == 10
    })
    .await;
    assert_eq!(stack.phase(&session).await, Phase::Running);
    // a line that is being written is not read before its newline
    let (whole, end) = stack.world.sandbox(&session, 1, |sandbox| {
        let log = sandbox.logs.get_mut(&T1).expect("a log");
        let mut speaker = Speaker::new(1, T1);
        for part in parts(12) {
            speaker.say(part.as_bytes());
        }
        let torn = speaker.log.len() - 20;
        *log = speaker.log[..torn].to_vec();
        speaker.end(TurnState::Succeeded, None);
        (speaker.log, status("idle", 1, T1))
    });
    eventually("the eleventh part is stored", async || {
        stack.parts(&session).len() == 11
    })
    .await;
    stack.world.sandbox(&session, 1, |sandbox| {
        sandbox.logs.insert(T1, whole);
        sandbox.status = end;
    });
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(stack.parts(&session), parts(12));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_what_is_there_is_kept() {
    type Case = (&'static str, fn(&mut Sandbox, TurnNo), R, Phase, usize);
    fn speak(sandbox: &mut Sandbox, turn: TurnNo, script: impl FnOnce(&mut Speaker)) {
        let mut speaker = Speaker::new(1, turn);
        script(&mut speaker);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", 1, turn);
    }
    let cases: &[Case] = &[
        (
            "a full log drops parts",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    let dropped = speaker.drop_part(part(1).as_bytes());
                    speaker.end(TurnState::Succeeded, Some(dropped));
                });
            },
            R::LogTruncated,
            Phase::Completed,
            1,
        ),
        (
            "a part is not in the log and nobody says so",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.count(part(1).as_bytes());
                    speaker.say(part(2).as_bytes());
                    speaker.end(TurnState::Failed, None);
                });
            },
            R::LogUnreadable,
            Phase::Failed,
            2,
        ),
        (
            "the log is not what was said",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.end(TurnState::Succeeded, None);
                    let at = speaker
                        .log
                        .windows(4)
                        .position(|w| w == b"word")
                        .expect("a word");
                    speaker.log[at] = b'W';
                });
            },
            R::DigestMismatch,
            Phase::Completed,
            1,
        ),
        (
            "a part holds a NUL byte",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.say(b"{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"\0\"}");
                    speaker.say(part(2).as_bytes());
                    speaker.end(TurnState::Succeeded, None);
                });
            },
            R::PartUnstorable,
            Phase::Completed,
            3,
        ),
        (
            "a line is no record",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.log.extend(b"garbage\n");
                    speaker.count(part(1).as_bytes());
                    speaker.end(TurnState::Succeeded, None);
                });
            },
            R::PartUnstorable,
            Phase::Completed,
            1,
        ),
        (
            "the log ends in the middle of a line, and the driver waits",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.say(part(1).as_bytes());
                    let torn = speaker.log.len() - 7;
                    speaker.log.truncate(torn);
                });
            },
            R::LogUnreadable,
            Phase::Failed,
            1,
        ),
        (
            "the log is another generation's",
            |s, t| {
                speak(s, t, |speaker| {
                    speaker.say(part(0).as_bytes());
                    speaker.end(TurnState::Succeeded, None);
                });
                s.claims = Some(Generation(9));
            },
            R::LogUnreadable,
            Phase::Failed,
            0,
        ),
        (
            "the driver says that the turn is over, and there is no log",
            |s, t| s.status = status("idle", 1, t),
            R::LogUnreadable,
            Phase::Failed,
            0,
        ),
        (
            "nothing was ever said",
            |_, _| {},
            R::SandboxLost,
            Phase::Failed,
            0,
        ),
    ];
    let stack = Stack::new().await;
    let _completer = stack.completer("a");
    for (what, speech, reason, phase, stored) in cases {
        stack.world.on_turn(*speech);
        let session = stack.delivered("new").await;
        let turn = stack.until_settled(&session, T1).await;
        assert_eq!(
            outcome(&turn),
            (Verdict::Truncated, Some(*reason)),
            "{what}"
        );
        assert_eq!(stack.phase(&session).await, *phase, "{what}");
        let code = match (phase, turn.expected_parts) {
            (Phase::Failed, Some(_)) => "agent_failed",
            (Phase::Failed, None) => reason.as_str(),
            _ => "",
        };
        let failure = format!("SELECT failure_reason FROM sessions WHERE id = '{session}'");
        assert_eq!(stack.sql(&failure), code, "{what}");
        assert_eq!(stack.parts(&session).len(), *stored, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_longer_than_a_window_is_stepped_over() {
    let stack = Stack::new().await;
    stack.world.on_turn(|sandbox, turn| {
        let mut speaker = Speaker::new(1, turn);
        speaker.say(part(0).as_bytes());
        speaker.log.extend(vec![b'x'; 17 * 1024 * 1024]);
        speaker.log.push(b'\n');
        speaker.say(part(1).as_bytes());
        speaker.end(TurnState::Succeeded, None);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", 1, turn);
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    // both parts are there and proved, whatever stood between them
    assert_eq!(
        (outcome(&turn), turn.unstorable),
        ((Verdict::Complete, None), true)
    );
    assert_eq!(stack.parts(&session), parts(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_cut_and_reports_success_is_never_taken_for_the_whole() {
    const MIB: usize = 1024 * 1024;
    let big = |sandbox: &mut Sandbox, turn: TurnNo| {
        let mut speaker = Speaker::new(1, turn);
        for n in 0..64 {
            let text = format!(
                r#"{{"type":"text-delta","id":"t","delta":"{n}{}"}}"#,
                "x".repeat(MIB / 4 - 200)
            );
            speaker.say(text.as_bytes());
        }
        speaker.end(TurnState::Succeeded, None);
        assert!(speaker.log.len() > 15 * MIB && speaker.log.len() < 16 * MIB);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", 1, turn);
    };
    let stack = Stack::new().await;
    let _completer = stack.completer("a");

    stack.world.on_turn(move |sandbox, turn| {
        big(sandbox, turn);
        // once; the part that is missing is asked for from where the bytes end
        sandbox.read_faults = vec![
            ReadFault::CutWithSuccess(9 * MIB),
            ReadFault::CutWithFailure(2 * MIB),
            ReadFault::CutWithSuccess(usize::MAX),
        ];
    });
    let session = stack.delivered("new").await;
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.stored_parts),
        ((Verdict::Complete, None), 64)
    );
    // three for the bytes, one more when the delivery was not yet concluded at the first look
    let reads = stack.world.sandbox(&session, 1, |s| s.reads);
    assert!((3..=4).contains(&reads), "{reads} reads");

    // bytes that are not the ones that were digested are never stored
    stack.world.on_turn(move |sandbox, turn| {
        big(sandbox, turn);
        sandbox.read_faults = vec![ReadFault::Corrupt];
    });
    let session = stack.delivered("new").await;
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(
        (outcome(&turn), turn.stored_parts),
        ((Verdict::Truncated, Some(R::SandboxLost)), 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_and_a_shortened_log_are_read_again_from_their_start() {
    let stack = Stack::new().await;
    stack.world.on_turn(crate::support::keeps_speaking(5));
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    eventually("the first parts are stored", async || {
        stack.parts(&session).len() == 5
    })
    .await;
    // shorter than what was read, under the same name: nothing is lost and nothing doubled
    stack
        .world
        .sandbox(&session, 1, crate::support::keeps_speaking(3).on(T1));
    let reads = stack.world.sandbox(&session, 1, |s| s.reads);
    eventually("it was read again", async || {
        stack.world.sandbox(&session, 1, |s| s.reads) > reads + 2
    })
    .await;
    assert_eq!(stack.parts(&session), parts(5));
    stack.world.sandbox(&session, 1, |sandbox| {
        speaks(7)(sandbox, T1);
        sandbox.log_id = Some("another".into());
    });
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Complete, None));
    assert_eq!(stack.parts(&session), parts(7));
}

trait On {
    fn on(self, turn: TurnNo) -> impl FnOnce(&mut Sandbox);
}

impl<F: Fn(&mut Sandbox, TurnNo)> On for F {
    fn on(self, turn: TurnNo) -> impl FnOnce(&mut Sandbox) {
        move |sandbox| self(sandbox, turn)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_session_keeps_the_run_that_fits_and_says_so() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(9));
    let session = stack.create("new").await;
    stack.sql("UPDATE transcript_heads SET part_limit = 5");
    let (_dispatcher, _completer) = (stack.dispatcher(), stack.completer("a"));
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Truncated, Some(R::SessionQuota)));
    assert_eq!(
        stack.phase(&session).await,
        Phase::Completed,
        "the outcome is the agent's"
    );
    assert_eq!(stack.parts(&session), parts(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_turn_becomes_complete_when_its_missing_part_arrives() {
    let stack = Stack::new().await;
    stack.world.on_turn(|sandbox, turn| {
        let mut speaker = Speaker::new(1, turn);
        speaker.say(part(0).as_bytes());
        let dropped = speaker.drop_part(part(1).as_bytes());
        speaker.end(TurnState::Succeeded, Some(dropped));
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", 1, turn);
    });
    let session = stack.delivered("new").await;
    let _completer = stack.completer("a");
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(outcome(&turn), (Verdict::Truncated, Some(R::LogTruncated)));
    // a viewer had seen it, and the tee comes late
    let text = part(1);
    let late = Part {
        id: PartId::new(1, 1),
        head: inspect(text.as_bytes()).expect("a part"),
        bytes: text.into(),
        spoken_at: None,
    };
    let append = Append {
        session: &session,
        turn: T1,
        generation: Generation(1),
        parts: &[late],
        marks: Marks::Clean,
        harvest: None,
    };
    stack.db.append(append).await.expect("stored");
    eventually("it healed", async || {
        stack.turn(&session, T1).await.verdict == Verdict::Complete
    })
    .await;
    let healed = stack.turn(&session, T1).await;
    assert_eq!(healed.settled_at, turn.settled_at, "settled once");
    assert!(healed.healed_at.is_some());
    assert_eq!(stack.parts(&session), parts(2));
}
