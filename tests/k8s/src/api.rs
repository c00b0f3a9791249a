//! The API server: who asks, what for, whether they may, and the answer.

mod answer;
mod call;
mod pods;
mod review;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::access::{Caller, Wanted};
use crate::exec;
use crate::faults::Refusal;
use crate::world::{RequestSeen, World};
pub(crate) use answer::{Body, Failure, json_body, plain};
pub(crate) use call::{Call, Verb};
pub(crate) use pods::{remove, store};

/// What a throttled caller is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn answer(world: Arc<World>, request: Request<Incoming>) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz" | "/readyz" | "/livez") => return plain(StatusCode::OK, "ok"),
        (&Method::GET, "/version") => {
            let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2"});
            return json_body(StatusCode::OK, &version);
        }
        _ => {}
    }
    let caller = match who(&world, &request) {
        Ok(caller) => caller,
        Err(failure) => return failure.response(),
    };
    if request.uri().path() == review::PATH {
        return review::answer(&world, &caller, request).await;
    }
    let Some(call) = Call::parse(request.method(), request.uri()) else {
        return Failure::not_found_path().response();
    };
    let response = match admit(&world, &caller, &call) {
        Err(failure) => failure.response(),
        Ok(()) => match refusal(&world, &call) {
            Some(Refusal::Hang) => {
                world.stop.cancelled().await;
                Failure::refused(Refusal::Hang, &call, &caller).response()
            }
            Some(refusal) => Failure::refused(refusal, &call, &caller).response(),
            None => perform(&world, &caller, &call, request).await,
        },
    };
    let seen = RequestSeen {
        user: caller.user(),
        verb: call.verb.as_str().to_owned(),
        resource: call.resource().to_owned(),
        namespace: call.namespace.clone().unwrap_or_default(),
        name: call.name.clone().unwrap_or_default(),
        status: response.status().as_u16(),
    };
    world.with(|state| state.requests.push(seen));
    response
}

fn who(world: &World, request: &Request<Incoming>) -> Result<Caller, Failure> {
    let Some(header) = request.headers().get(http::header::AUTHORIZATION) else {
        return Ok(Caller::Anonymous);
    };
    let token = header.to_str().ok().and_then(|h| h.strip_prefix("Bearer "));
    let known = token.and_then(|token| world.with(|state| state.access.who(token)));
    known.ok_or_else(Failure::unauthorized)
}

/// Before existence: who may not ask does not learn what is there.
fn admit(world: &World, caller: &Caller, call: &Call) -> Result<(), Failure> {
    let may = |verb: &str| {
        let wanted = Wanted {
            verb,
            resource: call.resource(),
            namespace: call.namespace.as_deref(),
            name: call.name.as_deref(),
        };
        world.with(|state| state.access.allows(caller, wanted))
    };
    if !may(call.verb.as_str()) {
        return Err(Failure::forbidden(call, caller));
    }
    if call.is_exec
        && call.verb == Verb::Get
        && world.options.style.needs_create()
        && !may("create")
    {
        return Err(Failure::forbidden_without_reason(call));
    }
    Ok(())
}

/// A refusal that a test ordered for a call like this one.
fn refusal(world: &World, call: &Call) -> Option<Refusal> {
    world.with(|state| {
        let fits = |(verb, resource, _): &(String, String, Refusal)| {
            verb == call.verb.as_str() && resource == call.resource()
        };
        let at = state.refusals.iter().position(fits)?;
        Some(state.refusals.remove(at).2)
    })
}

async fn perform(
    world: &Arc<World>,
    caller: &Caller,
    call: &Call,
    request: Request<Incoming>,
) -> Response<Body> {
    let answer = match (call.is_exec, call.verb) {
        (true, _) => exec::answer(world, caller, call, request),
        (false, Verb::Get) => pods::get(world, call),
        (false, Verb::List) => pods::list(world, call),
        (false, Verb::Watch) => watch::answer(world, call),
        (false, Verb::Create) => pods::create(world, call, request).await,
        (false, Verb::Delete) => pods::delete(world, call, request).await,
        (false, Verb::Other) => Err(Failure::method_not_allowed()),
    };
    answer.unwrap_or_else(Failure::response)
}
