//! Answers: objects, and failures as the API server words them.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{Call, RETRY_AFTER};
use crate::access::Caller;
use crate::faults::Refusal;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

pub(crate) fn json_body(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// A refusal.
#[derive(Debug)]
pub(crate) enum Failure {
    Status(Box<Value>),
    Plain(StatusCode, String),
    /// A status and nothing else; the connection ends.
    Empty(StatusCode),
}

impl Failure {
    fn status(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code});
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        Self::Status(Box::new(status))
    }

    fn about(self, name: &str) -> Self {
        match self {
            Self::Status(mut status) => {
                status["details"] = json!({"name": name, "kind": "pods"});
                Self::Status(status)
            }
            other => other,
        }
    }

    pub(crate) fn not_found(name: &str) -> Self {
        Self::status(404, "NotFound", format!("pods \"{name}\" not found")).about(name)
    }

    pub(crate) fn namespace_not_found(name: &str) -> Self {
        Self::status(404, "NotFound", format!("namespaces \"{name}\" not found"))
    }

    pub(crate) fn not_found_path() -> Self {
        Self::Plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::status(400, "BadRequest", message)
    }

    pub(crate) fn wrong_container(container: &str, pod: &str) -> Self {
        Self::bad_request(format!("container {container} is not valid for pod {pod}"))
    }

    pub(crate) fn invalid(name: &str, what: &str) -> Self {
        Self::status(422, "Invalid", format!("Pod \"{name}\" is invalid: {what}")).about(name)
    }

    pub(crate) fn already_exists(name: &str) -> Self {
        Self::status(
            409,
            "AlreadyExists",
            format!("pods \"{name}\" already exists"),
        )
        .about(name)
    }

    pub(crate) fn being_deleted(name: &str) -> Self {
        let what = format!("object is being deleted: pods \"{name}\" already exists");
        Self::status(409, "AlreadyExists", what).about(name)
    }

    pub(crate) fn conflict(name: &str, wanted: &str, found: &str) -> Self {
        let what = format!(
            "Operation cannot be fulfilled on pods \"{name}\": Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        Self::status(409, "Conflict", what).about(name)
    }

    pub(crate) fn quota(name: &str, used: usize, limit: usize) -> Self {
        let what = format!(
            "pods \"{name}\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods={used}, limited: pods={limit}"
        );
        Self::status(403, "Forbidden", what).about(name)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::status(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn forbidden(call: &Call, caller: &Caller) -> Self {
        let scope = match &call.namespace {
            Some(namespace) => format!("in the namespace \"{namespace}\""),
            None => "at the cluster scope".to_owned(),
        };
        let why = format!(
            "User \"{}\" cannot {} resource \"{}\" in API group \"\" {scope}",
            caller.user(),
            call.verb.as_str(),
            call.resource()
        );
        Self::forbidden_because(call, &why)
    }

    /// What a subject with `get` but without `create` on pods/exec is told: nothing.
    pub(crate) fn forbidden_without_reason(call: &Call) -> Self {
        Self::forbidden_because(call, "")
    }

    fn forbidden_because(call: &Call, why: &str) -> Self {
        let what = match &call.name {
            Some(name) => format!("pods \"{name}\" is forbidden: {why}"),
            None => format!("pods is forbidden: {why}"),
        };
        Self::status(403, "Forbidden", what).about(call.name.as_deref().unwrap_or_default())
    }

    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::status(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// The node does not answer the API server.
    pub(crate) fn kubelet_down() -> Self {
        Self::status(
            500,
            "",
            "error dialing backend: dial tcp 127.0.0.1:10250: connect: connection refused",
        )
    }

    pub(crate) fn refused(refusal: Refusal, call: &Call, caller: &Caller) -> Self {
        match refusal {
            Refusal::EmptyForbidden => Self::Empty(StatusCode::FORBIDDEN),
            Refusal::GetOnly => Self::forbidden_without_reason(call),
            Refusal::Forbidden => Self::forbidden(call, caller),
            Refusal::NotFound => Self::not_found(call.name.as_deref().unwrap_or_default()),
            Refusal::WrongContainer => Self::wrong_container(
                call.parameter("container").unwrap_or_default(),
                call.name.as_deref().unwrap_or_default(),
            ),
            Refusal::Unauthorized => Self::unauthorized(),
            Refusal::TooManyRequests => {
                let what =
                    "the server has received too many requests and has asked us to try again later";
                Self::status(429, "TooManyRequests", what)
            }
            Refusal::KubeletDown => Self::kubelet_down(),
            Refusal::Unavailable | Refusal::Hang => Self::Plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "apiserver not ready\n".to_owned(),
            ),
        }
    }

    /// The failure as the Status object that it is, for watches.
    pub(crate) fn object(&self) -> Value {
        match self {
            Self::Status(status) => (**status).clone(),
            Self::Plain(code, text) => {
                json!({"kind": "Status", "code": code.as_u16(), "message": text})
            }
            Self::Empty(code) => json!({"kind": "Status", "code": code.as_u16()}),
        }
    }

    pub(crate) fn response(self) -> Response<Body> {
        match self {
            Self::Plain(status, text) => plain(status, text),
            Self::Empty(status) => {
                let mut response = Response::new(full(Bytes::new()));
                *response.status_mut() = status;
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
                response
            }
            Self::Status(status) => {
                let code = status["code"]
                    .as_u64()
                    .and_then(|code| u16::try_from(code).ok());
                let code = code.and_then(|code| StatusCode::from_u16(code).ok());
                let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut response = json_body(code, &status);
                if code == StatusCode::TOO_MANY_REQUESTS {
                    let seconds = HeaderValue::from(RETRY_AFTER.as_secs());
                    response.headers_mut().insert(header::RETRY_AFTER, seconds);
                }
                response
            }
        }
    }
}
