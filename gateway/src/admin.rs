//! The admin listener: is the process alive, may it be sent work, what does it count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::problem::{Code, Problem};
use bex_store::check_schema;
use bex_store::pool::Db;
use http::{HeaderValue, Method, Request, Response, header};
use tracing::warn;

use crate::metrics::Metrics;
use crate::serve::{self, ResponseBody};

/// Time for the database's answer to a probe: below the usual probe's own second or two of patience.
pub const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Content type of the metrics text.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the process takes work; set once, when it begins to shut down.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// From here on `/readyz` says no.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The admin listener.
#[derive(Debug)]
pub struct Admin {
    db: Db,
    metrics: Arc<Metrics>,
    draining: Draining,
}

impl Admin {
    /// Probes `db`, shows `metrics`.
    pub fn new(db: Db, metrics: Arc<Metrics>, draining: Draining) -> Self {
        Self {
            db,
            metrics,
            draining,
        }
    }

    /// Answers one request; its body is ignored.
    pub async fn handle<B>(self: Arc<Self>, request: Request<B>) -> Response<ResponseBody> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return refusal(Code::MethodNotAllowed);
        }
        match request.uri().path() {
            "/healthz" => text("ok\n".to_owned(), "text/plain"),
            "/readyz" => match self.readiness().await {
                Ok(()) => text("ready\n".to_owned(), "text/plain"),
                Err(code) => refusal(code),
            },
            "/metrics" => text(self.metrics.text(), METRICS_TYPE),
            _ => refusal(Code::NotFound),
        }
    }

    /// The database answers and has the schema this release needs.
    async fn readiness(&self) -> Result<(), Code> {
        if self.draining.has_begun() {
            return Err(Code::Draining);
        }
        match tokio::time::timeout(READY_TIMEOUT, check_schema(&self.db)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                warn!(error = %Chain(&error), "not ready");
                Err(Code::Unavailable)
            }
            Err(_) => {
                warn!("not ready: the database does not answer in time");
                Err(Code::Unavailable)
            }
        }
    }
}

fn text(text: String, content_type: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(serve::full(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn refusal(code: Code) -> Response<ResponseBody> {
    serve::problem(code, &Problem::new(code))
}
