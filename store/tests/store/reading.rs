//! Both read orders and what is known without payloads.

use bex_proto::ids::PartId;
use bex_proto::{PartIndex, Seq, SessionId, TurnNo, limits};

use crate::support::*;

fn sized(index: u32, bytes: usize) -> bex_proto::transcript::Part {
    let frame = r#"{"type":"x","d":""}"#.len();
    part(
        1,
        index,
        &format!(r#"{{"type":"x","d":"{}"}}"#, "y".repeat(bytes - frame)),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_page_is_bounded_and_never_empty() {
    let store = Store::new().await;
    let session = store.running().await;
    let batch = [
        sized(0, 100),
        sized(1, 100),
        sized(2, 5000),
        sized(3, 100),
        sized(5, 100),
    ];
    store.append(&session, &batch).await;
    let page = async |from: u32, indexes: u32, bytes: usize| {
        let read = store
            .db
            .read_page(&session, PartId::new(1, from), indexes, bytes)
            .await
            .unwrap();
        for part in &read {
            let said = batch.iter().find(|said| said.id == part.id).unwrap();
            assert_eq!((&part.bytes, &part.head), (&said.bytes, &said.head));
        }
        read.iter().map(|p| p.id.index.0).collect::<Vec<_>>()
    };
    assert_eq!(page(0, 10, 200).await, [0, 1]);
    assert_eq!(page(0, 10, 5000).await, [0, 1]);
    assert_eq!(page(0, 2, 5000).await, [0, 1]);
    assert_eq!(
        page(2, 10, 200).await,
        [2],
        "a part larger than the page is a page"
    );
    assert_eq!(
        page(1, 3, 5200).await,
        [1, 2, 3],
        "one part beyond its share"
    );
    assert_eq!(
        page(3, 10, 1 << 20).await,
        [3, 5],
        "holes are left to the caller"
    );
    assert_eq!(page(0, 3, 1 << 20).await, [0, 1, 2]);
    assert_eq!(page(4, 1, 1 << 20).await, Vec::<u32>::new());
    assert_eq!(page(6, 3, 1 << 20).await, Vec::<u32>::new());
    assert_eq!(page(u32::MAX, 3, 1 << 20).await, Vec::<u32>::new());
    let all_large = [
        sized(10, 900),
        sized(11, 800),
        sized(12, 700),
        sized(14, 600),
    ];
    store.append(&session, &all_large).await;
    let large = async |bytes| {
        let read = store.db.read_page(&session, PartId::new(1, 10), 100, bytes);
        let read = read.await.unwrap();
        read.into_iter().map(|part| part.bytes).collect::<Vec<_>>()
    };
    let said: Vec<_> = all_large.iter().map(|part| part.bytes.clone()).collect();
    assert_eq!(large(2500).await, said[..3]);
    assert_eq!(large(3000).await, said);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_page_lies_in_one_turn() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..2)).await;
    store
        .settle(
            &session,
            Some(&end_of(2)),
            bex_store::settle::SandboxAfter::Idle,
        )
        .await;
    let new = bex_store::sessions::NewTurn {
        session: session.clone(),
        workspace: workspace(),
        prompt: "more".into(),
        idempotency: None,
    };
    store.db.begin_turn(&new).await.unwrap();
    store
        .append_at(&session, TurnNo(2), G1, &[part(2, 0, &text_of(0))], None)
        .await;
    for (from, expected) in [(PartId::new(1, 1), "1.1"), (PartId::new(2, 0), "2.0")] {
        let read = store
            .db
            .read_page(&session, from, 10, 1 << 20)
            .await
            .unwrap();
        assert_eq!(
            read.iter().map(|p| p.id.to_string()).collect::<Vec<_>>(),
            [expected]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_feed_is_in_commit_order_and_says_when_it_is_caught_up() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts([0, 3])).await;
    store.append(&session, &parts([1, 2])).await;
    let page = store.db.read_feed(&session, Seq(-1), 3).await.unwrap();
    assert_eq!(
        page.parts
            .iter()
            .map(|p| (p.seq.0, p.id.index.0))
            .collect::<Vec<_>>(),
        [(0, 0), (1, 3), (2, 1)]
    );
    assert_eq!((page.next_after, page.caught_up), (Seq(2), false));
    let page = store
        .db
        .read_feed(&session, page.next_after, 3)
        .await
        .unwrap();
    assert_eq!(
        (page.parts.len(), page.next_after, page.caught_up),
        (1, Seq(3), true)
    );
    let page = store
        .db
        .read_feed(&session, page.next_after, 3)
        .await
        .unwrap();
    assert_eq!(
        (page.parts.len(), page.next_after, page.caught_up),
        (0, Seq(3), true)
    );
    let last = Seq(i64::MAX);
    let page = store.db.read_feed(&session, last, 3).await.unwrap();
    assert_eq!(
        (page.parts.len(), page.next_after, page.caught_up),
        (0, last, true)
    );
    let nobody = store
        .db
        .read_feed(&SessionId::random(), Seq(-1), 3)
        .await
        .unwrap();
    assert!(nobody.parts.is_empty() && nobody.caught_up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_feed_page_is_four_mib_at_most() {
    let store = Store::new().await;
    let session = store.running().await;
    for index in 0..6 {
        store
            .append(&session, &[sized(index, limits::PART_BYTES)])
            .await;
    }
    let page = store.db.read_feed(&session, Seq(-1), 1000).await.unwrap();
    assert_eq!((page.parts.len(), page.caught_up), (4, false));
    let page = store
        .db
        .read_feed(&session, page.next_after, 1000)
        .await
        .unwrap();
    assert_eq!((page.parts.len(), page.caught_up), (2, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_contiguous_prefix_ends_at_the_first_hole() {
    let store = Store::new().await;
    let session = store.running().await;
    let end = async || store.db.contiguous_end(&session, T1).await.unwrap().0;
    assert_eq!(end().await, 0);
    store.append(&session, &parts([1, 2])).await;
    assert_eq!(end().await, 0);
    store.append(&session, &parts([0, 5])).await;
    assert_eq!(end().await, 3);
    assert_eq!(
        store
            .db
            .next_stored(&session, PartId::new(1, 3))
            .await
            .unwrap(),
        Some(PartIndex(5))
    );
    store.append(&session, &parts([3, 4])).await;
    assert_eq!(end().await, 6);
    assert_eq!(
        store
            .db
            .next_stored(&session, PartId::new(1, 6))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        store.db.contiguous_end(&session, TurnNo(9)).await.unwrap(),
        PartIndex(0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn heads_tell_what_is_open_without_payloads() {
    let store = Store::new().await;
    let session = store.running().await;
    let texts = [
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"x"}"#,
        r#"{"type":"tool-input-start","toolCallId":"c","toolName":"n"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{"}"#,
        r#"{"type":"text-end","id":"t"}"#,
    ];
    let batch: Vec<_> = texts
        .iter()
        .zip(0..)
        .map(|(text, index)| part(1, index, text))
        .collect();
    store.append(&session, &batch).await;
    let heads = store
        .db
        .kinds_before(&session, PartId::new(1, 4), PartIndex(0))
        .await
        .unwrap();
    let shown: Vec<_> = heads
        .iter()
        .map(|h| format!("{}:{}:{}", h.index, h.kind, h.chunk_id.as_deref().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            "0:text-start:t",
            "2:tool-input-start:c",
            "3:tool-input-delta:c"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_page_reads_no_more_than_it_gives_however_little_the_planner_knows() {
    let store = Store::new().await;
    let session = store.running().await;
    for batch in 0..20 {
        store
            .append(&session, &parts(batch * 1000..(batch + 1) * 1000))
            .await;
    }
    let client = tokio_postgres_client(&store).await;
    let feed = format!("SELECT * FROM bex_feed_page('{session}', 50, 100, 1000000)");
    // what `read_page` sends
    let page = format!(
        "SELECT part_index, part FROM transcript_parts
          WHERE session_id = '{session}' AND turn = 1 AND part_index BETWEEN 50 AND 149 ORDER BY part_index"
    );
    for page in [feed, page] {
        let explain =
            format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, COSTS OFF, SUMMARY OFF) {page}");
        // the first call plans; the second shows what a page costs
        client.query(&explain, &[]).await.unwrap();
        let plan = client.query(&explain, &[]).await.unwrap();
        let lines: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let buffers = lines.iter().find(|line| line.contains("Buffers:")).unwrap();
        let blocks: u32 = buffers
            .split(['=', ' '])
            .filter_map(|word| word.parse::<u32>().ok())
            .sum();
        // 100 parts lie in three or four blocks; the session has several hundred
        assert!(blocks < 60, "{page}: {buffers}");
    }
}
