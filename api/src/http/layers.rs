//! What is around every handler, outermost first.

use std::any::Any;
use std::time::Instant;

use axum::error_handling::HandleErrorLayer;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use bex_proto::limits;
use bex_proto::problem::Code;
use http::{HeaderName, HeaderValue, Method, header};
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::TraceLayer;
use tracing::{Span, info_span};

use super::ApiError;
use crate::metrics::{HttpMetrics, RequestLabels};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A caller's own request id up to this length is kept.
const REQUEST_ID_BYTES: usize = 64;

pub(super) fn around(router: Router, metrics: HttpMetrics) -> Router {
    let layers = ServiceBuilder::new()
        // everything below is logged with the id, and even a panic's answer carries it
        .map_request(drop_odd_request_id)
        .layer(SetRequestIdLayer::new(REQUEST_ID, RandomIds))
        .layer(SetSensitiveRequestHeadersLayer::new([
            header::AUTHORIZATION,
        ]))
        // only the span: failures are logged where they are handled, answers by `measure`
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_request(())
                .on_response(())
                .on_failure(()),
        )
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(axum::middleware::from_fn_with_state(metrics, measure))
        .layer(CatchPanicLayer::custom(panicked))
        // sheds instead of queueing; the limit is one for all routes and counts until the answer's head
        .layer(HandleErrorLayer::new(refused))
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(limits::API_IN_FLIGHT))
        .layer(TimeoutLayer::new(limits::API_TIMEOUT));
    router.layer(layers)
}

#[derive(Clone)]
struct RandomIds;

impl MakeRequestId for RandomIds {
    fn make_request_id<B>(&mut self, _: &http::Request<B>) -> Option<RequestId> {
        let id = bex_proto::ids::random_id("req");
        HeaderValue::from_str(&id).ok().map(RequestId::new)
    }
}

fn drop_odd_request_id(mut request: Request) -> Request {
    let odd = request.headers().get(REQUEST_ID).is_some_and(|id| {
        id.len() > REQUEST_ID_BYTES || !id.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    if odd {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

/// Ids only: no header, no query.
fn span(request: &Request) -> Span {
    let id = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default();
    let known = request.extensions().get::<MatchedPath>().is_some();
    let path = if known && !holds_more_than_ids(request.uri().path()) {
        request.uri().path()
    } else {
        "none"
    };
    info_span!("request", request_id = id, method = %request.method(), path)
}

/// Whether a path has a segment that is longer than any id: somebody's token, put there by mistake, is not for the log.
fn holds_more_than_ids(path: &str) -> bool {
    path.split('/')
        .any(|segment| segment.len() > LONGEST_SEGMENT)
}

/// Bytes of a path segment that may be logged; ids and words of routes are shorter.
const LONGEST_SEGMENT: usize = 40;

async fn measure(State(metrics): State<HttpMetrics>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = known(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", |path| path.as_str())
        .to_owned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let took = started.elapsed();
    tracing::info!(
        route,
        status,
        millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    if let Some(code) = response.extensions().get::<Code>() {
        metrics.refused(*code);
    }
    metrics.answered(
        RequestLabels {
            method,
            route,
            status,
        },
        took,
    );
    response
}

/// A label must not grow with what callers invent.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "post",
        Method::DELETE => "delete",
        Method::HEAD => "head",
        _ => "other",
    }
}

async fn refused(error: BoxError) -> ApiError {
    if error.is::<tower::load_shed::error::Overloaded>() {
        ApiError::from(Code::Overloaded).retry_after(1)
    } else {
        tracing::warn!("a request took too long");
        ApiError::from(Code::Unavailable).retry_after(1)
    }
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    tracing::error!(said, "a handler panicked");
    ApiError::from(Code::Internal).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_panic_is_a_problem_with_its_request_id_and_is_counted() {
        async fn broken() {
            panic!("broken")
        }
        let metrics = Metrics::default();
        let router = around(Router::new().route("/x", get(broken)), metrics.http.clone());
        let request = http::Request::get("/x")
            .body(Body::empty())
            .expect("a request");
        let response = router.oneshot(request).await.expect("it answers");
        assert_eq!(response.status(), 500);
        assert!(response.headers().contains_key(REQUEST_ID));
        let body = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("a problem");
        assert_eq!(problem["code"], "internal");
        assert!(!String::from_utf8_lossy(&body).contains("broken"));
        let text = metrics.text();
        assert!(text.contains(r#"route="/x",status="500"} 1"#), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_house_sheds_and_a_slow_handler_is_cut() {
        let router = Router::new().route("/x", get(std::future::pending::<()>));
        let router = around(router, Metrics::default().http);
        let call = || {
            let request = http::Request::get("/x")
                .body(Body::empty())
                .expect("a request");
            tokio::spawn(router.clone().oneshot(request))
        };
        let mut calls: Vec<_> = (0..limits::API_IN_FLIGHT).map(|_| call()).collect();
        // the runtime polls tasks in the order they were spawned
        let shed = call().await.expect("no panic").expect("it answers");
        assert_eq!(shed.status(), 429);
        let cut = calls
            .remove(0)
            .await
            .expect("no panic")
            .expect("it answers");
        assert_eq!(cut.status(), 503);
    }
}
