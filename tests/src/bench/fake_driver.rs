//! A driver's wire without a driver: proves itself, and streams what the bench prepared, from memory.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bex_proto::driver::{DriverKey, GRANT_HEADER, PROOF_HEADER};
use bex_proto::ticket::DriverGrant;
use bex_proto::{PartId, SessionId, sse};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use super::database::GENERATION;

/// What `/stream` (and `/raw`, without proof) answers.
#[derive(Clone)]
pub enum Script {
    /// All of it, as fast as the socket takes it.
    Burst(Bytes),
    /// The parts one by one, as the shared clock makes them; every connection sees the same moment.
    Paced(Arc<Paced>),
}

/// Parts that appear one after the other.
pub struct Paced {
    /// Framed parts.
    pub events: Vec<Bytes>,
    /// How many of them were spoken so far.
    pub shown: watch::Sender<usize>,
    /// How many connections asked for the stream so far.
    pub readers: AtomicUsize,
}

impl Paced {
    /// Nothing of these is spoken yet.
    pub fn new(parts: &[bex_proto::transcript::Part]) -> Arc<Self> {
        Arc::new(Self {
            events: framed(parts),
            shown: watch::Sender::new(0),
            readers: AtomicUsize::new(0),
        })
    }

    /// Shows one part a millisecond once `go` was notified.
    pub async fn play(&self, go: &Notify) {
        go.notified().await;
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        for n in 1..=self.events.len() {
            tick.tick().await;
            let _ = self.shown.send(n);
        }
    }
}

/// Parts framed as a driver frames them.
pub fn framed(parts: &[bex_proto::transcript::Part]) -> Vec<Bytes> {
    let frame = |id: PartId, bytes: &[u8]| {
        let mut out = BytesMut::new();
        sse::write_event(&mut out, Some(id), bytes);
        out.freeze()
    };
    parts.iter().map(|p| frame(p.id, &p.bytes)).collect()
}

/// Listens on a free port; the returned task lives as long as the bench.
///
/// # Errors
/// When there is no port.
pub async fn start(
    session: SessionId,
    key: DriverKey,
    script: Script,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let _ = socket.set_nodelay(true);
            let (session, key, script) = (session.clone(), key.clone(), script.clone());
            let service = hyper::service::service_fn(move |request| {
                let answer = answer(&session, &key, &script, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service),
            );
        }
    });
    Ok(address)
}

fn answer(
    session: &SessionId,
    key: &DriverKey,
    script: &Script,
    request: &Request<Incoming>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let body = match request.uri().path() {
        "/stream" | "/raw" => stream_of(script),
        _ => Full::new(Bytes::from_static(b"{}")).boxed(),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        http::HeaderValue::from_static("text/event-stream"),
    );
    let grant = request
        .headers()
        .get(GRANT_HEADER)
        .and_then(|g| g.to_str().ok());
    let grant =
        grant.and_then(|g| DriverGrant::verify(g, key, jiff::Timestamp::now().as_second()).ok());
    if let Some(proof) = grant.and_then(|g| key.proof(&g.jti, session, GENERATION).parse().ok()) {
        headers.insert(PROOF_HEADER, proof);
    }
    response
}

fn stream_of(script: &Script) -> BoxBody<Bytes, Infallible> {
    const PIECE: usize = 64 * 1024;
    match script {
        Script::Burst(bytes) => {
            let pieces = (0..bytes.len())
                .step_by(PIECE)
                .map(|at| bytes.slice(at..bytes.len().min(at + PIECE)))
                .collect::<Vec<_>>();
            let done = Bytes::from_static(b"data: [DONE]\n\n");
            BodyExt::boxed(StreamBody::new(
                stream::iter(pieces.into_iter().chain([done])).map(|b| Ok(Frame::data(b))),
            ))
        }
        Script::Paced(paced) => {
            paced.readers.fetch_add(1, Ordering::Relaxed);
            let (paced, shown) = (paced.clone(), paced.shown.subscribe());
            let events = stream::unfold((paced, shown, 0), |(paced, mut shown, at)| async move {
                let event = match paced.events.get(at) {
                    Some(event) => {
                        shown.wait_for(|n| *n > at).await.ok()?;
                        event.clone()
                    }
                    None if at == paced.events.len() => Bytes::from_static(b"data: [DONE]\n\n"),
                    None => return None,
                };
                Some((event, (paced, shown, at + 1)))
            });
            BodyExt::boxed(StreamBody::new(events.map(|b| Ok(Frame::data(b)))))
        }
    }
}
