//! Settle over real rows. The verdict table itself is a unit test of `judge`.

use bex_proto::driver::{Dropped, TurnState};
use bex_proto::session::{EndedBy, Phase, TruncationReason, Verdict};
use bex_proto::{Generation, PartIndex};
use bex_store::sandboxes::SandboxState;
use bex_store::settle::{Cause, Legacy, Rejudged, SandboxAfter, Settled};
use bex_store::transcript::{Append, Marks};
use bex_store::turns::RecordedEnd;

use crate::support::*;

fn now(verdict: Verdict, reason: Option<TruncationReason>, phase: Phase) -> Settled {
    Settled::Now {
        verdict,
        reason,
        phase,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_whole_turn_is_proved_by_count_and_digest() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts([2, 0])).await;
    store.append(&session, &parts([1])).await;
    let settled = store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    assert_eq!(settled, now(Verdict::Complete, None, Phase::Completed));
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(
        (turn.expected_parts, turn.stored_parts, turn.ended_by),
        (Some(3), 3, Some(EndedBy::Agent))
    );
    assert_eq!(
        store
            .db
            .latest_sandbox(&session)
            .await
            .unwrap()
            .unwrap()
            .state,
        SandboxState::Idle
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_empty_turn_can_be_complete() {
    let store = Store::new().await;
    let session = store.running().await;
    let settled = store
        .settle(&session, Some(&end_of(0)), SandboxAfter::Idle)
        .await;
    assert_eq!(settled, now(Verdict::Complete, None, Phase::Completed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn phase_tells_the_outcome_whatever_the_verdict() {
    let store = Store::new().await;
    for (state, parts_stored, phase) in [
        (TurnState::Succeeded, 1, Phase::Completed),
        (TurnState::Stopped, 2, Phase::Completed),
        (TurnState::Failed, 2, Phase::Failed),
    ] {
        let session = store.running().await;
        store.append(&session, &parts(0..parts_stored)).await;
        let mut end = end_of(2);
        end.state = state;
        let Settled::Now {
            verdict,
            phase: reached,
            ..
        } = store.settle(&session, Some(&end), SandboxAfter::Idle).await
        else {
            panic!("not settled")
        };
        assert_eq!(
            (verdict == Verdict::Complete, reached),
            (parts_stored == 2, phase)
        );
    }
    let session = store.running().await;
    store.append(&session, &parts(0..2)).await;
    let lost = store.settle(&session, None, SandboxAfter::Stopping).await;
    assert_eq!(
        lost,
        now(
            Verdict::Truncated,
            Some(TruncationReason::SandboxLost),
            Phase::Failed
        )
    );
    assert_eq!(
        store.db.turn(&session, T1).await.unwrap().unwrap().ended_by,
        Some(EndedBy::Lost)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_recorded_before_a_crash_still_counts() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..2)).await;
    let mut other = end_of(2);
    other.parts = 1;
    assert_eq!(
        store
            .db
            .record_turn_end(&session, Generation(7), &end_of(2))
            .await
            .unwrap(),
        RecordedEnd::Refused
    );
    assert_eq!(
        store
            .db
            .record_turn_end(&session, G1, &end_of(2))
            .await
            .unwrap(),
        RecordedEnd::Known
    );
    assert_eq!(
        store
            .db
            .record_turn_end(&session, G1, &end_of(2))
            .await
            .unwrap(),
        RecordedEnd::Known
    );
    assert_eq!(
        store
            .db
            .record_turn_end(&session, G1, &other)
            .await
            .unwrap(),
        RecordedEnd::Refused
    );
    // the next Completer never saw the record itself
    let settled = store.settle(&session, None, SandboxAfter::Stopping).await;
    assert_eq!(settled, now(Verdict::Complete, None, Phase::Completed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropped_parts_and_marks_name_their_reason() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts(0..2)).await;
    let mut end = end_of(4);
    end.dropped = Some(Dropped {
        first: PartIndex(2),
        last: PartIndex(3),
        count: 2,
        bytes: 9,
    });
    let settled = store.settle(&session, Some(&end), SandboxAfter::Idle).await;
    assert_eq!(
        settled,
        now(
            Verdict::Truncated,
            Some(TruncationReason::LogTruncated),
            Phase::Completed
        )
    );
    let dropped = store
        .db
        .turn(&session, T1)
        .await
        .unwrap()
        .unwrap()
        .dropped
        .unwrap();
    assert_eq!(
        (dropped.first, dropped.last, dropped.count),
        (PartIndex(2), PartIndex(3), 2)
    );

    let session = store.running().await;
    let batch = parts(0..2);
    let marked = Append {
        session: &session,
        turn: T1,
        generation: G1,
        parts: &batch,
        marks: Marks::Unstorable,
        harvest: None,
    };
    store.db.append(marked).await.unwrap();
    let settled = store
        .settle(&session, Some(&end_of(3)), SandboxAfter::Idle)
        .await;
    assert_eq!(
        settled,
        now(
            Verdict::Truncated,
            Some(TruncationReason::PartUnstorable),
            Phase::Completed
        )
    );
    store.append(&session, &parts([2])).await;
    let lease = store.lease(&session).await;
    assert_eq!(
        store.db.rejudge(&lease, T1).await.unwrap(),
        Rejudged::Unchanged
    );
    assert!(
        store
            .db
            .turns_to_rejudge(&session)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_generation_cannot_settle_the_turn() {
    let store = Store::new().await;
    let session = store.running().await;
    let lease = store.lease(&session).await;
    let mut request = settle(T1, Cause::Lost, SandboxAfter::Stopping);
    request.generation = Generation(2);
    assert_eq!(
        store.db.settle(&lease, &request).await.unwrap(),
        Settled::WrongGeneration
    );
    request.turn = bex_proto::TurnNo(9);
    assert_eq!(
        store.db.settle(&lease, &request).await.unwrap(),
        Settled::NotFound
    );
    assert_eq!(
        store.db.session(&session).await.unwrap().unwrap().phase,
        Phase::Running
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_older_driver_is_believed_only_when_everything_fits() {
    let store = Store::new().await;
    for (indexes, whole, verdict) in [
        (vec![0, 1], true, Verdict::Complete),
        (vec![0, 1], false, Verdict::Truncated),
        (vec![0, 2], true, Verdict::Truncated),
    ] {
        let session = store.running().await;
        store.append(&session, &parts(indexes)).await;
        let lease = store.lease(&session).await;
        let mut request = settle(T1, Cause::DriverEnded, SandboxAfter::Stopping);
        request.legacy = Some(Legacy {
            state: TurnState::Succeeded,
            parts: 2,
            whole,
        });
        let settled = store.db.settle(&lease, &request).await.unwrap();
        let reason = (verdict == Verdict::Truncated).then_some(TruncationReason::LegacyUnproved);
        assert_eq!(settled, now(verdict, reason, Phase::Completed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_late_part_that_completes_nothing_leaves_the_verdict() {
    let store = Store::new().await;
    let session = store.running().await;
    store.append(&session, &parts([0])).await;
    store
        .settle(&session, Some(&end_of(4)), SandboxAfter::Idle)
        .await;
    store.append(&session, &parts([2])).await;
    let lease = store.lease(&session).await;
    assert_eq!(
        store.db.rejudge(&lease, T1).await.unwrap(),
        Rejudged::Unchanged
    );
    // a wrong part in the last hole fills the count but not the digest
    store
        .append(
            &session,
            &[part(1, 1, &text_of(1)), part(1, 3, &text_of(77))],
        )
        .await;
    assert_eq!(
        store.db.rejudge(&lease, T1).await.unwrap(),
        Rejudged::Unchanged
    );
    let turn = store.db.turn(&session, T1).await.unwrap().unwrap();
    assert_eq!(
        (turn.verdict, turn.reason),
        (Verdict::Truncated, Some(TruncationReason::LogUnreadable))
    );
}
