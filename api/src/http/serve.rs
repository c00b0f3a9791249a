//! Our own accept loop: HTTP/1.1 and HTTP/2 without TLS, bounded connections, a limit on slow heads, and a drain that lets
//! open requests finish before its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use bex_proto::limits;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

use crate::metrics::Metrics;

/// Pause after a failed accept, so that a process without free descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Open requests of one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 100;

/// How the drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every connection was done.
    Clean,
    /// The deadline cut some.
    Cut,
}

/// Serves until `cancel`, then stops accepting and waits for open requests, `drain` at most.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
    drain: Duration,
) -> Drained {
    let builder = builder();
    let graceful = GracefulShutdown::new();
    let connections = Arc::new(Semaphore::new(limits::API_CONNECTIONS));
    while let Some((stream, permit)) = accept(&listener, &connections, &cancel).await {
        let asked = Arc::new(AtomicBool::new(false));
        let service = MapRequest::new(router.clone(), noting(Arc::clone(&asked)));
        let service = TowerToHyperService::new(service);
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        let guard = metrics.connection();
        tokio::spawn(async move {
            tokio::select! {
                // a client that goes away is no fault of ours
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(error, "a connection broke");
                },
                () = silent(&asked) => {}
            }
            drop((permit, guard));
        });
    }
    drop(listener);
    match tokio::time::timeout(drain, graceful.shutdown()).await {
        Ok(()) => Drained::Clean,
        Err(_) => Drained::Cut,
    }
}

type Request = http::Request<hyper::body::Incoming>;

fn noting(asked: Arc<AtomicBool>) -> impl Fn(Request) -> Request + Clone {
    move |request| {
        asked.store(true, Ordering::Relaxed);
        request
    }
}

/// Ends when a connection did not bring its first request in time. The servers' own limits begin only when the protocol
/// is known, so a client that sends nothing, or a part of HTTP/2's preface, would otherwise stay for ever.
async fn silent(asked: &AtomicBool) {
    tokio::time::sleep(limits::API_HEADER_TIMEOUT).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

type Permit = tokio::sync::OwnedSemaphorePermit;

/// The next connection, once there is room for it. `None`: cancelled.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
    cancel: &CancellationToken,
) -> Option<(TcpStream, Permit)> {
    let next = async {
        let room = Arc::clone(connections).acquire_owned().await;
        let permit = room.expect("the semaphore is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, permit),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    let (stream, permit) = cancel.run_until_cancelled(next).await?;
    // answers are small and should not wait for company
    let _ = stream.set_nodelay(true);
    Some((stream, permit))
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::API_HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits::API_HEADER_TIMEOUT)
        .max_concurrent_streams(HTTP2_STREAMS);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    struct Server {
        address: std::net::SocketAddr,
        cancel: CancellationToken,
        task: tokio::task::JoinHandle<Drained>,
    }

    async fn start(router: Router, drain: Duration) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let cancel = CancellationToken::new();
        let metrics = Arc::new(Metrics::default());
        let task = tokio::spawn(serve(listener, router, metrics, cancel.clone(), drain));
        Server {
            address,
            cancel,
            task,
        }
    }

    async fn ask(server: &Server) -> TcpStream {
        let mut stream = TcpStream::connect(server.address)
            .await
            .expect("it listens");
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .expect("sent");
        stream
    }

    #[tokio::test]
    async fn a_drain_lets_an_open_request_finish() {
        let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (e, l) = (Arc::clone(&entered), Arc::clone(&leave));
        let handler = || async move {
            e.notify_one();
            l.notified().await;
            "done"
        };
        let server = start(
            Router::new().route("/", get(handler)),
            Duration::from_secs(30),
        )
        .await;
        let mut stream = ask(&server).await;
        entered.notified().await;
        server.cancel.cancel();
        leave.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.ends_with("done"), "{answer}");
        assert_eq!(server.task.await.expect("no panic"), Drained::Clean);
    }

    #[tokio::test]
    async fn a_drain_has_a_deadline() {
        let entered = Arc::new(Notify::new());
        let e = Arc::clone(&entered);
        let handler = || async move {
            e.notify_one();
            std::future::pending::<()>().await;
        };
        let server = start(
            Router::new().route("/", get(handler)),
            Duration::from_millis(20),
        )
        .await;
        let _stream = ask(&server).await;
        entered.notified().await;
        server.cancel.cancel();
        assert_eq!(server.task.await.expect("no panic"), Drained::Cut);
        assert!(
            TcpStream::connect(server.address).await.is_err(),
            "it accepts nothing more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asks_nothing_is_closed() {
        let server = start(Router::new(), Duration::ZERO).await;
        for said in [&b""[..], b"P", b"PRI * HTTP/2.0", b"GET / HTTP/1.1\r\n"] {
            let mut stream = TcpStream::connect(server.address)
                .await
                .expect("it listens");
            stream.write_all(said).await.expect("sent");
            let closed = async { while stream.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} };
            let patience = limits::API_HEADER_TIMEOUT * 2;
            tokio::time::timeout(patience, closed)
                .await
                .expect("it is closed in time");
        }
    }
}
