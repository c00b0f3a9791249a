//! The gateway's listeners: their bounds, their counts, and the bodies of their answers.

mod body;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bex_listener::{Meter, Options};
use bex_proto::limits;
use http::{Request, Response};
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;

use crate::metrics::{Counted, ListenerLabel, ServeMetrics};
pub use bex_listener::{BodyError, Serving};
pub use body::{ResponseBody, empty, full, problem};

/// A request head must arrive within this time, and a connection without requests is closed after it.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests one HTTP/2 connection may have open: an edge proxy carries many viewers on one.
pub const H2_STREAMS: u32 = 1000;
/// How old a connection grows before it is asked to end.
const AGE: Duration = limits::STREAM_CEILING;
/// What its open requests have from then on: the longest is a stream that has just begun.
const LAST_REQUESTS: Duration = limits::STREAM_CEILING.saturating_add(Duration::from_secs(60));

/// One listener's name and bounds.
#[derive(Debug, Clone, Copy)]
pub struct ServeOptions {
    /// For logs and metrics.
    pub name: &'static str,
    /// Open connections.
    pub connections: usize,
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
    let label = ListenerLabel {
        listener: options.name,
    };
    let meter = ListenerMeter {
        connections: metrics.connections.get_or_create_owned(&label),
        stalls: metrics.write_stalls.get_or_create_owned(&label),
    };
    let options = Options {
        name: options.name,
        connections: options.connections,
        header_timeout: HEADER_READ_TIMEOUT,
        age: AGE,
        last_requests: LAST_REQUESTS,
        http2_streams: H2_STREAMS,
    };
    bex_listener::serve(listener, options, meter, handle)
}

/// One listener's counts.
#[derive(Clone)]
struct ListenerMeter {
    connections: Gauge,
    stalls: Counter,
}

impl Meter for ListenerMeter {
    type Connection = Counted;

    fn connected(&self) -> Counted {
        Counted::new(self.connections.clone())
    }

    fn stalled(&self) {
        self.stalls.inc();
    }
}
