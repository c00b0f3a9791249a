//! Sending ended spans to a collector: a bounded queue, batches, one attempt. Nobody ever waits for it.
//!
//! One exporter a process, as spans end everywhere, like log lines. It is our own because OpenTelemetry's (fifteen more packages) drops without a
//! count that could be scraped, and makes ids of its own where ours are derived.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::otlp::{Ended, request};
use crate::{Collector, SpanMetrics};

/// Spans that wait, about 1 MiB of them; what ends while it is full is dropped and counted.
pub const QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a batch waits for more.
const LINGER: Duration = Duration::from_secs(1);
/// Time for the collector's answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for what waits when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

static SINK: OnceLock<Sink> = OnceLock::new();

struct Sink {
    queue: Sender<Ended>,
    metrics: SpanMetrics,
}

/// Takes a span that is over; builds it only where it is sent.
pub(crate) fn ended(span: impl FnOnce() -> Ended) {
    if let Some(sink) = SINK.get() {
        sink.take(span);
    }
}

impl Sink {
    fn take(&self, span: impl FnOnce() -> Ended) {
        match self.queue.try_reserve() {
            Ok(place) => place.send(span()),
            Err(_) => {
                self.metrics.dropped.inc();
            }
        }
    }
}

/// The process's exporter.
#[derive(Debug)]
pub struct SpanExporter {
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl SpanExporter {
    /// Begins to send, where there is a collector. Called once a process, in a runtime.
    pub fn start(
        collector: Option<Collector>,
        service: &'static str,
        metrics: SpanMetrics,
    ) -> Self {
        let Some(Collector(url)) = collector else {
            return Self { running: None };
        };
        let (queue, spans) = mpsc::channel(QUEUE);
        let sink = Sink {
            queue,
            metrics: metrics.clone(),
        };
        if SINK.set(sink).is_err() {
            tracing::warn!("spans are sent already");
            return Self { running: None };
        }
        let stop = CancellationToken::new();
        let sending = Sending {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url,
            service,
            metrics,
            is_failing: false,
        };
        let task = tokio::spawn(sending.run(spans, stop.clone()));
        Self {
            running: Some((stop, task)),
        }
    }

    /// Sends what waits, for two seconds at most.
    pub async fn finish(self) {
        if let Some((stop, mut task)) = self.running {
            stop.cancel();
            if timeout(LAST_WORDS, &mut task).await.is_err() {
                tracing::info!("the last spans were not sent in time");
                task.abort();
            }
        }
    }
}

struct Sending {
    client: Client<HttpConnector, Full<Bytes>>,
    url: Uri,
    service: &'static str,
    metrics: SpanMetrics,
    /// Told once, not for every batch.
    is_failing: bool,
}

impl Sending {
    async fn run(mut self, mut spans: Receiver<Ended>, stop: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                _ = spans.recv_many(&mut batch, BATCH) => {}
                () = stop.cancelled() => {}
            }
            if batch.len() < BATCH {
                tokio::select! {
                    () = sleep(LINGER) => {}
                    () = stop.cancelled() => {}
                }
            }
            while batch.len() < BATCH
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                if stop.is_cancelled() {
                    return;
                }
                continue;
            }
            self.send(&batch).await;
        }
    }

    async fn send(&mut self, batch: &[Ended]) {
        let count = batch.len() as u64;
        let failure = match timeout(SEND_TIMEOUT, self.post(batch)).await {
            Ok(Ok(status)) if status.is_success() => {
                self.metrics.sent.inc_by(count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes spans again");
                }
                return;
            }
            Ok(Ok(status)) => format!("status {status}"),
            Ok(Err(error)) => bex_proto::Chain(&error).to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.metrics.failed.inc_by(count);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(error = failure, "the collector takes no spans");
        }
    }

    async fn post(
        &self,
        batch: &[Ended],
    ) -> Result<http::StatusCode, hyper_util::client::legacy::Error> {
        let body = Bytes::from(request(self.service, batch).to_string());
        let request = Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("a parsed URL and a fixed header make a request");
        self.client
            .request(request)
            .await
            .map(|answer| answer.status())
    }
}

#[cfg(test)]
mod tests {
    use bex_proto::SessionId;

    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_builds_nothing() {
        let (queue, mut spans) = mpsc::channel(2);
        let sink = Sink {
            queue,
            metrics: SpanMetrics::default(),
        };
        let context = bex_proto::trace::TraceContext::of_session(&SessionId::random());
        let mut built = 0;
        for _ in 0..5 {
            sink.take(|| {
                built += 1;
                let now = std::time::SystemTime::now();
                Ended {
                    name: "x",
                    context,
                    parent: None,
                    began: now,
                    ended: now,
                    attributes: vec![],
                }
            });
        }
        assert_eq!((built, sink.metrics.dropped.get()), (2, 3));
        assert!(spans.try_recv().is_ok());
    }
}
