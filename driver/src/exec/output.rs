//! Frames on standard output, unbuffered: what is written is out.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;

use bex_proto::exec::FrameKind;
use bex_proto::limits;
use serde::Serialize;

/// Writes frames.
pub struct Output(File);

impl Output {
    /// Frames on standard output. `std::io::Stdout` would look for lines and copy.
    ///
    /// # Errors
    /// When there is no standard output.
    pub fn standard() -> io::Result<Self> {
        let stdout = io::stdout();
        Ok(Self(File::from(stdout.as_fd().try_clone_to_owned()?)))
    }

    /// Writes bytes as frames, straight from where they are.
    ///
    /// # Errors
    /// When nobody reads.
    pub fn bytes(&mut self, kind: FrameKind, bytes: &[u8]) -> io::Result<()> {
        bytes
            .chunks(limits::EXEC_FRAME_BYTES)
            .try_for_each(|chunk| self.frame(kind, chunk))
    }

    /// Writes one frame with a JSON payload.
    ///
    /// # Errors
    /// When nobody reads.
    pub fn json<T: Serialize>(&mut self, kind: FrameKind, payload: &T) -> io::Result<()> {
        self.frame(kind, &serde_json::to_vec(payload)?)
    }

    fn frame(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let mut head = [kind as u8, 0, 0, 0, 0];
        head[1..].copy_from_slice(&length.to_be_bytes());
        let mut slices = [IoSlice::new(&head), IoSlice::new(payload)];
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match self.0.write_vectored(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut rest, written),
            }
        }
        Ok(())
    }
}
