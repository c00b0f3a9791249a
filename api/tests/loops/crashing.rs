//! A process that dies anywhere: the next one comes to the same end.

use std::time::Duration;

use bex_proto::session::{Phase, Verdict};
use tokio::time::timeout;

use crate::support::{Stack, T1, outcome, parts, speaks};
use crate::world::eventually;

/// More calls into the world than one finalisation makes.
const CALLS: u32 = 12;

async fn came_to_its_end(stack: &Stack, session: &bex_proto::SessionId, what: &str) {
    eventually(what, async || {
        stack.living(session) == "0" && stack.settles(session) == "1"
    })
    .await;
    assert_eq!(
        outcome(&stack.turn(session, T1).await),
        (Verdict::Complete, None),
        "{what}"
    );
    assert_eq!(stack.phase(session).await, Phase::Completed, "{what}");
    assert_eq!(stack.parts(session), parts(1200), "{what}");
    assert_eq!(stack.settles(session), "1", "{what}");
    // made once and removed once, whichever generation it is
    assert_eq!(stack.world.created().len(), 1, "{what}");
    assert_eq!(stack.world.deleted(), stack.world.created(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_any_call_into_a_sandbox_changes_nothing() {
    let mut killed = 0;
    for call in 1..CALLS {
        let mut stack = Stack::new().await;
        stack.timings.idle_grace = Duration::ZERO;
        stack.world.on_turn(speaks(1200));
        let session = stack.create("new").await;
        stack.world.hang_at(Some(call));
        let loops = (stack.dispatcher(), stack.completer("a"));
        let done = async || stack.living(&session) == "0" && stack.settles(&session) == "1";
        let hung = tokio::select! {
            () = stack.world.hung.notified() => true,
            () = eventually("the end without a kill", done) => false,
        };
        drop(loops);
        stack.world.hang_at(None);
        stack.expire_leases();
        let _next = (stack.dispatcher(), stack.completer("b"));
        came_to_its_end(&stack, &session, &format!("killed in call {call}")).await;
        if !hung {
            break;
        }
        killed += 1;
    }
    assert!(
        killed >= 4,
        "create, deliver, observe and delete are calls; {killed} were killed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_once_at_any_step_changes_nothing() {
    for step in [
        "UPDATE OF generation ON turns",
        "UPDATE OF delivery_started_at ON turns",
        "UPDATE OF delivered_at ON turns",
        "INSERT ON sandboxes",
        "UPDATE OF pod_uid ON sandboxes",
        "INSERT ON transcript_parts",
        "UPDATE OF byte_offset ON harvest_offsets",
        "UPDATE OF expected_parts ON turns",
        "UPDATE OF verdict ON turns",
        "UPDATE OF gone_at ON sandboxes",
        "DELETE ON dispatches",
    ] {
        let mut stack = Stack::new().await;
        stack.timings.idle_grace = Duration::ZERO;
        stack.world.on_turn(speaks(1200));
        // a sequence survives the rollback of the statement it fails
        stack.sql(&format!(
            "CREATE SEQUENCE failures; GRANT ALL ON failures TO PUBLIC;
             CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN IF nextval(''public.failures'') = 1 THEN RAISE EXCEPTION USING ERRCODE = ''40001''; END IF;
                RETURN NULL; END';
             CREATE TRIGGER fail AFTER {step} FOR EACH STATEMENT EXECUTE FUNCTION fail()"
        ));
        let session = stack.create("new").await;
        let _loops = (stack.dispatcher(), stack.completer("a"));
        let ended = timeout(Duration::from_secs(60), stack.until_settled(&session, T1)).await;
        assert!(ended.is_ok(), "{step}");
        eventually(step, async || stack.living(&session) == "0").await;
        assert_eq!(
            outcome(&stack.turn(&session, T1).await),
            (Verdict::Complete, None),
            "{step}"
        );
        assert_eq!(stack.parts(&session), parts(1200), "{step}");
        assert_eq!(stack.settles(&session), "1", "{step}");
        assert!(
            stack.sql("SELECT last_value > 1 OR is_called FROM failures") == "t",
            "{step} was reached"
        );
    }
}
