//! What the client of an exec does.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadHalf};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

use super::frames::{self, opcode};
use super::wire::{CLOSE_CHANNEL, STDIN};
use super::{ExecSeen, Protocol};

/// What the client did.
pub(super) enum Heard {
    Ping(Vec<u8>),
    Data,
    Close,
    Gone,
    /// A control message that no server understands: it closes at once.
    Nonsense,
}

/// Reads the client. Each frame is a message of its own, as in the real server; standard input ends with the client.
pub(super) async fn listen<S: AsyncRead>(
    mut reader: ReadHalf<S>,
    mut stdin: Option<ChildStdin>,
    protocol: Protocol,
    seen: Arc<ExecSeen>,
    say: mpsc::Sender<Heard>,
) {
    loop {
        let heard = match frames::read(&mut reader).await {
            Ok(Some(frame)) => {
                seen.note(|counts| {
                    counts.largest = counts.largest.max(frame.payload.len());
                    counts.fragments +=
                        u64::from(!frame.fin || frame.opcode == opcode::CONTINUATION);
                });
                if !frame.masked {
                    Heard::Nonsense
                } else {
                    match frame.opcode {
                        opcode::PING => {
                            seen.note(|counts| counts.pings += 1);
                            Heard::Ping(frame.payload)
                        }
                        opcode::PONG => Heard::Data,
                        opcode::CLOSE => {
                            seen.note(|counts| counts.closed = true);
                            Heard::Close
                        }
                        _ => message(&frame.payload, &mut stdin, protocol, &seen).await,
                    }
                }
            }
            Ok(None) | Err(_) => Heard::Gone,
        };
        let is_last = matches!(heard, Heard::Close | Heard::Gone | Heard::Nonsense);
        if is_last {
            stdin = None;
        }
        if say.send(heard).await.is_err() || is_last {
            return;
        }
    }
}

async fn message(
    payload: &[u8],
    stdin: &mut Option<ChildStdin>,
    protocol: Protocol,
    seen: &ExecSeen,
) -> Heard {
    match payload {
        [] | [STDIN] => seen.note(|counts| counts.empties += 1),
        [STDIN, data @ ..] => {
            seen.note(|counts| counts.stdin += data.len() as u64);
            if let Some(pipe) = stdin
                && pipe.write_all(data).await.is_err()
            {
                *stdin = None;
            }
        }
        [CLOSE_CHANNEL, rest @ ..] if protocol == Protocol::V5 => {
            if rest != [STDIN] {
                return Heard::Nonsense;
            }
            seen.note(|counts| counts.half_closed = true);
            *stdin = None;
        }
        // resizing without a terminal, and unknown channels
        _ => {}
    }
    Heard::Data
}
