//! Spans: what was done for a session, how long it took, and which asked for which.
//!
//! A session is one trace ([`bex_proto::trace`]). A [`Span`] is begun where work begins and ended where its outcome is known; what runs
//! under [`Span::hold`] finds it as [`current`], so that a call made deep inside names it in its `traceparent`, and log lines carry
//! the trace's id. With the feature `otlp` and a collector's URL ended spans are sent there (`export`); else a span is
//! a few bytes, and ending it does nothing. Work that is cut off leaves no span.

#[cfg(feature = "otlp")]
mod export;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod span;

use std::fmt;

use http::Uri;
use http::uri::Scheme;

#[cfg(feature = "otlp")]
pub use export::SpanExporter;
pub use metrics::SpanMetrics;
pub use span::{Attribute, Span, asked_by, current};

/// Where spans are sent: a collector's `http://host:4318/v1/traces`. Encryption is its sidecar's or the cluster's matter.
#[derive(Clone, PartialEq, Eq)]
pub struct Collector(Uri);

impl Collector {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it; also that this program was built without the feature `otlp`.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        if cfg!(not(feature = "otlp")) {
            return Err("needs a program that was built with the feature otlp");
        }
        let uri: Uri = url.parse().map_err(|_| "must be a URL")?;
        let plain = uri.scheme() == Some(&Scheme::HTTP) && uri.host().is_some();
        if plain && !uri.path().trim_matches('/').is_empty() {
            Ok(Self(uri))
        } else {
            Err("must be a URL like http://collector:4318/v1/traces")
        }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a user and a password may stand before the host
        f.debug_tuple("Collector").field(&self.0.host()).finish()
    }
}

/// Sends nothing: this program was built without the feature `otlp`.
#[cfg(not(feature = "otlp"))]
#[derive(Debug)]
pub struct SpanExporter;

#[cfg(not(feature = "otlp"))]
impl SpanExporter {
    /// Does nothing; there is no [`Collector`] without the feature.
    pub fn start(_: Option<Collector>, _: &'static str, _: SpanMetrics) -> Self {
        Self
    }

    /// Does nothing.
    pub async fn finish(self) {}
}
