//! Every operation in a few words: what it takes, answers and refuses.

mod executions;
mod remote;
mod replay;

use bex_proto::problem::Code;

pub use executions::EXECUTIONS;
pub use remote::REMOTE;
pub use replay::REPLAY;

/// A success.
pub enum Answer {
    /// No body.
    Empty(&'static str),
    /// A schema's name.
    Json(&'static str, &'static str),
    /// Exec frames.
    Frames(&'static str),
    /// A file in one of these media types.
    File(&'static str, &'static [&'static str]),
}

/// One method of one path.
pub struct Operation {
    /// Lower case.
    pub method: &'static str,
    /// As in the router.
    pub path: &'static str,
    /// For code generators.
    pub id: &'static str,
    /// One sentence; the role it needs, where that is more than `viewer`.
    pub summary: &'static str,
    /// Query parameters and what they mean.
    pub query: &'static [(&'static str, &'static str)],
    /// Request headers beside the usual ones.
    pub headers: &'static [(&'static str, &'static str)],
    /// The request body's schema.
    pub body: Option<&'static str>,
    /// The request body's lines: a schema, or any JSON where its name is empty.
    pub lines: Option<&'static str>,
    /// Successes by status.
    pub answers: &'static [(u16, Answer)],
    /// Refusals beside the common ones.
    pub codes: &'static [Code],
}

const NONE: Operation = Operation {
    method: "get",
    path: "",
    id: "",
    summary: "",
    query: &[],
    headers: &[],
    body: None,
    lines: None,
    answers: &[],
    codes: &[],
};

const KEY: &[(&str, &str)] = &[(
    "Idempotency-Key",
    "1 to 255 visible ASCII characters. Same key and body: same answer; another body: 409.",
)];

/// Agent sessions and what belongs to no session.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/agent-sessions",
        id: "createSession",
        summary: "Creates a session and begins its first turn; the sandbox is made in the background (operator).",
        headers: KEY,
        body: Some("CreateSession"),
        answers: &[(201, Answer::Json("Created; Location names it.", "Session"))],
        codes: &[
            Code::SecretLiteral,
            Code::ProfileUnknown,
            Code::Forbidden,
            Code::NotFound,
            Code::LiveLimit,
            Code::IdempotencyConflict,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions",
        id: "listSessions",
        summary: "Lists a workspace's sessions, newest first.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("phase", "May be repeated."),
            ("archived", "false (the default), true or all."),
            ("repo", "Exactly this repository."),
            ("createdBefore", "ISO-8601, exclusive."),
            ("createdAfter", "ISO-8601, exclusive."),
            (
                "q",
                "Words that all stand in the title or in prompts (the first 8192 characters of each). At most 8 words and 256 bytes; a page looks at 2000 sessions, so that it may hold fewer than asked for and still have a nextCursor.",
            ),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "SessionPage"))],
        codes: &[
            Code::InvalidRequest,
            Code::UnknownField,
            Code::InvalidCursor,
            Code::NotFound,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}",
        id: "getSession",
        summary: "One session with its turns and their verdicts.",
        answers: &[(200, Answer::Json("The session.", "Session"))],
        codes: &[Code::NotFound],
        ..NONE
    },
    Operation {
        method: "delete",
        path: "/v1/agent-sessions/{id}",
        id: "deleteSession",
        summary: "Deletes a session with everything it holds, when nothing of it is live (admin).",
        answers: &[(204, Answer::Empty("Deleted."))],
        codes: &[
            Code::Forbidden,
            Code::NotFound,
            Code::NotDeletable,
            Code::LegalHold,
        ],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/turns",
        id: "beginTurn",
        summary: "Begins the next turn: stores the prompt and returns a ticket to watch it (operator).",
        headers: KEY,
        body: Some("BeginTurnRequest"),
        answers: &[(201, Answer::Json("Begun.", "BegunTurn"))],
        codes: &[
            Code::Forbidden,
            Code::NotFound,
            Code::TurnInFlight,
            Code::SessionFull,
            Code::Archived,
            Code::PromptQuota,
            Code::NotSteerable,
            Code::IdempotencyConflict,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}/turns",
        id: "listTurns",
        summary: "The turns in order, prompts included.",
        query: &[
            ("from", "The first turn wanted; 1 when absent."),
            ("limit", "1 to 200; 200 when absent."),
        ],
        answers: &[(200, Answer::Json("One page.", "TurnPage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/turns/{turn}/stop",
        id: "stopTurn",
        summary: "Asks the driver to stop a turn; what was said is kept (operator).",
        answers: &[(
            202,
            Answer::Json("Asked; the turn settles with endedBy stopped.", "Turn"),
        )],
        codes: &[
            Code::Forbidden,
            Code::NotFound,
            Code::NotLive,
            Code::Unsupported,
            Code::ExecTransport,
            Code::ExecTimeout,
        ],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/cancel",
        id: "cancelSession",
        summary: "Cancels an active session after a last harvest; may be repeated (operator).",
        answers: &[(200, Answer::Json("As it stands now.", "Session"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/archive",
        id: "archiveSession",
        summary: "Takes a session out of the default list and off steering; may be repeated (operator).",
        answers: &[(200, Answer::Json("As it stands now.", "Session"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/unarchive",
        id: "unarchiveSession",
        summary: "Puts an archived session back; may be repeated (operator).",
        answers: &[(200, Answer::Json("As it stands now.", "Session"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/attach-ticket",
        id: "mintAttachTicket",
        summary: "A single-use ticket for the gateway's stream: read for GET, turn for POST (operator). A finished \
                  session always gets a replay-only read ticket.",
        body: Some("AttachTicketRequest"),
        answers: &[(200, Answer::Json("The ticket.", "AttachTicket"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}/transcript",
        id: "readTranscript",
        summary: "The feed of stored parts in the order in which they were stored.",
        query: &[
            (
                "afterSeq",
                "Parts behind this seq; absent means from the start.",
            ),
            (
                "limit",
                "1 to 1000; 200 when absent. A page is at most 4 MiB, but always at least one part.",
            ),
        ],
        headers: &[("If-None-Match", "The ETag of an earlier answer.")],
        answers: &[
            (
                200,
                Answer::Json(
                    "One page. With caughtUp false it never changes.",
                    "TranscriptPage",
                ),
            ),
            (304, Answer::Empty("Not changed.")),
        ],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/exec",
        id: "exec",
        summary: "Runs a command in the living sandbox (operator).",
        body: Some("ExecRequest"),
        answers: &[(
            200,
            Answer::Frames(
                "Frames: kind u8, length u32 big-endian, payload. Exactly one exit or error frame is last.",
            ),
        )],
        codes: &[
            Code::Forbidden,
            Code::Revoked,
            Code::NotFound,
            Code::SandboxTerminated,
            Code::TurnInFlight,
            Code::OutputLimit,
            Code::Unsupported,
            Code::ExecTransport,
            Code::ExecTimeout,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}/priming",
        id: "readPriming",
        summary: "What an agent that remembers nothing would be told of the conversation: its newest words under a budget.",
        query: &[
            (
                "budgetBytes",
                "0 to 1048576; 65536 when absent. The turns as JSON are never longer.",
            ),
            (
                "toolPayloads",
                "true: also what went into tools and came out of them.",
            ),
        ],
        answers: &[(
            200,
            Answer::Json("The newest words, the oldest first.", "Priming"),
        )],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}/export",
        id: "exportSession",
        summary: "The session as a file, streamed. One that breaks off is not whole.",
        query: &[(
            "format",
            "jsonl (the default; lossless, for verify and import), markdown or ui-messages.",
        )],
        answers: &[(
            200,
            Answer::File(
                "The file.",
                &["application/x-ndjson", "text/markdown", "application/json"],
            ),
        )],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/v1/agent-sessions/{id}/proof",
        id: "readProof",
        summary: "The chain of signed statements about the session's settled turns.",
        query: &[
            ("from", "The first statement's number."),
            ("limit", "1 to 200; 50 when absent."),
        ],
        answers: &[(200, Answer::Json("One page of the chain.", "ProofPage"))],
        codes: &[
            Code::InvalidRequest,
            Code::UnknownField,
            Code::NotFound,
            Code::NotConfigured,
        ],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/agent-sessions/{id}/legal-hold",
        id: "holdSession",
        summary: "Keeps a session from being deleted by anybody; may be repeated (admin).",
        answers: &[(200, Answer::Json("As it stands now.", "Session"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "delete",
        path: "/v1/agent-sessions/{id}/legal-hold",
        id: "releaseSession",
        summary: "Lifts a legal hold; may be repeated (admin).",
        answers: &[(200, Answer::Json("As it stands now.", "Session"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/v1/workspaces/{workspaceId}/retention",
        id: "readRetention",
        summary: "How long a workspace keeps its finished sessions and audit rows.",
        answers: &[(200, Answer::Json("The policy.", "Retention"))],
        codes: &[Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/workspaces/{workspaceId}/retention",
        id: "setRetention",
        summary: "Sets how many days a workspace keeps its finished sessions and audit rows (admin).",
        body: Some("SetRetention"),
        answers: &[(200, Answer::Json("The policy.", "Retention"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "delete",
        path: "/v1/workspaces/{workspaceId}",
        id: "deleteWorkspace",
        summary: "Ends and deletes all sessions of a workspace in the background; refused while one is held (admin).",
        answers: &[(202, Answer::Json("It is being deleted.", "Retention"))],
        codes: &[Code::Forbidden, Code::NotFound, Code::LegalHold],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/revocations",
        id: "revoke",
        summary: "Ends matching streams within a second and voids older tickets (admin).",
        body: Some("Revocation"),
        answers: &[(201, Answer::Json("Revoked.", "Revocation"))],
        codes: &[Code::Forbidden, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/.well-known/bex-proof-keys.json",
        id: "readProofKeys",
        summary: "The public keys (JWKS) that check statements and exports.",
        answers: &[(200, Answer::Json("The keys.", "Jwks"))],
        codes: &[Code::NotConfigured],
        ..NONE
    },
    Operation {
        path: "/openapi.json",
        id: "openapi",
        summary: "This document.",
        answers: &[(200, Answer::Empty("The document."))],
        ..NONE
    },
];
