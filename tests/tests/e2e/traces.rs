//! A session is one trace: what every process did for it, sent to a collector, and each of their logs names it.
#![cfg(feature = "otlp")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bex_proto::launch::DRIVER_DIR;
use bex_proto::trace::TraceContext;
use bex_tests::client::NewSession;
use bex_tests::scenario::{STEP, settled};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions, eventually};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// A span as the collector got it.
#[derive(Debug, Clone)]
struct Got {
    service: String,
    name: String,
    trace: String,
    id: String,
    parent: String,
    attributes: BTreeMap<String, String>,
}

type Spans = Arc<Mutex<Vec<Got>>>;

/// An OTLP collector that keeps what it is sent.
async fn collector() -> (SocketAddr, Spans) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, spans) = (listener.local_addr().unwrap(), Spans::default());
    let kept = Arc::clone(&spans);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let kept = Arc::clone(&kept);
            let service = service_fn(move |request| keep(request, Arc::clone(&kept)));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection);
        }
    });
    (address, spans)
}

async fn keep(request: Request<Incoming>, spans: Spans) -> hyper::Result<Response<Full<Bytes>>> {
    assert_eq!(request.uri().path(), "/v1/traces");
    let body = request.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut kept = spans.lock().unwrap();
    for resource in body["resourceSpans"].as_array().unwrap() {
        let service = pairs(&resource["resource"]["attributes"])["service.name"].clone();
        for scope in resource["scopeSpans"].as_array().unwrap() {
            let spans = scope["spans"].as_array().unwrap().iter();
            kept.extend(spans.map(|span| got(&service, span)));
        }
    }
    Ok(Response::new(Full::from("{}")))
}

fn got(service: &str, span: &Value) -> Got {
    let text = |field: &str| span[field].as_str().unwrap().to_owned();
    let time = |field: &str| text(field).parse::<u128>().unwrap();
    assert!(
        time("startTimeUnixNano") <= time("endTimeUnixNano"),
        "{span}"
    );
    Got {
        service: service.to_owned(),
        name: text("name"),
        trace: text("traceId"),
        id: text("spanId"),
        parent: text("parentSpanId"),
        attributes: pairs(&span["attributes"]),
    }
}

fn pairs(attributes: &Value) -> BTreeMap<String, String> {
    let all = attributes.as_array().unwrap().iter();
    all.map(|one| {
        let value = one["value"]["stringValue"].as_str().unwrap();
        (one["key"].as_str().unwrap().to_owned(), value.to_owned())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_spans_of_both_processes_are_one_trace() {
    let (address, spans) = collector().await;
    let url = (
        "BEX_OTLP_URL".to_owned(),
        format!("http://{address}/v1/traces"),
    );
    let options = StackOptions {
        api_env: vec![url.clone()],
        gateway_env: vec![url],
        ..StackOptions::default()
    };
    let stack = Stack::start(options).await.unwrap();
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", "trace me parts=40");
    let session = api.create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer.to_end().await.unwrap();
    settled(&api, &session, 1).await.unwrap();

    let root = TraceContext::of_session(&session);
    let wanted: BTreeSet<(&str, &str)> = [
        ("bex-api", "create"),
        ("bex-api", "dispatch"),
        ("bex-api", "exec.call"),
        ("bex-api", "harvest"),
        ("bex-api", "settle"),
        ("bex-gateway", "exec"),
        ("bex-gateway", "source"),
        ("bex-gateway", "attach.admission"),
        ("bex-gateway", "attach.replay"),
        ("bex-gateway", "attach.live"),
        ("bex-gateway", "attach"),
    ]
    .into();
    let mut seen = Vec::new();
    let complete = eventually("every kind of span is sent", STEP, async || {
        seen = spans.lock().unwrap().clone();
        let kinds: BTreeSet<_> = seen.iter().map(|s| (&*s.service, &*s.name)).collect();
        wanted.is_subset(&kinds).then_some(())
    })
    .await;
    assert!(complete.is_ok(), "{seen:#?}");
    for span in &seen {
        assert_eq!(span.trace, root.trace.to_string(), "{span:?}");
    }
    let of = |name: &str| {
        seen.iter()
            .filter(|span| span.name == name)
            .collect::<Vec<_>>()
    };
    let [create] = &of("create")[..] else {
        panic!("one creation: {seen:#?}");
    };
    assert_eq!((&create.id, &*create.parent), (&root.span.to_string(), ""));
    assert_eq!(create.attributes["bex.session"], session.as_str());
    // across the wire: the gateway's span of the turn's delivery is a part of the api's call, which is a part of its dispatch
    let delivered = of("exec")
        .into_iter()
        .find(|span| span.attributes["bex.op"] == "turn")
        .unwrap();
    let call = of("exec.call")
        .into_iter()
        .find(|span| span.id == delivered.parent)
        .unwrap();
    assert_eq!(call.attributes["bex.op"], "turn");
    assert!(
        of("dispatch").iter().any(|span| span.id == call.parent),
        "{seen:#?}"
    );
    let attach = of("attach")[0];
    for part in ["attach.admission", "attach.replay", "attach.live"] {
        assert_eq!(of(part)[0].parent, attach.id, "{part}");
    }
    // and logs are found by the trace's id, the driver's too where it leaves one on this machine
    let trace = root.trace.to_string();
    let mut logs = ["bex-api.log", "bex-gateway.log"]
        .map(|log| stack.log_dir().join(log))
        .to_vec();
    let sandboxes = std::fs::read_dir(stack.dir().join("sandboxes"))
        .into_iter()
        .flatten()
        .flatten();
    logs.extend(sandboxes.map(|sandbox| sandbox.path().join(DRIVER_DIR).join("driver.stderr")));
    assert!(logs.len() > 2 || stack.cluster().is_ok());
    for log in logs {
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(
            said.contains(&trace),
            "{} does not name the trace",
            log.display()
        );
    }
    stack.stop().await.unwrap();
}
