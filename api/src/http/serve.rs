//! Our own accept loop: HTTP/1.1 and HTTP/2 without TLS on one port, and a drain that lets open requests finish before its
//! deadline.
//!
//! Bounds, so that nobody holds a connection for ever: a full house stops accepting; a first request must come soon; a
//! write without progress for [`limits::WRITE_STALL`] ends its connection, and so does a connection without open
//! requests over which next to nothing is taken any more, be it idle or one whose reader never opens its window; and no
//! connection grows older than [`AGE`], open requests aside, for which it has [`LAST_REQUESTS`] more. How long a head and a body may take
//! to come is bounded by hyper and by whoever reads the body.

mod activity;
mod body;
mod stall;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bex_proto::limits;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::metrics::HttpMetrics;
use activity::{Activity, Verdict};
use stall::Watched;

/// Pause after a failed accept, so that a process without free descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Open requests of one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 100;
/// All headers of one request: a token, an id and what browsers and proxies add.
const HEADER_BYTES: usize = 32 * 1024;
/// See [`HEADER_BYTES`].
const HEADERS: usize = 100;
/// What one HTTP/2 stream buffers towards a slow reader.
const HTTP2_SEND_BUFFER: usize = 256 * 1024;
/// How old a connection grows before it is asked to end. Clients connect again, and meet the newest replicas too.
const AGE: Duration = Duration::from_secs(10 * 60);
/// What its open requests have from then on: the longest is a user's command.
const LAST_REQUESTS: Duration = limits::EXEC_RUN_TIMEOUT.saturating_add(Duration::from_secs(60));

/// How the drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every connection was done.
    Clean,
    /// The deadline cut some.
    Cut,
}

/// Serves until `cancel`, then stops accepting and waits for open requests, `drain` at most. `name` is the listener's, for
/// metrics.
pub async fn serve(
    listener: TcpListener,
    name: &'static str,
    router: Router,
    metrics: HttpMetrics,
    cancel: CancellationToken,
    drain: Duration,
) -> Drained {
    let house = Arc::new(House {
        name,
        router,
        metrics,
        stop: cancel.clone(),
        cut: CancellationToken::new(),
    });
    let seats = Arc::new(Semaphore::new(limits::API_CONNECTIONS));
    let guests = TaskTracker::new();
    while let Some((stream, seat)) = accept(&listener, &seats, &cancel).await {
        let house = Arc::clone(&house);
        guests.spawn(async move {
            let _counted = house.metrics.connection(house.name);
            house.converse(stream).await;
            drop(seat);
        });
    }
    drop(listener);
    guests.close();
    match timeout(drain, guests.wait()).await {
        Ok(()) => Drained::Clean,
        Err(_) => {
            house.cut.cancel();
            guests.wait().await;
            Drained::Cut
        }
    }
}

/// The next connection, once there is room for it. `None`: cancelled.
async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    cancel: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let next = async {
        let room = Arc::clone(seats).acquire_owned().await;
        let seat = room.expect("the semaphore is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, seat),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    cancel.run_until_cancelled(next).await
}

/// What all connections of a listener share.
struct House {
    name: &'static str,
    router: Router,
    metrics: HttpMetrics,
    stop: CancellationToken,
    cut: CancellationToken,
}

/// How far a connection was asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Ending,
}

impl House {
    async fn converse(&self, stream: TcpStream) {
        // answers are small and should not wait for company
        let _ = stream.set_nodelay(true);
        let activity = Arc::new(Activity::default());
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
        let service = service_fn(|request: http::Request<Incoming>| {
            let open = Activity::begin(&activity);
            let answer = self.router.clone().call(request);
            async move { Ok::<_, Infallible>(answer.await?.map(|b| body::Counted::new(b, open))) }
        });
        let builder = builder();
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let mut ticks = tokio::time::interval(limits::API_HEADER_TIMEOUT);
        ticks.reset();
        let mut age = std::pin::pin!(sleep_until(Instant::now() + AGE));
        let mut stage = Stage::Open;
        loop {
            let asked_to_end = tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        self.note_end(&*error);
                    }
                    return;
                }
                () = self.cut.cancelled() => return,
                () = age.as_mut() => {
                    if stage == Stage::Ending {
                        return;
                    }
                    true
                }
                () = self.stop.cancelled(), if stage == Stage::Open => true,
                _ = ticks.tick() => match activity.tick() {
                    Verdict::Busy => false,
                    Verdict::NeverSpoke => return,
                    Verdict::Idle if stage == Stage::Ending => return,
                    Verdict::Idle => true,
                },
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

    fn note_end(&self, error: &(dyn std::error::Error + 'static)) {
        if stall::caused(error) {
            self.metrics.stalled(self.name);
        }
        // a client that goes away is no fault of ours
        tracing::debug!(error, "a connection broke");
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::API_HEADER_TIMEOUT)
        .max_headers(HEADERS)
        .max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits::API_HEADER_TIMEOUT)
        .keep_alive_timeout(limits::API_HEADER_TIMEOUT)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(u32::try_from(HEADER_BYTES).expect("some kibibytes"))
        .max_send_buf_size(HTTP2_SEND_BUFFER);
    builder
}

#[cfg(test)]
mod tests;
