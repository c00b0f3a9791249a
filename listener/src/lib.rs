//! The accept loop under every listener: HTTP/1.1 and cleartext HTTP/2 on one port, bounded in connections and in time, and
//! ended gracefully.
//!
//! Bounds: with all its connections open it stops accepting, so that waiting clients stand in the kernel's queue; a connection must send its first
//! request soon, and is closed when it has no open request and next to nothing is taken over it any more; a write that makes no
//! progress for [`bex_proto::limits::WRITE_STALL`] ends its connection, and an HTTP/2 stream whose window stays shut ends by
//! itself; no connection grows older than [`Options::age`], open requests aside, for which it has [`Options::last_requests`]
//! more. On shutdown nothing new is accepted, open requests go on to their end, and what is left at the deadline is cut.
//! How long a request's body may take to come is bounded by whoever reads it. At a [`Port::Proved`] no byte of HTTP is read before
//! the client is proved, and none of the connections is taken; peers that are proving themselves are [`UNPROVED`] at most, and one more sends
//! the oldest of them away.

mod activity;
mod body;
mod connection;
mod event_stream;
mod proved;
mod socket;
mod streams;
mod unproved;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_tls::ServerTls;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use streams::Streams;
use unproved::Unproved;

/// What a body may fail with: it ends the connection (HTTP/1) or the stream (HTTP/2) abnormally, so that the reader knows that
/// it has not seen everything.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Pause after the system refused a connection for want of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Peers that are proving themselves at once; a handshake is done within milliseconds.
pub const UNPROVED: usize = 256;

/// One listener's name and bounds.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For logs.
    pub name: &'static str,
    /// Open connections.
    pub connections: usize,
    /// A request's head must arrive within this time, and a connection without requests is closed after it.
    pub header_timeout: Duration,
    /// How old a connection grows before it is asked to end: its clients connect again, and meet the newest replicas too.
    pub age: Duration,
    /// What its open requests have from then on: as long as the longest of them may take.
    pub last_requests: Duration,
    /// Requests that one HTTP/2 connection may have open.
    pub http2_streams: u32,
}

/// Counts what happens at a listener.
pub trait Meter: Clone + Send + Sync + 'static {
    /// An open connection, for as long as it lives.
    type Connection: Send;

    /// A connection was accepted.
    fn connected(&self) -> Self::Connection;

    /// A connection, or a stream of HTTP/2, was ended because nothing could be written for too long.
    fn stalled(&self);

    /// A client was proved (`ok`), or why not; only where clients are.
    fn handshake(&self, _result: &'static str) {}
}

/// A running accept loop.
pub struct Serving {
    name: &'static str,
    stop: CancellationToken,
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("name", &self.name)
            .field("tasks", &self.tasks.len())
            .finish()
    }
}

/// A bound port, and what is asked of who connects to it.
pub enum Port {
    /// Nothing.
    Plain(TcpListener),
    /// TLS, with a certificate that proves the client.
    Proved(TcpListener, Arc<ServerTls>),
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self::Plain(listener)
    }
}

/// Serves `port` with `handle` until stopped.
pub fn serve<M, H, F, B>(port: impl Into<Port>, options: Options, meter: M, handle: H) -> Serving
where
    M: Meter,
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError> + Send,
{
    let (listener, tls) = match port.into() {
        Port::Plain(listener) => (listener, None),
        Port::Proved(listener, tls) => (listener, Some(tls)),
    };
    let serving = Serving {
        name: options.name,
        stop: CancellationToken::new(),
        cut: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    let shared = Arc::new(Shared {
        options,
        permits: Arc::new(Semaphore::new(options.connections)),
        stop: serving.stop.clone(),
        cut: serving.cut.clone(),
        http1: connection::http1(&options),
        http2: connection::http2(&options, Streams::new(meter.clone())),
        meter,
        tls,
        unproved: Unproved::new(UNPROVED),
        handle,
    });
    let tasks = serving.tasks.clone();
    serving
        .tasks
        .spawn(async move { shared.accept(listener, tasks).await });
    serving
}

impl Serving {
    /// Stops accepting and asks every connection to end after its open requests. Returns at once.
    pub fn stop_accepting(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Waits for the open connections; those left after `deadline` are cut. Answers how many were.
    pub async fn finish(self, deadline: Duration) -> usize {
        self.stop_accepting();
        if tokio::time::timeout(deadline, self.tasks.wait())
            .await
            .is_ok()
        {
            return 0;
        }
        let late = self.tasks.len();
        warn!(
            listener = self.name,
            late, "connections were cut at the deadline"
        );
        self.cut.cancel();
        self.tasks.wait().await;
        late
    }
}

/// What all connections of a listener share.
struct Shared<M, H> {
    options: Options,
    /// One for each open connection.
    permits: Arc<Semaphore>,
    stop: CancellationToken,
    cut: CancellationToken,
    http1: http1::Builder,
    http2: http2::Builder<Streams<M>>,
    meter: M,
    tls: Option<Arc<ServerTls>>,
    unproved: Unproved,
    handle: H,
}

impl<M, H, F, B> Shared<M, H>
where
    M: Meter,
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError> + Send,
{
    async fn accept(self: Arc<Self>, listener: TcpListener, tasks: TaskTracker) {
        loop {
            let next = async {
                let permit = match &self.tls {
                    None => Some(self.permit().await),
                    Some(_) => None,
                };
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = self.stop.cancelled() => return,
                next = next => next,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let shared = Arc::clone(&self);
                    tasks.spawn(async move {
                        let _counted = shared.meter.connected();
                        shared.serve_connection(socket, peer).await;
                        drop(permit);
                    });
                }
                Err(error) if is_the_peers(&error) => {}
                Err(error) => {
                    warn!(listener = self.options.name, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl<M, H> Shared<M, H> {
    async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }
}

/// Errors that say something about one peer and nothing about this process.
fn is_the_peers(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests;
