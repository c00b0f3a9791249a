//! Machines, remote sessions and messages.

use bex_proto::problem::Code;

use super::{Answer, KEY, NONE, Operation};

const PAGE: &[(&str, &str)] = &[
    ("after", "nextAfter of the page before."),
    ("limit", "1 to 200; 50 when absent."),
];

/// Beside what every operation, and every one with a body, may be refused with.
const NOT_FOUND: &[Code] = &[Code::NotFound];
const VERB: &[Code] = &[
    Code::NotFound,
    Code::SessionEnded,
    Code::MachineRevoked,
    Code::CommandQueueFull,
];
const SAID: &[Code] = &[
    Code::NotFound,
    Code::SessionPaused,
    Code::SessionEnded,
    Code::MachineRevoked,
    Code::CommandQueueFull,
    Code::IdempotencyConflict,
];

/// What waits for the machine in any case, once a key.
const fn said(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    body: &'static str,
) -> Operation {
    Operation {
        method: "post",
        path,
        id,
        summary,
        headers: KEY,
        body: Some(body),
        answers: &[(
            202,
            Answer::Json("The command waits for the machine.", "CommandTold"),
        )],
        codes: SAID,
        ..NONE
    }
}

const fn verb(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method: "post",
        path,
        id,
        summary,
        body: Some("CommandReason"),
        answers: &[
            (200, Answer::Json("There was nothing to do.", "CommandTold")),
            (
                202,
                Answer::Json("The command waits for the machine.", "CommandTold"),
            ),
        ],
        codes: VERB,
        ..NONE
    }
}

const fn read(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answer: &'static [(u16, Answer)],
) -> Operation {
    Operation {
        path,
        id,
        summary,
        answers: answer,
        codes: NOT_FOUND,
        ..NONE
    }
}

/// All of them.
pub const REMOTE: &[Operation] = &[
    Operation {
        path: "/v1/agent-sessions/{id}/messages",
        id: "listAgentMessages",
        summary: "An agent session's turns as messages, by the policy of remote sessions.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "MessagePage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/machines",
        id: "registerMachine",
        summary: "Registers a machine; its token is shown this once (admin).",
        body: Some("RegisterMachine"),
        answers: &[(201, Answer::Json("Registered.", "MachineToken"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        path: "/v1/machines",
        id: "listMachines",
        summary: "Lists a workspace's machines, newest first.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "MachinePage"))],
        codes: &[
            Code::InvalidRequest,
            Code::UnknownField,
            Code::InvalidCursor,
            Code::NotFound,
        ],
        ..NONE
    },
    read(
        "/v1/machines/{id}",
        "getMachine",
        "One machine.",
        &[(200, Answer::Json("The machine.", "Machine"))],
    ),
    Operation {
        method: "post",
        path: "/v1/machines/{id}/rotate",
        id: "rotateMachineToken",
        summary: "Gives a machine another token; the former one is good for ten minutes more (admin).",
        answers: &[(
            200,
            Answer::Json("The token, shown this once.", "MachineToken"),
        )],
        codes: &[Code::NotFound, Code::MachineRevoked],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/machines/{id}/revoke",
        id: "revokeMachine",
        summary: "Makes a machine's tokens void at once and for good (admin).",
        answers: &[(200, Answer::Json("Revoked.", "Machine"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/machine/rotate",
        id: "rotateOwnToken",
        summary: "A machine replaces its own token (machine token).",
        answers: &[(
            200,
            Answer::Json("The token, shown this once.", "MachineToken"),
        )],
        codes: &[Code::MachineRevoked],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/machine/heartbeat",
        id: "heartbeat",
        summary: "A machine is there (machine token). Every other call of it says so too.",
        body: Some("Heartbeat"),
        answers: &[(204, Answer::Empty("Noted."))],
        codes: &[],
        ..NONE
    },
    Operation {
        path: "/v1/machine/commands",
        id: "takeCommands",
        summary: "Waits for commands (machine token). A command comes until it is answered, at least once.",
        query: &[
            ("waitSeconds", "0 to 25; 25 when absent."),
            (
                "sessionId",
                "Only of this session; of all the machine's when absent.",
            ),
        ],
        answers: &[(200, Answer::Json("Commands, or none.", "CommandPage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/machine/commands/{id}",
        id: "answerCommand",
        summary: "Says what became of a command (machine token).",
        body: Some("CommandResult"),
        answers: &[(204, Answer::Empty("Noted."))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions",
        id: "createRemoteSession",
        summary: "Creates a session on a machine (operator).",
        headers: KEY,
        body: Some("CreateRemoteSession"),
        answers: &[(
            201,
            Answer::Json("Created; Location names it.", "RemoteSession"),
        )],
        codes: &[
            Code::NotFound,
            Code::MachineRevoked,
            Code::IdempotencyConflict,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/remote-sessions",
        id: "listRemoteSessions",
        summary: "Lists a workspace's remote sessions, newest first.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("state", "May be repeated."),
            ("archived", "false (the default), true or all."),
            ("machineId", "Of this machine."),
            (
                "q",
                "Words that all stand in the title or in what a person said, as in the list of agent sessions.",
            ),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "RemoteSessionPage"))],
        codes: &[
            Code::InvalidRequest,
            Code::UnknownField,
            Code::InvalidCursor,
            Code::NotFound,
        ],
        ..NONE
    },
    read(
        "/v1/remote-sessions/{id}",
        "getRemoteSession",
        "One remote session, whatever its state.",
        &[(200, Answer::Json("The session.", "RemoteSession"))],
    ),
    Operation {
        method: "delete",
        path: "/v1/remote-sessions/{id}",
        id: "deleteRemoteSession",
        summary: "Deletes a session that has ended, with everything it holds (admin).",
        answers: &[(204, Answer::Empty("Deleted."))],
        codes: &[Code::NotFound, Code::NotDeletable, Code::LegalHold],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/archive",
        id: "archiveRemoteSession",
        summary: "Takes a session out of the list (operator).",
        answers: &[(200, Answer::Json("Archived.", "RemoteSession"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/unarchive",
        id: "unarchiveRemoteSession",
        summary: "Puts a session back into the list (operator).",
        answers: &[(200, Answer::Json("In the list.", "RemoteSession"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/legal-hold",
        id: "holdRemoteSession",
        summary: "Keeps a session from deletion and retention (admin).",
        answers: &[(200, Answer::Json("Held.", "RemoteSession"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "delete",
        path: "/v1/remote-sessions/{id}/legal-hold",
        id: "releaseRemoteSession",
        summary: "Lifts a session's legal hold (admin).",
        answers: &[(200, Answer::Json("Free.", "RemoteSession"))],
        codes: NOT_FOUND,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/rebuild",
        id: "rebuildRemoteSession",
        summary: "Makes turns and messages again from the log (admin).",
        answers: &[(202, Answer::Json("They are being made.", "RemoteSession"))],
        codes: &[Code::InvalidRequest, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/attach-ticket",
        id: "mintRemoteTicket",
        summary: "A ticket for the session's event stream at the gateway.",
        answers: &[(200, Answer::Json("The ticket.", "AttachTicket"))],
        codes: NOT_FOUND,
        ..NONE
    },
    said(
        "/v1/remote-sessions/{id}/chat",
        "chat",
        "Says something to the agent; its message is there at once (operator).",
        "ChatRequest",
    ),
    verb(
        "/v1/remote-sessions/{id}/abort",
        "abort",
        "Aborts the turn; what it said is kept (operator).",
    ),
    verb(
        "/v1/remote-sessions/{id}/stop",
        "stopRemoteSession",
        "Ends the session, with what its machine has still to say (operator).",
    ),
    verb(
        "/v1/remote-sessions/{id}/pause",
        "pause",
        "Holds the session; it takes no chat then (operator).",
    ),
    verb(
        "/v1/remote-sessions/{id}/resume",
        "resume",
        "Lets a paused session go on (operator).",
    ),
    said(
        "/v1/remote-sessions/{id}/permission",
        "answerPermission",
        "Answers a permission request (operator).",
        "PermissionRequest",
    ),
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/output",
        id: "reportOutput",
        summary: "Reports events, one JSON object a line, at most 8 MiB and 20 000 of them (machine token). Repeating is safe.",
        lines: Some("OutputEvent"),
        answers: &[(200, Answer::Json("Each event is stored.", "OutputAccepted"))],
        codes: &[
            Code::InvalidRequest,
            Code::InvalidJson,
            Code::UnknownField,
            Code::NotFound,
            Code::SessionEnded,
            Code::EventConflict,
            Code::EventTooFar,
            Code::LogFull,
            Code::Backlog,
        ],
        ..NONE
    },
    Operation {
        path: "/v1/remote-sessions/{id}/output",
        id: "readOutput",
        summary: "The log, as it was reported.",
        query: &[
            ("from", "nextFrom of the page before; 0 when absent."),
            ("limit", "1 to 1000; 200 when absent."),
        ],
        answers: &[(200, Answer::Json("One page.", "OutputPage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/import",
        id: "importRecord",
        summary: "Hands in a program's own record, at most 8 MiB (machine token). What was seen live adds nothing.",
        lines: Some(""),
        answers: &[(200, Answer::Json("It is kept.", "ImportAnswer"))],
        codes: &[
            Code::InvalidRequest,
            Code::NotFound,
            Code::LogFull,
            Code::Backlog,
        ],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/status",
        id: "reportStatus",
        summary: "Says how the session ends and how many events there are (machine token).",
        body: Some("RemoteStatus"),
        answers: &[(200, Answer::Json("Noted.", "RemoteSession"))],
        codes: &[Code::NotFound, Code::EventTooFar],
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/remote-sessions/{id}/usage",
        id: "reportUsage",
        summary: "Reports tokens and requests, counted once by the report's id (machine token).",
        body: Some("UsageReport"),
        answers: &[(200, Answer::Json("Counted.", "UsageCounted"))],
        codes: &[Code::NotFound, Code::ReportConflict],
        ..NONE
    },
    Operation {
        path: "/v1/remote-sessions/{id}/messages",
        id: "listMessages",
        summary: "Messages in order.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "MessagePage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
    Operation {
        path: "/v1/remote-sessions/{id}/turns",
        id: "listRemoteTurns",
        summary: "Turns in order, with everything that was said in them.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "RemoteTurnPage"))],
        codes: &[Code::InvalidRequest, Code::UnknownField, Code::NotFound],
        ..NONE
    },
];
