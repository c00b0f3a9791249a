//! The api's listeners: their bounds and their counts.

use std::time::Duration;

use axum::Router;
use bex_listener::{Meter, Options};
use bex_proto::limits;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::metrics::{ConnectionGuard, HttpMetrics};

/// Open requests of one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 100;
/// How old a connection grows before it is asked to end.
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
    let options = Options {
        name,
        connections: limits::API_CONNECTIONS,
        header_timeout: limits::API_HEADER_TIMEOUT,
        age: AGE,
        last_requests: LAST_REQUESTS,
        http2_streams: HTTP2_STREAMS,
    };
    let meter = ListenerMeter { name, metrics };
    let serving = bex_listener::serve(listener, options, meter, move |request, _| {
        let answer = router.clone().call(request);
        async move { answer.await.unwrap_or_else(|never| match never {}) }
    });
    cancel.cancelled().await;
    match serving.finish(drain).await {
        0 => Drained::Clean,
        _ => Drained::Cut,
    }
}

/// One listener's counts.
#[derive(Clone)]
struct ListenerMeter {
    name: &'static str,
    metrics: HttpMetrics,
}

impl Meter for ListenerMeter {
    type Connection = ConnectionGuard;

    fn connected(&self) -> ConnectionGuard {
        self.metrics.connection(self.name)
    }

    fn stalled(&self) {
        self.metrics.stalled(self.name);
    }
}
