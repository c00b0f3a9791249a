//! Rows as text, times only as far as there is one: two clocks never agree.

use bex_store::sandboxes::SandboxRow;
use bex_store::sessions::SessionRow;
use bex_store::turns::TurnRow;

pub fn session_text(row: &SessionRow) -> String {
    format!(
        "{} {} {:?} {:?} {:?} archived {} canceled {} {}",
        row.id,
        row.phase,
        row.failure_reason,
        row.turns,
        row.transcript,
        row.archived_at.is_some(),
        row.cancel_requested_at.is_some(),
        row.canceled_at.is_some(),
    )
}

pub fn turn_text(row: &TurnRow) -> String {
    let times = [
        row.delivery_started_at,
        row.delivered_at,
        row.stop_requested_at,
        row.started_at,
        row.last_part_at,
        row.settled_at,
        row.healed_at,
    ];
    format!(
        "{} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {} {} {:?}",
        row.turn,
        row.generation,
        row.verdict,
        row.reason,
        row.ended_by,
        row.driver_state,
        row.delivery_mode,
        row.expected_parts,
        row.expected_sha256,
        row.dropped,
        row.unstorable,
        row.mismatch,
        row.stored_parts,
        row.stored_bytes,
        times.map(|time| time.is_some()),
    )
}

pub fn sandbox_text(row: &SandboxRow) -> String {
    format!(
        "{} {} {:?} {:?} {} {} {} idle {} after {}",
        row.generation,
        row.turn,
        row.state,
        row.pod_uid,
        row.pod,
        row.legacy,
        row.teardown_attempts,
        row.idle_since.is_some(),
        row.teardown_after.is_some(),
    )
}
