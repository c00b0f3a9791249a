//! watch: a response that goes on, one JSON object a line.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Body, Call, Failure, pods};
use crate::objects::{Change, ChangeKind};
use crate::world::World;

/// Lines that wait for one reader.
const LINES: usize = 64;
/// A watch without a time-out of its own; servers choose 30 to 60 min.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

pub(super) fn answer(world: &Arc<World>, call: &Call) -> Result<Response<Body>, Failure> {
    let version = match call.parameter("resourceVersion").unwrap_or_default() {
        "" | "0" => None,
        text => Some(
            text.parse()
                .map_err(|_| Failure::bad_request("invalid resource version"))?,
        ),
    };
    let (say, mut lines) = mpsc::channel::<Bytes>(LINES);
    let (world, call) = (Arc::clone(world), call.clone());
    tokio::spawn(async move {
        let seconds = call
            .parameter("timeoutSeconds")
            .and_then(|t| t.parse().ok());
        let timeout = seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let _ = tokio::time::timeout(timeout, follow(&world, &call, version, &say)).await;
    });
    let stream = futures::stream::poll_fn(move |cx| {
        lines
            .poll_recv(cx)
            .map(|line| line.map(|l| Ok::<_, Infallible>(Frame::data(l))))
    });
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

async fn follow(world: &World, call: &Call, version: Option<u64>, say: &mpsc::Sender<Bytes>) {
    let mut versions = world.versions.subscribe();
    let mut at = match version {
        Some(version) => version,
        None => {
            let (version, pods) = world.with(|state| {
                let wanted = state
                    .objects
                    .iter()
                    .filter(|(key, pod)| pods::wanted(call, key, pod));
                (
                    state.objects.version(),
                    wanted.map(|(_, pod)| pod.clone()).collect::<Vec<_>>(),
                )
            });
            for pod in pods {
                if say
                    .send(line(ChangeKind::Added.as_str(), &pod))
                    .await
                    .is_err()
                {
                    return;
                }
            }
            version
        }
    };
    loop {
        versions.borrow_and_update();
        let changes = match world.with(|state| state.objects.since(at)) {
            Ok(changes) => changes,
            Err(expired) => {
                let failure = Failure::expired(at, expired.oldest).object();
                let _ = say.send(line("ERROR", &failure)).await;
                return;
            }
        };
        for change in changes {
            at = change.version;
            if concerns(call, &change)
                && say
                    .send(line(change.kind.as_str(), &change.pod))
                    .await
                    .is_err()
            {
                return;
            }
        }
        tokio::select! {
            changed = versions.changed() => if changed.is_err() { return },
            () = say.closed() => return,
        }
    }
}

fn concerns(call: &Call, change: &Change) -> bool {
    let word = |field: &str| {
        change.pod["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    pods::wanted(call, &(word("namespace"), word("name")), &change.pod)
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    Bytes::from(line)
}
