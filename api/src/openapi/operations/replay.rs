//! Replay packages.

use bex_proto::problem::Code;

use super::{Answer, NONE, Operation};

const WORKSPACE: &[(&str, &str)] = &[(
    "workspaceId",
    "Whose; needed where several of the caller's workspaces have an execution of this id.",
)];

const CODES: &[Code] = &[
    Code::InvalidRequest,
    Code::UnknownField,
    Code::NotFound,
    Code::PackageTooLarge,
    Code::TooManyPackages,
    Code::GateRefused,
    Code::NotConfigured,
];

const fn package(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        path,
        id,
        summary,
        query: WORKSPACE,
        answers: &[(200, Answer::Json("Where it is, and until when.", "Package"))],
        codes: CODES,
        ..NONE
    }
}

/// All of them.
pub const REPLAY: &[Operation] = &[
    package(
        "/replay/by-execution/{id}",
        "packageExecution",
        "Makes a sanitised package of an execution, or renews the one with the same content.",
    ),
    package(
        "/replay/by-conversation/{id}",
        "packageConversation",
        "The same of an agent or remote session.",
    ),
    package(
        "/replay/by-run/{id}",
        "packageRun",
        "The same of one turn of a session.",
    ),
    Operation {
        path: "/replay/objects/{org}/{of}/{file}",
        id: "fetchPackage",
        summary: "A package of the local store, by the URL that an ask answered: it needs no token and is good for GET until it expires.",
        query: &[
            ("expires", "Of the URL."),
            ("kid", "Of the URL."),
            ("signature", "Of the URL."),
        ],
        answers: &[(200, Answer::File("The package.", &["application/json"]))],
        codes: &[Code::UrlInvalid, Code::NotFound, Code::NotConfigured],
        ..NONE
    },
];
