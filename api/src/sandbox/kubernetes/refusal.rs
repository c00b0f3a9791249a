//! From the API server's refusal of a pod to what people are told. Pure.

use std::io;

use bex_proto::session::FailureReason;
use kube::core::Status;

use crate::sandbox::{Again, CreateError};

/// What is kept of the cluster's own words.
const WORDS_BYTES: usize = 512;

/// What is `hidden` is never repeated, whoever repeated it to us.
pub(super) fn of_create(status: &Status, hidden: &[String]) -> CreateError {
    let (what, reason, again) = judge(status);
    let words = words(&status.message, hidden);
    CreateError::Refused {
        what,
        reason,
        again,
        source: io::Error::other(format!("status {}: {words}", status.code)),
    }
}

/// A cluster's words, cut, and without the sandbox's keys.
pub(super) fn words(message: &str, hidden: &[String]) -> String {
    if hidden.iter().any(|key| message.contains(key)) {
        return "(its words repeat a key of the sandbox)".to_owned();
    }
    let mut end = message.len().min(WORDS_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

fn judge(status: &Status) -> (&'static str, FailureReason, Again) {
    let caused_by = |reason: &str| {
        let causes = status.details.iter().flat_map(|d| &d.causes);
        causes.into_iter().any(|cause| cause.reason == reason)
    };
    match status.code {
        404 => (
            "the namespace of the workspace is missing",
            FailureReason::NamespaceMissing,
            Again::Never,
        ),
        403 if caused_by("NamespaceTerminating") => (
            "the namespace of the workspace is being deleted",
            FailureReason::NamespaceMissing,
            Again::Never,
        ),
        // a quota has no reason of its own
        403 if status.message.contains("exceeded quota") => (
            "the quota of the namespace is used up",
            FailureReason::QuotaExceeded,
            Again::ForSomeAttempts,
        ),
        401 | 403 => (
            "the cluster forbids the pod",
            FailureReason::SandboxRefused,
            Again::ForSomeAttempts,
        ),
        400 | 405 | 413 | 422 => (
            "the cluster does not accept the pod",
            FailureReason::SandboxRefused,
            Again::Never,
        ),
        _ => (
            "the cluster does not make the pod now",
            FailureReason::ProvisioningFailed,
            Again::ForSomeAttempts,
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(code: u16, message: &str, cause: &str) -> (FailureReason, Again) {
        let status =
            json!({"code": code, "message": message, "details": {"causes": [{"reason": cause}]}});
        let status: Status = serde_json::from_value(status).expect("a status");
        let CreateError::Refused { reason, again, .. } = of_create(&status, &["k3y".to_owned()])
        else {
            panic!("refused")
        };
        (reason, again)
    }

    #[test]
    fn each_refusal_has_a_reason() {
        use FailureReason::{NamespaceMissing, ProvisioningFailed, QuotaExceeded, SandboxRefused};
        let quota = "pods \"p\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2";
        let rights = "pods is forbidden: User \"u\" cannot create resource \"pods\"";
        for (code, message, cause, expected) in [
            (
                404,
                "namespaces \"x\" not found",
                "",
                (NamespaceMissing, Again::Never),
            ),
            (
                403,
                "is being terminated",
                "NamespaceTerminating",
                (NamespaceMissing, Again::Never),
            ),
            (403, quota, "", (QuotaExceeded, Again::ForSomeAttempts)),
            (403, rights, "", (SandboxRefused, Again::ForSomeAttempts)),
            (422, "invalid", "", (SandboxRefused, Again::Never)),
            (429, "", "", (ProvisioningFailed, Again::ForSomeAttempts)),
            (500, "", "", (ProvisioningFailed, Again::ForSomeAttempts)),
        ] {
            assert_eq!(judged(code, message, cause), expected, "{code} {message}");
        }
    }

    #[test]
    fn words_are_bounded_and_hold_no_key() {
        let hidden = ["seed".to_owned(), "k3y".to_owned()];
        assert!(!words("denied: {\"key\":\"k3y\"}", &hidden).contains("k3y"));
        assert_eq!(words(&"ä".repeat(WORDS_BYTES), &[]).len(), WORDS_BYTES);
    }
}
