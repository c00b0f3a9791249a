//! The accept loop under every listener: HTTP/1.1 and cleartext HTTP/2 on one port, bounded in connections and in time, and
//! ended gracefully.
//!
//! Bounds: a full house stops accepting, so that waiting clients stand in the kernel's queue; a connection must send its first
//! request soon, and may not idle without one; a write that makes no progress for [`limits::WRITE_STALL`] ends its connection,
//! and an HTTP/2 stream whose window stays shut ends by itself (`streams`); a connection is asked to end at [`AGE`] and has
//! [`LAST_REQUESTS`] from then on.
//! On shutdown nothing new is accepted, open requests go on to their end, and what is left at the deadline is cut.

mod activity;
mod body;
mod stall;
mod streams;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::{Chain, limits};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::metrics::{Counted, ListenerLabel, ServeMetrics};
use activity::{Activity, IdleVerdict};
pub use body::{BodyError, ResponseBody, empty, full, problem};
use stall::StallGuard;
use streams::Streams;

/// A request head must arrive within this time, and a connection without requests is closed after it.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(20);
/// All headers of one request: a ticket, a cursor and what browsers and proxies add.
pub const REQUEST_HEADER_BYTES: usize = 32 * 1024;
/// See [`REQUEST_HEADER_BYTES`].
pub const REQUEST_HEADERS: usize = 100;
/// Requests one HTTP/2 connection may have open: an edge proxy carries many viewers on one.
pub const H2_STREAMS: u32 = 1000;
/// What one HTTP/2 stream buffers towards a slow reader.
pub const H2_SEND_BUFFER: usize = 256 * 1024;
/// How old a connection grows before it is asked to end: its clients connect again, and meet the newest replicas too.
const AGE: Duration = limits::STREAM_CEILING;
/// What its open requests have from then on: the longest is a stream that has just begun.
const LAST_REQUESTS: Duration = limits::STREAM_CEILING.saturating_add(Duration::from_secs(60));
/// Idle ticks that a connection without requests has to end by itself, once asked: a reader that is slow, but moves, needs some.
const LAST_TICKS: u32 = 3;
/// Pause after the system refused a connection for want of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One listener's name and bounds.
#[derive(Debug, Clone, Copy)]
pub struct ServeOptions {
    /// For logs and metrics.
    pub name: &'static str,
    /// Open connections.
    pub connections: usize,
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

/// Serves `listener` with `handle` until stopped.
pub fn serve<H, F>(
    listener: TcpListener,
    options: ServeOptions,
    metrics: ServeMetrics,
    handle: H,
) -> Serving
where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let serving = Serving {
        name: options.name,
        stop: CancellationToken::new(),
        cut: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    let label = ListenerLabel {
        listener: options.name,
    };
    let stalls = metrics.write_stalls.get_or_create_owned(&label);
    let house = Arc::new(House {
        name: options.name,
        seats: Arc::new(Semaphore::new(options.connections)),
        stop: serving.stop.clone(),
        cut: serving.cut.clone(),
        protocols: protocols(Streams { stalls }),
        metrics,
        handle,
    });
    let tasks = serving.tasks.clone();
    serving
        .tasks
        .spawn(async move { house.accept(listener, tasks).await });
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
struct House<H> {
    name: &'static str,
    seats: Arc<Semaphore>,
    stop: CancellationToken,
    cut: CancellationToken,
    metrics: ServeMetrics,
    protocols: auto::Builder<Streams>,
    handle: H,
}

/// How far a connection was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Ending,
}

impl<H, F> House<H>
where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    async fn accept(self: Arc<Self>, listener: TcpListener, tasks: TaskTracker) {
        loop {
            let next = async {
                let seat = Arc::clone(&self.seats)
                    .acquire_owned()
                    .await
                    .expect("the semaphore is never closed");
                (seat, listener.accept().await)
            };
            let (seat, accepted) = tokio::select! {
                () = self.stop.cancelled() => return,
                next = next => next,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let house = Arc::clone(&self);
                    tasks.spawn(async move {
                        house.connection(socket, peer).await;
                        drop(seat);
                    });
                }
                Err(error) if is_the_peers(&error) => {}
                Err(error) => {
                    warn!(listener = self.name, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        let label = ListenerLabel {
            listener: self.name,
        };
        let _open = Counted::new(self.metrics.connections.get_or_create_owned(&label));
        self.converse(socket, peer).await;
    }

    async fn converse(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        // small events must not wait for a full segment
        if socket.set_nodelay(true).is_err() {
            return;
        }
        let activity = Arc::new(Activity::default());
        let service = service_fn({
            let (house, activity) = (Arc::clone(self), Arc::clone(&activity));
            move |request: Request<Incoming>| {
                let open = Activity::begin(&activity);
                let answer = (house.handle)(request, peer);
                // boxed: an HTTP/1 connection keeps room for its service's future as long as it lives
                Box::pin(async move {
                    Ok::<_, Infallible>(answer.await.map(|b| body::counted(b, open)))
                })
            }
        });
        let io = TokioIo::new(StallGuard::new(socket, limits::WRITE_STALL));
        let mut connection = std::pin::pin!(self.protocols.serve_connection(io, service));
        let mut idle = tokio::time::interval(HEADER_READ_TIMEOUT);
        idle.reset();
        let mut age = std::pin::pin!(sleep_until(Instant::now() + AGE));
        let mut stage = Stage::Open;
        let mut idle_ticks = 0;
        loop {
            let asked_to_end = tokio::select! {
                done = connection.as_mut() => {
                    if let Err(error) = done {
                        self.note_end(peer, &*error);
                    }
                    return;
                }
                () = self.cut.cancelled() => return,
                () = age.as_mut() => match stage {
                    Stage::Open => true,
                    Stage::Ending => return,
                },
                () = self.stop.cancelled(), if stage == Stage::Open => true,
                _ = idle.tick() => match activity.tick() {
                    IdleVerdict::Busy => {
                        idle_ticks = 0;
                        false
                    }
                    IdleVerdict::NeverSpoke => return,
                    IdleVerdict::Idle if idle_ticks == LAST_TICKS => return,
                    IdleVerdict::Idle => {
                        idle_ticks += 1;
                        stage == Stage::Open
                    }
                }
            };
            if asked_to_end {
                // a connection that has not yet said which protocol it speaks knows no graceful end
                if activity.is_unused() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                stage = Stage::Ending;
                age.as_mut().reset(Instant::now() + LAST_REQUESTS);
            }
        }
    }

    fn note_end(&self, peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
        if stall::caused(error) {
            let label = ListenerLabel {
                listener: self.name,
            };
            self.metrics.write_stalls.get_or_create(&label).inc();
        }
        // peers leave in every way; that is no trouble of ours
        debug!(listener = self.name, %peer, error = %Chain(error), "connection ended");
    }
}

/// HTTP/1.1 and HTTP/2, each within its bounds.
fn protocols(streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_headers(REQUEST_HEADERS)
        .max_buf_size(REQUEST_HEADER_BYTES)
        // a client that closes its sending side has left: its stream must not be kept
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .max_header_list_size(REQUEST_HEADER_BYTES as u32)
        .max_send_buf_size(H2_SEND_BUFFER)
        .keep_alive_interval(HEADER_READ_TIMEOUT)
        .keep_alive_timeout(HEADER_READ_TIMEOUT);
    builder
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
