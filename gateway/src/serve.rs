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
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Counted, ListenerLabel, ResultLabel, ServeMetrics};
pub use bex_listener::{BodyError, Port, Serving};
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

/// Serves `port` with `handle` until stopped.
pub fn serve<H, F>(
    port: impl Into<Port>,
    options: ServeOptions,
    metrics: ServeMetrics,
    handle: H,
) -> Serving
where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let meter = ListenerMeter::new(options, &metrics);
    bex_listener::serve(port, options.bounds(), meter, handle)
}

impl ServeOptions {
    fn bounds(self) -> Options {
        Options {
            name: self.name,
            connections: self.connections,
            header_timeout: HEADER_READ_TIMEOUT,
            age: AGE,
            last_requests: LAST_REQUESTS,
            http2_streams: H2_STREAMS,
        }
    }
}

/// One listener's counts.
#[derive(Clone)]
struct ListenerMeter {
    connections: Gauge,
    stalls: Counter,
    handshakes: Family<ResultLabel, Counter>,
}

impl ListenerMeter {
    fn new(options: ServeOptions, metrics: &ServeMetrics) -> Self {
        let label = ListenerLabel {
            listener: options.name,
        };
        Self {
            connections: metrics.connections.get_or_create_owned(&label),
            stalls: metrics.write_stalls.get_or_create_owned(&label),
            handshakes: metrics.handshakes.clone(),
        }
    }
}

impl Meter for ListenerMeter {
    type Connection = Counted;

    fn connected(&self) -> Counted {
        Counted::new(self.connections.clone())
    }

    fn stalled(&self) {
        self.stalls.inc();
    }

    fn handshake(&self, result: &'static str) {
        self.handshakes.get_or_create(&ResultLabel { result }).inc();
    }
}
