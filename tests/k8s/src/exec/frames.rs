//! WebSocket frames as they are on the wire: read one by one, never joined, never interpreted.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest frame that a real server takes; it drops the connection then.
pub const FRAME_BYTES: u64 = 32 * 1024 * 1024;

/// Opcodes.
pub mod opcode {
    /// The rest of a fragmented message.
    pub const CONTINUATION: u8 = 0;
    /// Text.
    pub const TEXT: u8 = 1;
    /// Bytes.
    pub const BINARY: u8 = 2;
    /// The end.
    pub const CLOSE: u8 = 8;
    /// Are you there?
    pub const PING: u8 = 9;
    /// I am.
    pub const PONG: u8 = 10;
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Whether it ends its message.
    pub fin: bool,
    /// See [`opcode`].
    pub opcode: u8,
    /// Whether it was masked, as a client's must be.
    pub masked: bool,
    /// Unmasked.
    pub payload: Vec<u8>,
}

/// Reads one frame; `None` at the socket's end.
///
/// # Errors
/// When the socket breaks, ends within a frame, or the frame is longer than [`FRAME_BYTES`].
pub async fn read(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; 2];
    if socket.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut head[1..]).await?;
    let length = match head[1] & 0x7f {
        126 => u64::from(socket.read_u16().await?),
        127 => socket.read_u64().await?,
        short => u64::from(short),
    };
    if length > FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let masked = head[1] & 0x80 != 0;
    let mut mask = [0; 4];
    if masked {
        socket.read_exact(&mut mask).await?;
    }
    let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    socket.read_exact(&mut payload).await?;
    if masked {
        apply(&mut payload, mask);
    }
    Ok(Some(Frame {
        fin: head[0] & 0x80 != 0,
        opcode: head[0] & 0x0f,
        masked,
        payload,
    }))
}

/// A frame's bytes; a client gives a mask, a server none.
pub fn write(fin: bool, opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 14);
    out.push(if fin { 0x80 | opcode } else { opcode });
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        short @ 0..=125 => out.push(masked | short as u8),
        middle @ 126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(masked | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    match mask {
        None => out.extend_from_slice(payload),
        Some(mask) => {
            out.extend_from_slice(&mask);
            let start = out.len();
            out.extend_from_slice(payload);
            apply(&mut out[start..], mask);
        }
    }
    out
}

fn apply(bytes: &mut [u8], mask: [u8; 4]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[i % 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read() {
        for (length, mask) in [
            (0, None),
            (1, Some([1, 2, 3, 4])),
            (125, None),
            (126, Some([9; 4])),
            (32_769, None),
            (70_000, Some([7; 4])),
        ] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let wire = write(true, opcode::BINARY, &payload, mask);
            let frame = read(&mut &wire[..])
                .await
                .expect("well-formed")
                .expect("a frame");
            let expected = Frame {
                fin: true,
                opcode: opcode::BINARY,
                masked: mask.is_some(),
                payload,
            };
            assert_eq!(frame, expected, "{length}");
        }
        assert_eq!(read(&mut &b""[..]).await.expect("an end"), None);
        assert!(read(&mut &[0x82, 5, 1][..]).await.is_err(), "cut");
        assert!(
            read(&mut &[0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0][..])
                .await
                .is_err(),
            "too long"
        );
    }
}
