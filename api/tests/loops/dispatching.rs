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
