//! The frames of one exec, both ways, in a task of its own.
//!
//! The library's loop stops at the status and sends no pings; here reading goes on until CLOSE, as output may come behind the status,
//! and silence is told from death. Standard input is never closed alone, as v4 cannot: it ends with the connection, and with it the
//! process. Nothing said here is an end of the output; its reader looks for the end mark.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use futures::{SinkExt, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tracing::debug;

use super::status::Told;

/// A message from us, its channel byte included. Servers take each frame for a message, so none is ever fragmented.
const CLIENT_MESSAGE_BYTES: usize = 32 * 1024;
/// A message to us. Servers send 32 KiB and a byte; another's may be a little larger.
pub(super) const SERVER_MESSAGE_BYTES: usize = 256 * 1024;
/// What is read from the socket at once.
pub(super) const READ_BUFFER_BYTES: usize = 32 * 1024;
/// Messages between socket and reader. With the buffers this is what one exec may hold.
const OUTPUT_MESSAGES: usize = 2;
/// Writing a ping or CLOSE: longer means that nobody reads.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STATUS: u8 = 3;

/// Times of an exec's connection.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// After so long without a message, a PING and an empty message are sent, again and again. Runtimes cut what is idle and count
    /// only messages; others count only traffic.
    pub ping: Duration,
    /// Nothing heard for this long, not even an answer to a ping: the peer is gone.
    pub silence: Duration,
    /// How long CLOSE may be late behind the status.
    pub close: Duration,
    /// How long a pod's status may lag behind the end of its processes.
    pub lag: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(15),
            silence: Duration::from_secs(40),
            close: Duration::from_secs(5),
            lag: Duration::from_secs(4),
        }
    }
}

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By CLOSE or the socket's end; with what the status channel said before.
    Closed(Option<Told>),
    /// The socket broke or carried what no server says.
    Broken,
    /// See [`Pace::silence`].
    Silent,
}

/// The output as it comes; it just stops where the connection does.
pub(super) type Output = BoxStream<'static, io::Result<Bytes>>;

/// Sends `request` and reads. Dropping the output ends the connection. The second value is set when the connection has ended.
pub(super) fn start<S>(
    socket: WebSocketStream<S>,
    request: Bytes,
    pace: Pace,
) -> (Output, watch::Receiver<Option<Ended>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (say, output) = mpsc::channel(OUTPUT_MESSAGES);
    let (tell, ended) = watch::channel(None);
    tokio::spawn(async move {
        let mut channel = Channel {
            socket,
            say,
            pace,
            told: None,
        };
        let end = match channel.send(&request).await {
            Ok(()) => channel.run().await,
            Err(end) => end,
        };
        channel.leave().await;
        if let Some(end) = end {
            debug!(?end, "an exec's connection ended");
            tell.send_replace(Some(end));
        }
    });
    (stream(output).boxed(), ended)
}

fn stream(mut output: mpsc::Receiver<Bytes>) -> impl Stream<Item = io::Result<Bytes>> {
    futures::stream::poll_fn(move |cx| output.poll_recv(cx).map(|bytes| bytes.map(Ok)))
}

struct Channel<S> {
    socket: WebSocketStream<S>,
    say: mpsc::Sender<Bytes>,
    pace: Pace,
    told: Option<Told>,
}

enum Heard {
    Output(Bytes),
    Nothing,
    End(Ended),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Channel<S> {
    /// The request, as standard input. The caller's deadline bounds it: with the output dropped nothing waits here for long.
    ///
    /// # Errors
    /// How the connection ended, `None` when the reader left.
    async fn send(&mut self, request: &Bytes) -> Result<(), Option<Ended>> {
        for piece in request.chunks(CLIENT_MESSAGE_BYTES - 1) {
            let mut message = Vec::with_capacity(piece.len() + 1);
            message.push(STDIN);
            message.extend_from_slice(piece);
            tokio::select! {
                sent = self.socket.send(Message::binary(message)) => sent.map_err(|_| Some(Ended::Broken))?,
                () = self.say.closed() => return Err(None),
            }
        }
        Ok(())
    }

    /// `None` when the reader left.
    ///
    /// Nothing is written while something is there to be read: a server ends its socket right behind the last byte, and what it is
    /// sent afterwards is answered by a reset, which takes along whatever was not read yet.
    async fn run(&mut self) -> Option<Ended> {
        let say = self.say.clone();
        let mut heard_at = Instant::now();
        let mut ping_at = heard_at + self.pace.ping;
        let mut waiting: Option<Bytes> = None;
        let mut close_by: Option<Instant> = None;
        loop {
            let is_full = waiting.is_some();
            tokio::select! {
                biased;
                () = say.closed() => return None,
                room = say.reserve(), if is_full => {
                    room.ok()?.send(waiting.take()?);
                    // a slow reader is no silence of the peer
                    heard_at = Instant::now();
                    ping_at = heard_at + self.pace.ping;
                }
                message = self.socket.next(), if !is_full => {
                    heard_at = Instant::now();
                    ping_at = heard_at + self.pace.ping;
                    match self.hear(message) {
                        Heard::Output(bytes) => waiting = Some(bytes),
                        Heard::Nothing => {}
                        Heard::End(end) => return Some(end),
                    }
                    if self.told.is_some() {
                        close_by.get_or_insert(heard_at + self.pace.close);
                    }
                }
                () = sleep_until(close_by.unwrap_or(heard_at)), if close_by.is_some() && !is_full => {
                    return Some(Ended::Closed(self.told));
                }
                () = sleep_until(ping_at), if !is_full => {
                    if heard_at.elapsed() > self.pace.silence {
                        return Some(Ended::Silent);
                    }
                    if let Err(end) = self.keep_alive().await {
                        return Some(end);
                    }
                    ping_at = Instant::now() + self.pace.ping;
                }
            }
        }
    }

    fn hear(
        &mut self,
        message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
    ) -> Heard {
        let bytes = match message {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Heard::Nothing,
            Some(Ok(Message::Close(_))) | None => return Heard::End(Ended::Closed(self.told)),
            // a socket that just ends says no more than CLOSE without a status
            Some(Err(_)) if self.told.is_some() => return Heard::End(Ended::Closed(self.told)),
            Some(Ok(Message::Text(_) | Message::Frame(_)) | Err(_)) => {
                return Heard::End(Ended::Broken);
            }
        };
        match bytes.first() {
            Some(&STDOUT) if bytes.len() > 1 => Heard::Output(bytes.slice(1..)),
            Some(&STATUS) if bytes.len() > 1 => {
                self.told.get_or_insert(Told::parse(&bytes[1..]));
                Heard::Nothing
            }
            // an empty one after the upgrade, standard error, and channels of releases to come
            _ => Heard::Nothing,
        }
    }

    /// Both are needed: PONG tells that somebody is there, the empty message is what runtimes count.
    async fn keep_alive(&mut self) -> Result<(), Ended> {
        let writes = async {
            self.socket.send(Message::Ping(Bytes::new())).await?;
            self.socket.send(Message::Binary(Bytes::new())).await
        };
        match timeout(WRITE_TIMEOUT, writes).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Ended::Broken),
            Err(_) => Err(Ended::Silent),
        }
    }

    /// Says CLOSE where that is still possible; the socket ends in any case, and with it the process's standard input.
    async fn leave(&mut self) {
        // whoever is gone does not hear it
        let _ = timeout(WRITE_TIMEOUT, self.socket.close(None)).await;
    }
}

#[cfg(test)]
mod tests;
