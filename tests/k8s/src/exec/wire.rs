//! The server's side of an exec's socket.

use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};

use super::frames::{self, opcode};

/// Standard input, from the client.
pub(super) const STDIN: u8 = 0;
/// Standard output.
pub(super) const STDOUT: u8 = 1;
/// Standard error.
pub(super) const STDERR: u8 = 2;
/// The status.
pub(super) const STATUS: u8 = 3;
/// Closes a channel; v5 only, from the client.
pub(super) const CLOSE_CHANNEL: u8 = 255;
/// The largest payload of a server's frame, without the channel.
pub(super) const PAYLOAD_BYTES: usize = 32 * 1024;

/// The server's side of the socket.
pub(super) struct Wire<S> {
    pub(super) writer: WriteHalf<S>,
    pub(super) fragments: bool,
}

impl<S: AsyncWrite> Wire<S> {
    pub(super) async fn message(&mut self, channel: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut message = Vec::with_capacity(payload.len() + 1);
        message.push(channel);
        message.extend_from_slice(payload);
        if self.fragments && message.len() > 1 {
            let (first, rest) = message.split_at(message.len() / 2);
            self.frame(false, opcode::BINARY, first).await?;
            return self.frame(true, opcode::CONTINUATION, rest).await;
        }
        self.frame(true, opcode::BINARY, &message).await
    }

    pub(super) async fn frame(
        &mut self,
        fin: bool,
        opcode: u8,
        payload: &[u8],
    ) -> std::io::Result<()> {
        self.writer
            .write_all(&frames::write(fin, opcode, payload, None))
            .await?;
        self.writer.flush().await
    }

    pub(super) async fn close(&mut self) -> std::io::Result<()> {
        self.frame(true, opcode::CLOSE, &1000_u16.to_be_bytes())
            .await
    }
}
