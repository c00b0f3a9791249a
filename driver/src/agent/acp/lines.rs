//! An agent's messages, one a line. A line over the bound is skipped, so that one huge message cannot take the driver's memory,
//! and does not end the session either. No line is read while the queue of messages is full: the connection itself keeps every
//! line it is given.

use std::io;

use futures::Stream;
use futures::stream::unfold;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::task::yield_now;
use tracing::warn;

use super::queue::Sender;
use crate::bounds::AGENT_MESSAGE_BYTES;

const BUFFER_BYTES: usize = 64 * 1024;

/// The lines of a stream, without their ends.
pub fn bounded_lines(
    stream: impl AsyncRead + Send + Unpin + 'static,
    queue: Sender,
) -> impl Stream<Item = io::Result<String>> + Send {
    let reader = BufReader::with_capacity(BUFFER_BYTES, stream);
    unfold((reader, queue), |(mut reader, queue)| async move {
        loop {
            // the connection takes the line before this one first, and its message the room
            yield_now().await;
            queue.has_room().await;
            match next_line(&mut reader, AGENT_MESSAGE_BYTES).await {
                Ok(Line::End) => return None,
                Ok(Line::TooLong(bytes)) => warn!(bytes, "agent's message is too long; skipped"),
                Ok(Line::Text(text)) => return Some((Ok(text), (reader, queue))),
                Err(cause) => return Some((Err(cause), (reader, queue))),
            }
        }
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(String),
    TooLong(u64),
    End,
}

async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), bound: u64) -> io::Result<Line> {
    let (mut line, mut skipped) = (Vec::new(), 0);
    loop {
        let length = (&mut *reader)
            .take(bound + 1)
            .read_until(b'\n', &mut line)
            .await?;
        let is_whole = line.ends_with(b"\n");
        if length == 0 && line.is_empty() && skipped == 0 {
            return Ok(Line::End);
        }
        if !is_whole && line.len() as u64 > bound {
            skipped += line.len() as u64;
            line.clear();
            continue;
        }
        if skipped > 0 {
            return Ok(Line::TooLong(skipped + line.len() as u64));
        }
        if is_whole {
            line.pop();
        }
        return Ok(Line::Text(String::from_utf8_lossy(&line).into_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_lines_are_skipped_and_the_next_one_is_whole() {
        let text = b"short\n0123456789abcdef\nnext\n01234567\nend";
        let mut reader = BufReader::with_capacity(3, &text[..]);
        let mut lines = Vec::new();
        loop {
            match next_line(&mut reader, 8).await.expect("readable") {
                Line::End => break,
                line => lines.push(line),
            }
        }
        let text = |t: &str| Line::Text(t.to_owned());
        assert_eq!(
            lines,
            [
                text("short"),
                Line::TooLong(17),
                text("next"),
                text("01234567"),
                text("end")
            ]
        );
    }
}
