//! Live turns: a scripted driver, the tee into a real store, and viewers that come and go.

use bex_proto::ids::PartId;
use tokio::time::Instant;

use super::super::*;
use super::rig::*;
use crate::hub::source::tests::{Answer, Driver};
use crate::sandbox::Look;

#[tokio::test]
async fn replay_and_live_meet_and_everything_is_stored() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(200);
    rig.store(&session, 1, &parts(1, &said[..50])).await;
    let driver = Driver::start(
        &target,
        vec![Answer::Events(wire(1, &said, 40) + "data: [DONE]\n\n")],
    )
    .await;
    rig.run(&driver);
    let (mut one, mut two) = (rig.read(&session).await, rig.read(&session).await);
    let settling = async {
        rig.until_stored(&session, 200).await;
        rig.settle(&session, 1, 1, Some(&said)).await;
    };
    let (one, two, ()) = tokio::join!(one.rest(), two.rest(), settling);
    for all in [&one, &two] {
        assert_eq!(of_parts(all), events(1, &said));
        let tail: Vec<_> = all.iter().rev().take(3).rev().cloned().collect();
        assert_eq!(
            tail,
            [
                r#"{"type":"data-bex-turn","data":{"turn":1,"verdict":"complete","reason":null,"healed":false}}"#,
                events::FINISH,
                "[DONE]"
            ]
        );
        let marks: Vec<_> = all
            .iter()
            .filter(|event| event.contains("data-bex-live"))
            .collect();
        assert!(marks.len() <= 1, "{marks:?}");
    }
    let asked = driver.asked();
    assert_eq!(
        asked[0], "/stream?turn=1&from=50",
        "at the end of the stored prefix"
    );
    // a viewer that came when all was said asks once more; nobody asks for what another was given
    let again = &asked[1..];
    assert!(
        again.len() <= 1 && again.iter().all(|one| one == "/stream?turn=1&from=200"),
        "{asked:?}"
    );
    assert_ne!(
        rig.sql("SELECT count(*) FROM changes WHERE channel = 'bex_wake'"),
        "0"
    );
}

#[tokio::test]
async fn a_turn_is_stored_to_its_end_when_nobody_watches_any_more() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(500);
    let script = vec![
        Answer::Events(wire(1, &said[..100], 0)),
        Answer::Events(wire(1, &said, 100) + "data: [DONE]\n\n"),
    ];
    let driver = Driver::start(&target, script).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    viewer.until("1.3 ").await;
    drop(viewer);
    rig.until_stored(&session, 500).await;
    rig.until(|rig| async { rig.attach.hub.live() == 0 }).await;
    rig.settle(&session, 1, 1, Some(&said)).await;
    let mut replay = rig.read(&session).await;
    assert_eq!(of_parts(&replay.rest().await), events(1, &said));
}

#[tokio::test]
async fn a_viewer_waits_for_the_sandbox_and_goes_on_live() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let mut posted = Stream::of(rig.send(turn_ticket(&session, 1).request()).await);
    let mut viewer = rig.read(&session).await;
    viewer.until("data-user-prompt").await;
    posted.until("data-user-prompt").await;
    rig.until(|rig| async {
        rig.sql("SELECT count(*) FROM changes WHERE channel = 'bex_dispatch'")
            .parse::<u32>()
            .expect("a count")
            >= 2
    })
    .await;
    let said = speech(5);
    let spoken_by = target(&session, bex_proto::Generation(1));
    let driver = Driver::start(&spoken_by, vec![Answer::Open(wire(1, &said, 0))]).await;
    rig.run(&driver);
    assert_eq!(rig.deliver(&session).await, spoken_by);
    assert_eq!(of_parts(&viewer.until("1.4 ").await), events(1, &said));
    assert_eq!(of_parts(&posted.until("1.4 ").await), events(1, &said));
    assert_eq!(driver.asked().len(), 1, "one source for both");
}

#[tokio::test]
async fn a_sandbox_that_is_gone_ends_like_a_finished_session() {
    let rig = Rig::new().await;
    let (session, _) = rig.running().await;
    let said = speech(6);
    rig.store(&session, 1, &parts(1, &said[..4])).await;
    *rig.targets.look.lock().expect("no panic") = Look::Gone;
    let mut viewer = rig.read(&session).await;
    let settling = async {
        // what the harvest still finds comes before the settle
        rig.until(|rig| async {
            rig.sql("SELECT count(*) FROM changes WHERE channel = 'bex_wake'") != "0"
        })
        .await;
        rig.store(&session, 1, &parts(1, &said)[4..5]).await;
        rig.settle(&session, 1, 1, None).await;
    };
    let (all, ()) = tokio::join!(viewer.rest(), settling);
    assert_eq!(of_parts(&all), events(1, &said)[..5]);
    let last: Vec<_> = all[all.len() - 5..].to_vec();
    assert_eq!(
        last,
        [
            r#"{"type":"data-bex-turn","data":{"turn":1,"verdict":"truncated","reason":"sandbox_lost","healed":false}}"#,
            r#"{"type":"text-end","id":"t"}"#,
            r#"{"type":"data-bex-incomplete","data":{"turn":1,"reason":"sandbox_lost","stored":5}}"#,
            events::FINISH,
            "[DONE]"
        ]
    );
}

#[tokio::test]
async fn draining_tells_each_viewer_where_to_resume_and_stores_what_was_heard() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(20);
    let driver = Driver::start(&target, vec![Answer::Open(wire(1, &said[..10], 0))]).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    viewer.until("1.9 ").await;
    let (all, ()) = tokio::join!(viewer.rest(), rig.attach.drain());
    assert_eq!(
        all,
        [r#"{"type":"error","errorText":"the server is restarting; resume after 1.9"}"#]
    );
    let end = rig
        .db
        .contiguous_end(&session, bex_proto::TurnNo(1))
        .await
        .expect("an end");
    assert_eq!(
        end,
        bex_proto::PartIndex(10),
        "31 parts or 3: the tee flushed what it had"
    );
}

#[tokio::test]
async fn a_resumed_viewer_ahead_of_the_store_gets_exactly_what_follows() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(30);
    rig.store(&session, 1, &parts(1, &said[..5])).await;
    let driver = Driver::start(&target, vec![Answer::Open(wire(1, &said[..25], 5))]).await;
    rig.run(&driver);
    for (query, again) in [
        ("1.17", None),
        ("1.17&fresh=1", Some(r#"{"type":"text-start","id":"t"}"#)),
    ] {
        let mut stream = Stream::of(rig.send(read_ticket(&session).after(query).request()).await);
        let all = stream.until("1.24 ").await;
        assert_eq!(of_parts(&all), events(1, &said[..25])[18..], "{query}");
        let before: Vec<_> = all
            .iter()
            .take_while(|event| !event.starts_with("1."))
            .filter(|event| event.contains("text-start"))
            .collect();
        assert_eq!(before.first().map(|event| event.as_str()), again, "{query}");
    }
}

#[tokio::test]
async fn a_jump_in_the_drivers_ids_is_told_and_both_sides_are_stored() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(12);
    let script = vec![Answer::Open(wire(1, &said[..4], 0) + &wire(1, &said, 8))];
    let driver = Driver::start(&target, script).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    let all = viewer.until("1.11 ").await;
    let gap: Vec<_> = all
        .iter()
        .skip_while(|event| !event.starts_with("1.3 "))
        .take(4)
        .cloned()
        .collect();
    assert_eq!(
        gap[1..],
        [
            r#"{"type":"text-end","id":"t"}"#,
            r#"{"type":"data-bex-incomplete","data":{"turn":1,"reason":"log_truncated","from":"1.4","to":"1.7"}}"#,
            r#"{"type":"text-start","id":"t"}"#
        ]
    );
    rig.until_stored(&session, 8).await;
    let stored = rig
        .db
        .read_page(&session, PartId::new(1, 0), 100, 1 << 20)
        .await
        .expect("parts");
    let indexes: Vec<u32> = stored.iter().map(|part| part.id.index.0).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 8, 9, 10, 11]);
}

#[tokio::test]
async fn a_viewer_that_lags_behind_the_tail_reads_the_store_and_loses_nothing() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    // three times what the tail holds
    let said: Vec<String> = (0..300)
        .map(|i| format!(r#"{{"type":"data-x","data":"{i} {}"}}"#, "y".repeat(40_000)))
        .collect();
    let script = vec![
        Answer::Events(wire(1, &said[..10], 0)),
        Answer::Open(wire(1, &said, 10)),
    ];
    let driver = Driver::start(&target, script).await;
    rig.run(&driver);
    let (mut lagging, mut quick) = (rig.read(&session).await, rig.read(&session).await);
    lagging.until("1.0 ").await;
    // the quick one gets everything while the lagging one takes nothing; the burst may overtake the tee, so somebody harvests
    let harvest = async {
        rig.until(|_| async { driver.asked().len() == 2 }).await;
        for batch in parts(1, &said).chunks(25) {
            rig.store(&session, 1, batch).await;
        }
    };
    let (all, ()) = tokio::join!(quick.until("1.299 "), harvest);
    let (all, late) = (of_parts(&all), of_parts(&lagging.until("1.299 ").await));
    let expected = events(1, &said);
    assert!(all == expected, "quick: {:?}", ids(&all));
    assert!(late == expected[1..], "lagging: {:?}", ids(&late));
    assert_eq!(driver.asked().len(), 2);
}

#[tokio::test]
async fn without_a_settle_the_end_waits_for_the_flush_and_is_told_open() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(40);
    let driver = Driver::start(
        &target,
        vec![Answer::Events(wire(1, &said, 0) + "data: [DONE]\n\n")],
    )
    .await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    let all = viewer.until("1.39 ").await;
    assert_eq!(of_parts(&all), events(1, &said));
    let spoken = Instant::now();
    let end = viewer.until("[DONE]").await;
    let waited = spoken.elapsed();
    assert!(
        waited >= limits::END_WAIT / 2 && waited < limits::END_WAIT * 2,
        "{waited:?}"
    );
    let stored = rig
        .db
        .contiguous_end(&session, bex_proto::TurnNo(1))
        .await
        .expect("an end");
    assert_eq!(
        stored,
        bex_proto::PartIndex(40),
        "flushed before the end was said"
    );
    assert_eq!(
        end,
        [
            r#"{"type":"data-bex-turn","data":{"turn":1,"verdict":"open","reason":null,"healed":false}}"#,
            events::FINISH,
            "[DONE]"
        ]
    );
}

#[tokio::test]
async fn a_sandbox_lost_before_the_turn_was_handed_to_it_is_not_the_end() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let claim = rig.claim(&session).await;
    rig.prepare(&claim).await;
    *rig.targets.look.lock().expect("no panic") = Look::Gone;
    let mut viewer = rig.read(&session).await;
    viewer.until("data-user-prompt").await;
    rig.until(|rig| async { *rig.targets.looks.lock().expect("no panic") > 0 })
        .await;
    let said = speech(5);
    let second = target(&session, bex_proto::Generation(2));
    let driver = Driver::start(&second, vec![Answer::Open(wire(1, &said, 0))]).await;
    rig.run(&driver);
    assert_eq!(rig.prepare(&claim).await, second);
    rig.hand_over(&claim, &second).await;
    assert_eq!(of_parts(&viewer.until("1.4 ").await), events(1, &said));
}

#[tokio::test]
async fn parts_that_a_source_could_not_use_come_from_the_store() {
    let rig = Rig::new().await;
    let (session, target) = rig.running().await;
    let said = speech(6);
    let nameless: String = said
        .iter()
        .map(|text| format!("data: {text}\n\n"))
        .collect();
    let driver = Driver::start(&target, vec![Answer::Events(nameless + "data: [DONE]\n\n")]).await;
    rig.run(&driver);
    let mut viewer = rig.read(&session).await;
    let harvest = async {
        rig.until(|rig| async {
            rig.sql("SELECT count(*) FROM changes WHERE channel = 'bex_wake'") != "0"
        })
        .await;
        rig.store(&session, 1, &parts(1, &said)).await;
        rig.settle(&session, 1, 1, Some(&said)).await;
    };
    let (all, ()) = tokio::join!(viewer.rest(), harvest);
    assert_eq!(of_parts(&all), events(1, &said));
    assert_eq!(all.last().map(String::as_str), Some("[DONE]"));
}
