//! Error answers: RFC 9457 `application/problem+json` with a stable code, and whether a retry is safe.

use serde::Serialize;
use serde_json::{Map, Value};

/// Content type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";
/// The attach listener says the code in this header; its body is one line of text.
pub const CODE_HEADER: &str = "x-bex-error";

/// Whether the same request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same request may be sent again, with the same idempotency key where one was sent, and may then succeed.
    Safe,
    /// Sending the same request again gives the same answer.
    Useless,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $retry:ident, $title:literal;)+) => {
        /// Every error code of the product.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* #[doc = $title] $variant),+ }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$variant),+];
            /// The stable word.
            pub fn as_str(self) -> &'static str { match self { $(Code::$variant => $code),+ } }
            /// HTTP status.
            pub fn status(self) -> u16 { match self { $(Code::$variant => $status),+ } }
            /// Whether a retry is safe.
            pub fn retry(self) -> Retry { match self { $(Code::$variant => Retry::$retry),+ } }
            /// One sentence for people.
            pub fn title(self) -> &'static str { match self { $(Code::$variant => $title),+ } }
        }
    };
}

codes! {
    InvalidRequest = "invalid_request", 400, Useless, "The request is not valid.";
    InvalidJson = "invalid_json", 400, Useless, "The body is not valid JSON.";
    UnknownField = "unknown_field", 400, Useless, "The body has a field that is not known.";
    InvalidCursor = "invalid_cursor", 400, Useless, "The cursor does not parse or names a turn the session does not have.";
    SecretLiteral = "secret_literal", 400, Useless, "An environment value looks like a secret; use secretRef.";
    ProfileUnknown = "profile_unknown", 400, Useless, "The agent profile is not allowed here.";
    Unauthenticated = "unauthenticated", 401, Useless, "A valid bearer token is needed.";
    TicketInvalid = "ticket_invalid", 401, Useless, "The ticket is missing, malformed, expired or signed with an unknown key.";
    TicketUsed = "ticket_used", 401, Useless, "The ticket was used before.";
    Forbidden = "forbidden", 403, Useless, "Your role does not allow this.";
    ActionMismatch = "action_mismatch", 403, Useless, "The ticket's action does not fit the method.";
    SessionMismatch = "session_mismatch", 403, Useless, "The ticket is for another session.";
    UrlInvalid = "url_invalid", 403, Useless, "The URL is not good, or no longer.";
    Revoked = "revoked", 403, Useless, "Access was revoked.";
    NotFound = "not_found", 404, Useless, "Not found.";
    MethodNotAllowed = "method_not_allowed", 405, Useless, "This method is not supported here.";
    TurnInFlight = "turn_in_flight", 409, Safe, "A turn is still running.";
    LiveLimit = "live_limit", 409, Safe, "The workspace has as many live sessions as it may have.";
    SessionFull = "session_full", 409, Useless, "The session's transcript quota is used up.";
    Archived = "archived", 409, Useless, "The session is archived.";
    PromptQuota = "prompt_quota", 409, Useless, "The session's prompt quota is used up.";
    NotSteerable = "not_steerable", 409, Useless, "The session was canceled and takes no further turn.";
    NotDeletable = "not_deletable", 409, Safe, "The session is still live.";
    LegalHold = "legal_hold", 409, Useless, "The session is under legal hold.";
    NotLive = "not_live", 409, Useless, "The turn is not running.";
    IdempotencyConflict = "idempotency_conflict", 409, Useless, "The idempotency key was used with another body.";
    SessionPaused = "session_paused", 409, Safe, "The session is paused; resume it first.";
    SessionEnded = "session_ended", 409, Useless, "The session has ended.";
    EventConflict = "event_conflict", 409, Useless, "Another event was reported under this index.";
    EventTooFar = "event_too_far", 409, Safe, "Events before this one are missing; report them first.";
    LogFull = "log_full", 409, Useless, "The session's log is full.";
    ReportConflict = "report_conflict", 409, Useless, "The report id was used for another report.";
    VersionConflict = "version_conflict", 409, Useless, "This version was recorded with another content.";
    RecordConflict = "record_conflict", 409, Useless, "Something else was recorded under this id.";
    ExecutionFull = "execution_full", 409, Useless, "The execution has as many nodes or sessions as it may have.";
    MachineRevoked = "machine_revoked", 409, Useless, "The machine was revoked.";
    BodyTooLarge = "body_too_large", 413, Useless, "The body is too large.";
    PackageTooLarge = "package_too_large", 413, Useless, "The package would be larger than one may be.";
    TooManyStreams = "too_many_streams", 429, Safe, "Too many open streams.";
    Overloaded = "overloaded", 429, Safe, "Too many requests at once.";
    Backlog = "backlog", 429, Safe, "More was reported than is worked off yet.";
    CommandQueueFull = "command_queue_full", 429, Safe, "The machine has not taken its last commands yet.";
    TooManyPackages = "too_many_packages", 429, Safe, "The workspace asked for too many packages.";
    GateRefused = "gate_refused", 500, Useless, "The package was refused: something secret or personal may be left in it.";
    Internal = "internal", 500, Safe, "Something went wrong here.";
    NotConfigured = "not_configured", 503, Safe, "This listener is not configured.";
    Unavailable = "unavailable", 503, Safe, "A service this needs is not reachable.";
    Draining = "draining", 503, Safe, "This process is shutting down.";
    SandboxTerminated = "sandbox_terminated", 404, Useless, "The sandbox is gone.";
    ExecTransport = "exec_transport", 502, Safe, "The connection to the sandbox broke.";
    ExecTimeout = "exec_timeout", 504, Safe, "The sandbox did not answer in time.";
    OutputLimit = "output_limit", 413, Useless, "The command printed more than allowed.";
    Unsupported = "unsupported", 501, Useless, "The sandbox cannot do that.";
}

/// A problem document.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    retry_safe: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Problem {
    /// A problem of this code.
    pub fn new(code: Code) -> Self {
        Self {
            r#type: "about:blank",
            title: code.title(),
            status: code.status(),
            code: code.as_str(),
            retry_safe: code.retry() == Retry::Safe,
            detail: None,
            extra: Map::new(),
        }
    }

    /// Adds what the caller may know about this occurrence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a field of its own, e.g. `limit`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(field.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_problems_name_them() {
        let mut words: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        let json = serde_json::to_value(
            Problem::new(Code::LiveLimit)
                .with("live", 3)
                .with("limit", 3),
        )
        .expect("plain data");
        assert_eq!(json["code"], "live_limit");
        assert_eq!(
            (
                json["status"].as_u64(),
                json["live"].as_u64(),
                json["retrySafe"].as_bool()
            ),
            (Some(409), Some(3), Some(true))
        );
    }
}
