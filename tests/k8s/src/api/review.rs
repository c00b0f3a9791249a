//! SelfSubjectAccessReview: what a process may do, asked by itself.

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Body, Failure, json_body};
use crate::access::{Caller, Wanted};
use crate::world::World;

pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REVIEW_BYTES: usize = 64 * 1024;

pub(super) async fn answer(
    world: &World,
    caller: &Caller,
    request: Request<Incoming>,
) -> Response<Body> {
    if *caller == Caller::Anonymous {
        return Failure::unauthorized().response();
    }
    let body = Limited::new(request.into_body(), REVIEW_BYTES)
        .collect()
        .await;
    let review = body
        .ok()
        .and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
    let Some(mut review) = review else {
        return Failure::bad_request("not a review").response();
    };
    let asked = &review["spec"]["resourceAttributes"];
    let word = |field: &str| asked[field].as_str().filter(|word| !word.is_empty());
    let resource = match (word("resource"), word("subresource")) {
        (Some(resource), Some(sub)) => format!("{resource}/{sub}"),
        (Some(resource), None) => resource.to_owned(),
        _ => String::new(),
    };
    let wanted = Wanted {
        verb: word("verb").unwrap_or_default(),
        resource: &resource,
        namespace: word("namespace"),
        name: word("name"),
    };
    let allowed = world.with(|state| state.access.allows(caller, wanted));
    review["status"] = json!({"allowed": allowed});
    json_body(StatusCode::CREATED, &review)
}
