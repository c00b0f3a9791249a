//! One window of a turn's log, proved: its bytes have the length and SHA-256 that its header promised. An answer that was
//! cut is continued from the bytes it has, and the joined bytes are proved against the first header.

use bex_proto::TurnNo;
use bex_proto::exec::{LogWindow, WindowEnding};
use bex_proto::limits;
use bex_proto::transcript::sha256_hex;
use bytes::{Bytes, BytesMut};

use super::{ExecFailure, ExecTarget, HeldWindow, ReadAnswer, Reading, Room, SandboxRpc, Windows};

/// How often one window is continued before this tick gives up; the next one begins again.
const CONTINUATIONS: usize = 4;

/// A proved window.
#[derive(Debug)]
pub struct Window {
    /// The text of status.json.
    pub status: Option<String>,
    /// The log's window; `None` while the driver has not begun the log.
    pub log: Option<(LogWindow, Bytes)>,
    /// Kept for as long as the bytes are; `None` where they are few.
    pub held: Option<HeldWindow>,
}

/// Reads status and log from `offset`. Where there is much to read it waits for one of the windows, as long as it takes.
///
/// # Errors
/// When the window could not be read whole; nothing of it may be used then.
pub async fn read_window(
    rpc: &dyn SandboxRpc,
    windows: &Windows,
    target: &ExecTarget,
    turn: TurnNo,
    offset: u64,
) -> Result<Window, ExecFailure> {
    let mut held = None;
    let mut first = rpc
        .read(target, Reading::Status, turn, offset, Room::Small)
        .await;
    if first.end == Err(ExecFailure::OutputLimit) {
        // what little came is let go before the wait
        drop(first);
        held = Some(windows.take().await);
        first = rpc
            .read(target, Reading::Status, turn, offset, Room::Window)
            .await;
    }
    let room = match held {
        Some(_) => Room::Window,
        None => Room::Small,
    };
    let Some(header) = first.header.clone() else {
        return Err(first.end.err().unwrap_or(ExecFailure::Transport));
    };
    let Some(log) = header.log else {
        // without a log there are no bytes that could be short, but there is an end that could be missing
        first.end?;
        return Ok(Window {
            status: header.status,
            log: None,
            held,
        });
    };
    let promised = promised(&log);
    if promised > limits::HARVEST_BYTES {
        return Err(ExecFailure::Transport);
    }
    let bytes = fill(rpc, room, target, turn, offset, &log, promised, first).await?;
    if log.ending != WindowEnding::LineTooLong && sha256_hex(&bytes) != log.sha256 {
        return Err(ExecFailure::Transport);
    }
    Ok(Window {
        status: header.status,
        log: Some((log, bytes)),
        held,
    })
}

fn promised(log: &LogWindow) -> u64 {
    if log.ending == WindowEnding::LineTooLong {
        0
    } else {
        log.length
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one call's words, said in one place"
)]
async fn fill(
    rpc: &dyn SandboxRpc,
    room: Room,
    target: &ExecTarget,
    turn: TurnNo,
    offset: u64,
    log: &LogWindow,
    promised: u64,
    first: ReadAnswer,
) -> Result<Bytes, ExecFailure> {
    if first.bytes.len() as u64 == promised {
        return Ok(first.bytes);
    }
    let mut answer = first;
    let mut joined = BytesMut::new();
    for _ in 0..CONTINUATIONS {
        let wanted = promised - joined.len() as u64;
        if answer.end.is_ok() && answer.bytes.len() as u64 > wanted {
            // the log grew meanwhile; the window ends where the first header says
            joined
                .extend_from_slice(&answer.bytes[..usize::try_from(wanted).unwrap_or(usize::MAX)]);
        } else if answer.bytes.len() as u64 > wanted {
            return Err(ExecFailure::Transport);
        } else {
            joined.extend_from_slice(&answer.bytes);
        }
        if joined.len() as u64 == promised {
            return Ok(joined.freeze());
        }
        match answer.end {
            Ok(()) | Err(ExecFailure::Transport | ExecFailure::Timeout) => {}
            Err(failure) => return Err(failure),
        }
        let at = offset + joined.len() as u64;
        answer = rpc.read(target, Reading::Rest, turn, at, room).await;
        match answer.header.as_ref().and_then(|h| h.log.as_ref()) {
            Some(next) if next.log_id == log.log_id && next.offset == at => {}
            Some(_) => return Err(ExecFailure::Transport),
            None => return Err(answer.end.err().unwrap_or(ExecFailure::Transport)),
        }
    }
    Err(ExecFailure::Transport)
}
