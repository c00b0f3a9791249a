//! `pods/exec`: what is answered before the upgrade, and then a session of frames.

mod client;
mod flow;
pub mod frames;
mod seen;
mod session;
mod status;
mod wire;

use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::access::Caller;
use crate::api::{Body, Call, Failure, Verb};
use crate::faults::ExecPlan;
use crate::node::Live;
use crate::objects::{Key, uid_of};
use crate::world::World;
pub use seen::{ExecCounts, ExecSeen};
use session::{Session, Target};
pub(crate) use status::Status;

/// The subprotocol that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    V5,
    V4,
}

impl Protocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V5 => "v5.channel.k8s.io",
            Self::V4 => "v4.channel.k8s.io",
        }
    }
}

pub(crate) fn answer(
    world: &Arc<World>,
    caller: &Caller,
    call: &Call,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let plan = world
        .with(|state| state.plans.pop_front())
        .unwrap_or_default();
    if let Some(refusal) = plan.refusal {
        return Err(Failure::refused(refusal, call, caller));
    }
    let key = (
        call.namespace.clone().unwrap_or_default(),
        call.name.clone().unwrap_or_default(),
    );
    let pod = world.pod(&key).ok_or_else(|| Failure::not_found(&key.1))?;
    let container = container_of(&pod, call.parameter("container"), &key.1)?;
    if pod["spec"]["nodeName"].is_null() {
        return Err(Failure::bad_request(format!(
            "pod {} does not have a host assigned",
            key.1
        )));
    }
    let upgrades = header_has(&request, header::UPGRADE, "websocket");
    if call.verb != Verb::Get && upgrades {
        return Err(Failure::Plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "bad method\n".to_owned(),
        ));
    }
    if !upgrades {
        return Err(Failure::bad_request("Upgrade request required"));
    }
    let protocol = choose(world, &request).ok_or(Failure::Empty(StatusCode::FORBIDDEN))?;
    let target = target(world, call, &pod, &container);
    // the API server translates v5 itself up to 1.35: then the 101 comes before anybody asked the node
    let is_late = protocol == Protocol::V5 && world.options.style.translates();
    let target = match target {
        Err((failure, _)) if !is_late => return Err(failure),
        Err((_, status)) => Target::Refused(status),
        Ok((live, argv)) => Target::Process { live, argv },
    };
    Ok(upgrade(
        world, call, &key, container, protocol, plan, target, request,
    ))
}

/// The container that is meant.
fn container_of(pod: &Value, asked: Option<&str>, name: &str) -> Result<String, Failure> {
    let of = |field: &str| {
        let list = pod["spec"][field].as_array().into_iter().flatten();
        list.filter_map(|c| c["name"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let containers = of("containers");
    match asked.filter(|asked| !asked.is_empty()) {
        Some(asked)
            if containers
                .iter()
                .chain(&of("initContainers"))
                .any(|c| c == asked) =>
        {
            Ok(asked.to_owned())
        }
        Some(asked) => Err(Failure::wrong_container(asked, name)),
        None => match &containers[..] {
            [only] => Ok(only.clone()),
            several => Err(Failure::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                several.join(" ")
            ))),
        },
    }
}

fn header_has(request: &Request<Incoming>, name: header::HeaderName, word: &str) -> bool {
    words(request, name).any(|w| w.eq_ignore_ascii_case(word))
}

fn words(request: &Request<Incoming>, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = request.headers().get_all(name).into_iter();
    values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
}

/// v5 wins wherever it stands in the list. Base64 and the unversioned protocol are not known here.
fn choose(world: &World, request: &Request<Incoming>) -> Option<Protocol> {
    let offers = |protocol: Protocol| {
        words(request, header::SEC_WEBSOCKET_PROTOCOL).any(|w| w == protocol.as_str())
    };
    if world.options.style.has_v5() && offers(Protocol::V5) {
        return Some(Protocol::V5);
    }
    offers(Protocol::V4).then_some(Protocol::V4)
}

/// The running container, or how its absence is told before and after an upgrade.
fn target(
    world: &World,
    call: &Call,
    pod: &Value,
    container: &str,
) -> Result<(Live, Vec<String>), (Failure, Status)> {
    let (down, live) = world.with(|state| {
        let life = state.lives.get(uid_of(pod));
        (
            state.kubelet_down,
            life.and_then(|life| life.containers.get(container).cloned()),
        )
    });
    if down {
        let text = format!(
            "error sending request: Post \"https://localhost:10250/exec?command={}\": dial tcp 127.0.0.1:10250: connect: connection refused",
            call.parameters("command").join("&command=")
        );
        return Err((Failure::kubelet_down(), Status::Internal(text)));
    }
    let streams = ["stdin", "stdout", "stderr"];
    if !streams.iter().any(|stream| call.flag(stream)) {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return Err((
            Failure::Plain(StatusCode::BAD_REQUEST, text.to_owned()),
            Status::Internal(text.to_owned()),
        ));
    }
    let Some(live) = live else {
        let text = format!("container not found (\"{container}\")");
        let late = Status::Internal(format!("unable to upgrade connection: {text}"));
        return Err((
            Failure::Plain(StatusCode::INTERNAL_SERVER_ERROR, text),
            late,
        ));
    };
    Ok((live, call.parameters("command")))
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that a session is made of, gathered once"
)]
fn upgrade(
    world: &Arc<World>,
    call: &Call,
    key: &Key,
    container: String,
    protocol: Protocol,
    plan: ExecPlan,
    target: Target,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let accept = request
        .headers()
        .get(header::SEC_WEBSOCKET_KEY)
        .map(|key| derive_accept_key(key.as_bytes()));
    let seen = Arc::new(ExecSeen::new(
        key,
        container,
        call.parameters("command"),
        protocol,
    ));
    world.with(|state| state.execs.push(Arc::clone(&seen)));
    let session = Session::new(world, protocol, plan, Arc::clone(&seen), call);
    let stop = world.stop.clone();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            tokio::select! {
                () = session.run(TokioIo::new(upgraded), target) => {}
                () = stop.cancelled() => {}
            }
        }
    });
    let mut response = Response::new(http_body_util::BodyExt::boxed_unsync(
        http_body_util::Empty::new(),
    ));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(accept) = accept.and_then(|a| HeaderValue::from_str(&a).ok()) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    headers.insert(
        header::SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(protocol.as_str()),
    );
    response
}
