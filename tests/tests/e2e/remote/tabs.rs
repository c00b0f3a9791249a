//! Many read along: each is told each thing once, in order, and the end last.

use futures::future::{join_all, try_join};

use super::*;
use bex_proto::remote::RemoteState;
use bex_tests::client::Ending;

const EVENTS: usize = 2_000;
const TURNS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn every_tab_of_two_gateways_is_told_each_event_once_and_the_end_last() {
    let (mut stack, machine) = begin(StackOptions::default()).await;
    let second = stack.add_gateway().await.unwrap();
    let session = new_session(&stack, &machine, "interactive").await;
    let mut dice = Dice(7);
    let events = pieces(&conversation(0..TURNS), EVENTS, &mut dice);
    let first = stack.addresses.attach;
    let tabs = [first, first, second.attach, second.attach];
    let tabs = tabs.map(|at| try_follow(&stack, at, &session, "svc:viewer", None));
    let tabs = join_all(tabs).await.into_iter();
    let tabs = tabs.map(|tab| tab.unwrap().unwrap());
    let reading = join_all(tabs.map(async |mut tab| {
        tab.to_end().await.unwrap();
        tab
    }));

    let reporting = async {
        let mut batches = odd_batches(&events, &mut dice);
        let last = batches.pop().unwrap();
        let mut accepted = 0;
        for batch in batches {
            accepted += machine.says(&session, &batch).await.unwrap().accepted;
        }
        // whichever of them comes first
        let end = machine.ends(&session, RemoteState::Completed, EVENTS);
        let (answer, _) = try_join(machine.says(&session, &last), end).await.unwrap();
        assert_eq!(accepted + answer.accepted, EVENTS as u64);
    };
    let (tabs, ()) = tokio::join!(reading, reporting);

    let turns = built_turns(&stack, &session);
    assert_eq!(turns.len(), TURNS);
    let wanted: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
    for tab in &tabs {
        assert_eq!(tab.ending, Some(Ending::Done));
        let shown: Vec<&Event<u64>> = tab.events.iter().filter(|e| e.id.is_some()).collect();
        let ids: Vec<String> = shown.iter().filter_map(|e| told(e)).collect();
        assert!(ids == wanted, "each once, in order: {ids:?}");
        for (event, shown) in events.iter().zip(shown) {
            assert_eq!(shown.json()["data"], event.data, "{}", event.event_index);
        }
        let all: Vec<String> = tab.events.iter().filter_map(told).collect();
        assert_eq!(all.last().unwrap(), "completed", "before [DONE]");
        let place = |what: &str| all.iter().position(|told| told == what);
        let durable: Vec<&String> = all.iter().filter(|told| told.starts_with("trn-")).collect();
        let ids: Vec<&String> = turns.iter().map(|(id, _)| id).collect();
        assert_eq!(durable, ids, "each turn once, in order");
        for (id, last) in &turns {
            assert!(place(id) > place(&last.to_string()), "{id} after {last}");
        }
    }
    // the session ended: it is told from anywhere, and from its end there is nothing
    let mut late = follow(&stack, &session, Some(EVENTS as u64 - 3)).await;
    assert_eq!(late.to_end().await.unwrap(), Ending::Done);
    let ids: Vec<u64> = late.events.iter().filter_map(|event| event.id).collect();
    assert_eq!(ids, [EVENTS as u64 - 2, EVENTS as u64 - 1]);
    let at = second.attach;
    let end = try_follow(&stack, at, &session, "svc:viewer", Some(EVENTS as u64 - 1)).await;
    assert_eq!(end.unwrap().unwrap_err().status, 204);
    let view = stack.viewer().remote(&session).await.unwrap();
    assert_eq!(view["state"], "completed");
    rows_are_counted(&stack, &session).await;
    stack.stop().await.unwrap();
}
