//! The fake driver's HTTP side.

use std::convert::Infallible;
use std::sync::Arc;

use bex_proto::driver::{GRANT_HEADER, PROOF_HEADER, TurnRequest};
use bex_proto::ticket::DriverGrant;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::TcpListener;

use super::Driver;
use super::script::{Fault, Script};

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn accept(listener: TcpListener, driver: Driver) -> anyhow::Result<()> {
    let driver = Arc::new(driver);
    loop {
        let (socket, _) = listener.accept().await?;
        let driver = Arc::clone(&driver);
        let service = service_fn(move |request| {
            let driver = Arc::clone(&driver);
            async move { Ok::<_, Infallible>(driver.answer(request).await) }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service),
        );
    }
}

impl Driver {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() == "/healthz" {
            return plain(StatusCode::OK);
        }
        let grant = request
            .headers()
            .get(GRANT_HEADER)
            .and_then(|v| v.to_str().ok());
        let now = Timestamp::now().as_second();
        let Some(grant) = grant.and_then(|g| DriverGrant::verify(g, &self.key, now).ok()) else {
            return plain(StatusCode::UNAUTHORIZED);
        };
        let mut response = match (request.method(), request.uri().path()) {
            (&Method::GET, "/hello") => plain(StatusCode::OK),
            (&Method::GET, "/stream") => {
                self.stream(request.uri().query().unwrap_or_default()).await
            }
            (&Method::POST, "/turn") => self.turn(request).await,
            (&Method::POST, "/stop") => plain(StatusCode::ACCEPTED),
            _ => plain(StatusCode::NOT_FOUND),
        };
        let proof = self
            .key
            .proof(&grant.jti, &self.launch.session, self.launch.generation);
        let proof = HeaderValue::from_str(&proof).expect("hexadecimal is a header value");
        response.headers_mut().insert(PROOF_HEADER, proof);
        response
    }

    async fn turn(&self, request: Request<Incoming>) -> Response<Body> {
        let Ok(body) = request.into_body().collect().await else {
            return plain(StatusCode::BAD_REQUEST);
        };
        let turn: Result<TurnRequest, _> = serde_json::from_slice(&body.to_bytes());
        match turn.map(|turn| self.speak(&turn)) {
            Ok(Ok(())) => plain(StatusCode::ACCEPTED),
            _ => plain(StatusCode::BAD_REQUEST),
        }
    }

    /// Waits for the turn, then says it all at once.
    async fn stream(&self, query: &str) -> Response<Body> {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut found = pairs.filter(|(key, _)| *key == name);
            found
                .next()
                .and_then(|(_, value)| value.parse::<u32>().ok())
        };
        let (turn, from) = (value("turn").unwrap_or(1), value("from").unwrap_or(0));
        let mut begun = self.script.subscribe();
        let spoken = begun
            .wait_for(|s| s.as_ref().is_some_and(|(t, _)| *t == turn))
            .await;
        let Some((_, script)) = spoken.ok().and_then(|s| s.clone()) else {
            return plain(StatusCode::NOT_FOUND);
        };
        if script.fault == Fault::Redirect {
            let mut response = plain(StatusCode::FOUND);
            let elsewhere = HeaderValue::from_static("http://127.0.0.1:1/stream");
            response.headers_mut().insert(header::LOCATION, elsewhere);
            return response;
        }
        let mut response = Response::new(body_of(&script, turn, from));
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

fn body_of(script: &Script, turn: u32, from: u32) -> Body {
    let events = stream::iter(script.events(turn, from)).map(|event| Ok(Frame::data(event)));
    if script.fault == Fault::NeverEnds {
        StreamBody::new(events.chain(stream::pending())).boxed_unsync()
    } else {
        StreamBody::new(events).boxed_unsync()
    }
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}
