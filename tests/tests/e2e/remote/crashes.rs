//! SIGKILL to the api while it takes reports and while it builds: the rows are those of a session that nobody disturbed.

use bex_proto::remote::RemoteState;
use bex_tests::client::Ending;

use super::*;

const EVENTS: usize = 1_200;
const TURNS: usize = 120;
/// How often the api is killed while somebody reports.
const KILLS: usize = 4;

/// A turn takes long to write.
const SLOWLY: &str = "
    CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END';
    CREATE TRIGGER slowly AFTER INSERT ON remote_turns FOR EACH ROW EXECUTE FUNCTION slowly()";
const WRITES: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

/// The first event that is missing, as a reporter that starts again asks for it.
async fn next(machine: &Machine, session: &RemoteSessionId) -> usize {
    let answer = machine.says(session, &[]).await.unwrap();
    answer.next_event_index as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_killed_while_it_takes_reports_and_while_it_builds() {
    let (mut stack, machine) = begin(StackOptions::default()).await;
    let mut dice = Dice(11);
    let events = pieces(&conversation(0..TURNS), EVENTS, &mut dice);
    let straight = new_session(&stack, &machine, "autonomous").await;
    machine.says(&straight, &events).await.unwrap();
    let end = machine.ends(&straight, RemoteState::Completed, EVENTS);
    end.await.unwrap();
    is_in_state(&stack, &straight, "completed").await;
    let wanted = rows(&stack, &straight).await;
    assert_eq!(wanted["turns"].as_array().unwrap().len(), TURNS);

    let session = new_session(&stack, &machine, "autonomous").await;
    let mut viewer = follow(&stack, &session, None).await;
    let mut unanswered = 0;
    for kill in 1..=KILLS {
        let (until, mut at) = (kill * EVENTS / (KILLS + 1), next(&machine, &session).await);
        while at < until {
            let to = (at + 1 + dice.below(40) as usize).min(EVENTS);
            at = machine
                .says(&session, &events[at..to])
                .await
                .unwrap()
                .next_event_index as usize;
        }
        // one report is on its way
        let (machine, session, some) = (
            machine.clone(),
            session.clone(),
            events[at..at + 100].to_vec(),
        );
        let report = tokio::spawn(async move { machine.says(&session, &some).await });
        viewer
            .until(|event| event.id >= Some(at as u64 - 1))
            .await
            .unwrap();
        stack.kill9_api().unwrap();
        unanswered += usize::from(report.await.unwrap().is_err());
        stack.restart_api().await.unwrap();
    }
    // it is killed between two rows of one write, of which nothing is there then
    is_read(&stack, &session).await;
    let (from, before) = (
        next(&machine, &session).await,
        built_turns(&stack, &session),
    );
    stack.sql(SLOWLY).unwrap();
    let some = &events[from..from + 100];
    machine.says(&session, some).await.unwrap();
    eventually("a turn is being written", STEP, async || {
        (stack.sql(WRITES).ok()?.trim() == "1").then_some(())
    })
    .await
    .unwrap();
    stack.kill9_api().unwrap();
    stack.sql("DROP TRIGGER slowly ON remote_turns").unwrap();
    assert_eq!(built_turns(&stack, &session), before);
    stack.restart_api().await.unwrap();

    let from = next(&machine, &session).await;
    machine.says(&session, &events[from..]).await.unwrap();
    let end = machine.ends(&session, RemoteState::Completed, EVENTS);
    end.await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    assert!(unanswered > 0, "no report was cut off");
    same_rows(&rows(&stack, &session).await, &wanted, "in the end");
    rows_are_counted(&stack, &session).await;
    let ids: Vec<u64> = viewer.events.iter().filter_map(|event| event.id).collect();
    assert_eq!(
        ids,
        (0..EVENTS as u64).collect::<Vec<_>>(),
        "each event once"
    );
    stack.stop().await.unwrap();
}
