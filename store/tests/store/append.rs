//! The append function, rule by rule.

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::{Generation, PartIndex, Seq, SessionId, TurnNo};
use bex_store::settle::{Rejudged, SandboxAfter, Settled};
use bex_store::transcript::{AppendError, AppendOutcome, HarvestStep};
use jiff::Timestamp;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn repeats_and_holes_keep_identity_and_seq() {
    let store = Store::new().await;
    let session = store.running().await;
    let first = store.append(&session, &parts([0, 1, 4])).await;
    assert_eq!(
        (first.stored, first.duplicates, first.next_seq),
        (3, 0, Seq(3))
    );
    let second = store.append(&session, &parts([4, 3, 3, 0, 2])).await;
    assert_eq!(
        (second.stored, second.duplicates, second.mismatch),
        (2, 2, None)
    );
    // the hole is filled with later seqs, in part order; nothing is renumbered
    assert_eq!(store.seqs(&session), "0:0 1:1 2:3 3:4 4:2");
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(
        (turn.stored_parts, turn.stored_bytes),
        (5, 5 * text_of(0).len() as u64)
    );
    let head = store.db.transcript_head(&session).await.unwrap().unwrap();
    assert_eq!(
        (head.parts, head.charged_bytes),
        (5, 5 * (text_of(0).len() as u64 + 64))
    );
    let empty = store.append(&session, &[]).await;
    assert_eq!((empty.stored, empty.next_seq), (0, Seq(5)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_the_turns_generation_may_speak() {
    let store = Store::new().await;
    let session = store.running().await;
    let other = store
        .append_at(&session, T1, Generation(2), &parts([0]), None)
        .await;
    assert_eq!(other, AppendOutcome::WrongGeneration);
    let unknown = store
        .append_at(&session, TurnNo(2), G1, &[part(2, 0, &text_of(0))], None)
        .await;
    assert_eq!(unknown, AppendOutcome::UnknownTurn);
    let nobody = store
        .append_at(&SessionId::random(), T1, G1, &parts([0]), None)
        .await;
    assert_eq!(nobody, AppendOutcome::UnknownTurn);
    assert_eq!(store.seqs(&session), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_complete_turn_takes_nothing() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..3)).await;
    assert!(matches!(
        store
            .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
            .await,
        Settled::Now { reason: None, .. }
    ));
    let changed = part(1, 1, &text_of(9));
    let late = store
        .append_at(&session, T1, G1, &[changed, part(1, 3, &text_of(3))], None)
        .await;
    assert_eq!(late, AppendOutcome::Complete);
    assert_eq!(store.seqs(&session), "0:0 1:1 2:2");
    assert_eq!(
        store.db.turn(&session, T1).await.unwrap().unwrap().mismatch,
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_truncated_turn_takes_what_is_missing_and_heals() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts([0, 2])).await;
    let settled = store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    assert!(matches!(
        settled,
        Settled::Now {
            reason: Some(bex_proto::session::TruncationReason::LogUnreadable),
            ..
        }
    ));
    let before = store.db.turn(&session, T1).await.unwrap().unwrap();
    // beyond the declared count nothing is taken, and nothing is marked for it
    let beyond = store.append(&session, &parts([3, 4])).await;
    assert_eq!((beyond.stored, beyond.refused_declared), (0, 2));
    assert!(
        store
            .db
            .turns_to_rejudge(&session)
            .await
            .unwrap()
            .is_empty()
    );
    let late = store.append(&session, &parts([1])).await;
    assert_eq!(late.stored, 1);
    assert_eq!(store.db.turns_to_rejudge(&session).await.unwrap(), vec![T1]);
    let lease = store.lease(&session).await;
    assert_eq!(
        store.db.rejudge(&lease, T1).await.unwrap(),
        Rejudged::Healed
    );
    let after = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(after.verdict, bex_proto::session::Verdict::Complete);
    assert_eq!((after.settled_at, after.reason), (before.settled_at, None));
    let waiting = store.db.turns_to_rejudge(&session).await.unwrap();
    assert!(waiting.is_empty());
    assert!(after.healed_at.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_recorded_turn_end_bounds_the_open_turn() {
    let store = Store::new().await;
    let session = store.running().await;
    store
        .db
        .record_turn_end(&session, G1, &end_of(2))
        .await
        .unwrap();
    let appended = store.append(&session, &parts(0..4)).await;
    assert_eq!((appended.stored, appended.refused_declared), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_differing_part_is_reported_and_changes_nothing() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..3)).await;
    let answer = store
        .append(
            &session,
            &[
                part(1, 2, &text_of(9)),
                part(1, 1, &text_of(8)),
                part(1, 0, &text_of(0)),
            ],
        )
        .await;
    assert_eq!(
        (answer.stored, answer.duplicates, answer.mismatch),
        (0, 3, Some(PartIndex(1)))
    );
    assert_eq!(store.append(&session, &parts(0..3)).await.mismatch, None);
    let settled = store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    assert!(matches!(
        settled,
        Settled::Now {
            reason: Some(bex_proto::session::TruncationReason::DigestMismatch),
            ..
        }
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_quota_takes_the_longest_run_that_fits_and_marks_the_first_refused() {
    let store = Store::new().await;
    let session = store.running().await;
    let charge = text_of(0).len() + 64;
    store.sql(&format!(
        "UPDATE transcript_heads SET byte_limit = {} WHERE session_id = '{session}'",
        3 * charge + charge / 2
    ));
    store.append(&session, &parts([0])).await;
    // 1 and 3 fit, 4 does not, 5 is at or above the mark
    let over = store.append(&session, &parts([5, 4, 3, 1])).await;
    assert_eq!(
        (over.stored, over.refused_quota, over.quota_mark),
        (2, 2, Some(PartId::new(1, 4)))
    );
    // below the mark whatever fits, above it nothing even if it fits
    store.sql(&format!(
        "UPDATE transcript_heads SET byte_limit = byte_limit + {} WHERE session_id = '{session}'",
        charge * 2
    ));
    let later = store.append(&session, &parts([2, 4, 6])).await;
    assert_eq!(
        (later.stored, later.refused_quota, later.quota_mark),
        (1, 2, Some(PartId::new(1, 4)))
    );
    let head = store.db.transcript_head(&session).await.unwrap().unwrap();
    assert_eq!(
        (head.parts, head.charged_bytes, head.quota_mark),
        (4, 4 * charge as u64, Some(PartId::new(1, 4)))
    );
    let settled = store
        .settle(&session, Some(&end_of(7)), SandboxAfter::Idle)
        .await;
    assert!(matches!(
        settled,
        Settled::Now {
            reason: Some(bex_proto::session::TruncationReason::SessionQuota),
            ..
        }
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn below_the_mark_a_small_part_fits_where_a_large_one_does_not() {
    let store = Store::new().await;
    let session = store.running().await;
    let (small, large) = (
        text_of(1),
        format!(r#"{{"type":"x","d":"{}"}}"#, "y".repeat(500)),
    );
    let room = 2 * (small.len() + 64) + 40;
    store.sql(&format!(
        "UPDATE transcript_heads SET byte_limit = {room} WHERE session_id = '{session}'"
    ));
    let first = store
        .append(&session, &[part(1, 3, &small), part(1, 9, &large)])
        .await;
    assert_eq!(
        (first.stored, first.quota_mark),
        (1, Some(PartId::new(1, 9)))
    );
    let second = store
        .append(&session, &[part(1, 1, &large), part(1, 2, &small)])
        .await;
    assert_eq!(
        (second.stored, second.refused_quota, second.quota_mark),
        (1, 1, Some(PartId::new(1, 9)))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_part_count_is_a_quota_too() {
    let store = Store::new().await;
    let session = store.running().await;
    store.sql(&format!(
        "UPDATE transcript_heads SET part_limit = 2 WHERE session_id = '{session}'"
    ));
    let answer = store.append(&session, &parts(0..5)).await;
    assert_eq!(
        (answer.stored, answer.refused_quota, answer.quota_mark),
        (2, 3, Some(PartId::new(1, 2)))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_harvest_moves_its_offset_in_the_same_transaction_or_not_at_all() {
    let store = Store::new().await;
    let session = store.running().await;
    let step = |from, to| {
        Some(HarvestStep {
            log_id: "log",
            from,
            to,
        })
    };
    stored(
        store
            .append_at(&session, T1, G1, &parts([0]), step(0, 100))
            .await,
    );
    assert_eq!(
        store.db.harvest_offset(&session, G1, "log").await.unwrap(),
        100
    );
    let late = store
        .append_at(&session, T1, G1, &parts([1]), step(0, 100))
        .await;
    assert_eq!(late, AppendOutcome::OffsetMoved);
    assert_eq!(store.seqs(&session), "0:0");
    stored(store.append_at(&session, T1, G1, &[], step(100, 250)).await);
    assert_eq!(
        store.db.last_harvest(&session, G1, T1).await.unwrap(),
        Some(("log".into(), 250))
    );
    let unknown = store
        .append_at(
            &session,
            T1,
            G1,
            &parts([1]),
            Some(HarvestStep {
                log_id: "other",
                from: 9,
                to: 10,
            }),
        )
        .await;
    assert_eq!(unknown, AppendOutcome::OffsetMoved);
    assert_eq!(
        store
            .db
            .harvest_offset(&session, G1, "other")
            .await
            .unwrap(),
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn odd_json_is_stored_verbatim_and_a_stand_in_marks_its_turn() {
    let store = Store::new().await;
    let session = store.running().await;
    let odd = [
        r#"{"type":"text-delta","id":"1","delta":"a\u0000b"}"#,
        r#"{"type":"text-delta","id":"1","delta":"\ud800"}"#,
        r#"{ "type" : "data-x" , "b":1, "a" : 1.0, "a": 2 }"#,
        r#"{"type":"text-start","id":"a\u0000b"}"#,
    ];
    let batch: Vec<_> = odd
        .iter()
        .zip(0..)
        .map(|(text, index)| part(1, index, text))
        .collect();
    assert_eq!(store.append(&session, &batch).await.stored, 4);
    let read = store
        .db
        .read_page(&session, PartId::new(1, 0), 10, 1 << 20)
        .await
        .unwrap();
    assert_eq!(
        read.iter().map(|p| &p.bytes[..]).collect::<Vec<_>>(),
        odd.map(str::as_bytes).to_vec()
    );
    assert_eq!(read[3].head.chunk_id, None);
    assert!(
        !store
            .db
            .turn(&session, T1)
            .await
            .unwrap()
            .unwrap()
            .unstorable
    );
    let stand_in = bex_proto::transcript::unstorable_stand_in(
        bex_proto::transcript::Unstorable::NulByte,
        b"\0",
    );
    store
        .append(
            &session,
            &[part(1, 4, std::str::from_utf8(&stand_in).unwrap())],
        )
        .await;
    assert!(
        store
            .db
            .turn(&session, T1)
            .await
            .unwrap()
            .unwrap()
            .unstorable
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_clock_that_is_far_off_fails_no_batch() {
    let store = Store::new().await;
    let session = store.running().await;
    let odd = [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX];
    let batch: Vec<_> = odd
        .into_iter()
        .zip(0..)
        .map(|(at, index)| Part {
            spoken_at: Some(at),
            ..part(1, index, r#"{"type":"x"}"#)
        })
        .collect();
    assert_eq!(store.append(&session, &batch).await.stored, 3);
    let page = store.db.read_feed(&session, Seq(-1), 10).await.unwrap();
    let years: Vec<_> = page
        .parts
        .iter()
        .map(|p| p.spoken_at.map(|at| at.strftime("%Y").to_string()))
        .collect();
    assert_eq!(years, [None, Some("1970".into()), Some("9999".into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_with_a_raw_nul_or_a_foreign_turn_is_the_callers_mistake() {
    let store = Store::new().await;
    let session = store.running().await;
    let mut raw = part(1, 0, &text_of(0));
    raw.bytes = bytes::Bytes::from_static(b"{\"type\":\"a\0\"}");
    for bad in [raw, part(2, 0, &text_of(0))] {
        let batch = bex_store::transcript::Append {
            session: &session,
            turn: T1,
            generation: G1,
            parts: std::slice::from_ref(&bad),
            marks: Default::default(),
            harvest: None,
        };
        assert!(matches!(store.db.append(batch).await, Err(AppendError::Part(id)) if id == bad.id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_give_one_contiguous_seq() {
    let store = std::sync::Arc::new(Store::new().await);
    let session = store.running().await;
    let writer = |offset: u32| {
        let (store, session) = (store.clone(), session.clone());
        tokio::spawn(async move {
            for batch in 0..20 {
                store
                    .append(
                        &session,
                        &parts((batch * 8 + offset)..(batch * 8 + offset + 6)),
                    )
                    .await;
            }
        })
    };
    let (a, b) = (writer(0), writer(3));
    a.await.unwrap();
    b.await.unwrap();
    let shape = store.sql(&format!(
        "SELECT count(*) || ' ' || min(seq) || ' ' || max(seq) || ' ' || count(DISTINCT part_index)
           FROM transcript_parts WHERE session_id = '{session}'"
    ));
    let written: std::collections::BTreeSet<u32> = (0..20u32)
        .flat_map(|b| (b * 8..b * 8 + 6).chain(b * 8 + 3..b * 8 + 9))
        .collect();
    let count = written.len();
    assert_eq!(shape, format!("{count} 0 {} {count}", count - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_later_seq_never_shows_before_an_earlier_one() {
    let store = Store::new().await;
    let session = store.running().await;
    // writer A has numbered its part and not committed
    let mut a = tokio_postgres_client(&store).await;
    let a = a.transaction().await.unwrap();
    let call = format!(
        "SELECT stored FROM bex_append('{session}', 1, 1, '{{0}}', '{{x}}', '{{NULL}}', '{{a}}', '{{NULL}}', false, NULL, NULL, NULL)"
    );
    assert_eq!(a.query_one(&call, &[]).await.unwrap().get::<_, i32>(0), 1);
    // writer B waits for A's decision
    let (db, id) = (store.db.clone(), session.clone());
    let b = tokio::spawn(async move {
        let batch = parts([1]);
        let append = bex_store::transcript::Append {
            session: &id,
            turn: T1,
            generation: G1,
            parts: &batch,
            marks: Default::default(),
            harvest: None,
        };
        stored(db.append(append).await.unwrap())
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%bex_append%'
                      AND datname = current_database()";
    eventually(|| store.sql(waiting) == "1").await;
    let page = store.db.read_feed(&session, Seq(-1), 10).await.unwrap();
    assert!(
        page.parts.is_empty(),
        "seq 1 must not be seen while seq 0 is undecided"
    );
    a.commit().await.unwrap();
    assert_eq!(b.await.unwrap().next_seq, Seq(2));
    let page = store.db.read_feed(&session, Seq(-1), 10).await.unwrap();
    assert_eq!(
        page.parts.iter().map(|p| p.seq.0).collect::<Vec<_>>(),
        [0, 1]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn append_asks_the_same_of_the_server_however_much_is_stored() {
    let store = Store::new().await;
    let session = store.running().await;
    // per batch: index blocks touched, by the server's own count, when the table is empty and when it holds 20 000 parts
    store.append(&session, &parts(0..32)).await;
    let call = |from: u32| {
        let array =
            |f: &dyn Fn(u32) -> String| (from..from + 32).map(f).collect::<Vec<_>>().join(",");
        format!(
            "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, COSTS OFF, SUMMARY OFF) SELECT * FROM bex_append('{session}', 1, 1,
               '{{{}}}', '{{{}}}', '{{{}}}', '{{{}}}', '{{{}}}', false, NULL, NULL, NULL)",
            array(&|i| i.to_string()),
            array(&|_| "x".into()),
            array(&|_| "NULL".into()),
            array(&|i| format!("p{i}")),
            array(&|_| "NULL".into()),
        )
    };
    // one connection, so that the function's cached plan is the one made while the table was small
    let client = tokio_postgres_client(&store).await;
    let mut touched = Vec::new();
    for from in [32, 64, 96, 20_096, 20_128] {
        if from == 20_096 {
            for batch in 0..20 {
                store
                    .append(
                        &session,
                        &parts(128 + batch * 1000..128 + (batch + 1) * 1000),
                    )
                    .await;
            }
        }
        let plan = client.query(&call(from), &[]).await.unwrap();
        let buffers = plan
            .iter()
            .map(|row| row.get::<_, String>(0))
            .find(|line| line.contains("Buffers:"))
            .unwrap();
        let count = |word: &str| {
            buffers.split(word).nth(1).map_or(0u32, |rest| {
                rest.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>()
                    .parse()
                    .unwrap()
            })
        };
        touched.push(count("hit=") + count("read="));
    }
    // an index has one level more; a plan that reads the whole session would touch thousands
    assert!(
        touched[4] < touched[2] * 3,
        "blocks touched per batch: {touched:?}"
    );
}
