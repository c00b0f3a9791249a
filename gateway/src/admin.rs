//! The admin listener: is the process alive, may it be sent work, what does it count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bex_proto::problem::{Code, Problem};
use bex_store::{Readiness, Unready};
use http::{HeaderValue, Method, Request, Response, header};

use crate::metrics::Metrics;
use crate::serve::{self, ResponseBody};

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
    readiness: Readiness,
    metrics: Arc<Metrics>,
    draining: Draining,
}

impl Admin {
    /// Asks `readiness`, shows `metrics`.
    pub fn new(readiness: Readiness, metrics: Arc<Metrics>, draining: Draining) -> Self {
        Self {
            readiness,
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
            "/readyz" => self.ready().await,
            "/metrics" => text(self.metrics.text(), METRICS_TYPE),
            _ => refusal(Code::NotFound),
        }
    }

    async fn ready(&self) -> Response<ResponseBody> {
        if self.draining.has_begun() {
            return refusal(Code::Draining);
        }
        match self.readiness.check().await {
            Ok(()) => text("ready\n".to_owned(), "text/plain"),
            Err(unready) => not_ready(&unready),
        }
    }
}

/// With the name of what is missing.
fn not_ready(unready: &Unready) -> Response<ResponseBody> {
    let problem = Problem::new(Code::Unavailable).detail(unready.to_string());
    serve::problem(Code::Unavailable, &problem)
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
