//! Executions of workflows, and what is recorded beside them.

use bex_proto::problem::Code;

use super::{Answer, NONE, Operation};

const WORKSPACE: &[(&str, &str)] =
    &[("workspaceId", "May be absent for callers of one workspace.")];
const PAGE: &[(&str, &str)] = &[
    ("workspaceId", "May be absent for callers of one workspace."),
    ("limit", "1 to 200; 50 when absent."),
    ("cursor", "nextCursor of the page before."),
];
const READ: &[Code] = &[Code::InvalidRequest, Code::UnknownField, Code::NotFound];
const LIST: &[Code] = &[
    Code::InvalidRequest,
    Code::UnknownField,
    Code::InvalidCursor,
    Code::NotFound,
];
const RECORD: &[Code] = &[Code::NotFound, Code::RecordConflict, Code::ExecutionFull];
const BATCH: &[Code] = &[Code::NotFound, Code::RecordConflict];

const fn record_version(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method: "put",
        path,
        id,
        summary,
        query: WORKSPACE,
        body: Some("ConfigBody"),
        answers: &[
            (
                200,
                Answer::Json("The same was recorded before.", "ConfigVersion"),
            ),
            (201, Answer::Json("Recorded.", "ConfigVersion")),
        ],
        codes: &[Code::NotFound, Code::VersionConflict],
        ..NONE
    }
}

/// All of them.
pub const EXECUTIONS: &[Operation] = &[
    Operation {
        method: "put",
        path: "/v1/executions/{id}",
        id: "recordExecution",
        summary: "Records an execution, or what is new of it: facts stay, its status moves forward only (operator).",
        query: WORKSPACE,
        body: Some("RecordExecution"),
        answers: &[
            (
                200,
                Answer::Json("It was there, and has what is new.", "Execution"),
            ),
            (
                201,
                Answer::Json("Recorded; Location names it.", "Execution"),
            ),
        ],
        codes: RECORD,
        ..NONE
    },
    Operation {
        path: "/v1/executions",
        id: "listExecutions",
        summary: "Lists a workspace's executions, those that were recorded last first.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("workflowId", "Exactly this workflow."),
            ("status", "May be repeated; any of these."),
            ("recordedBefore", "ISO-8601, exclusive."),
            ("recordedAfter", "ISO-8601, exclusive."),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "ExecutionPage"))],
        codes: LIST,
        ..NONE
    },
    Operation {
        path: "/v1/executions/{id}",
        id: "getExecution",
        summary: "One execution with its sessions, the versions that ran and the sum of its usage.",
        query: WORKSPACE,
        answers: &[(200, Answer::Json("The execution.", "ExecutionDetail"))],
        codes: READ,
        ..NONE
    },
    Operation {
        method: "delete",
        path: "/v1/executions/{id}",
        id: "deleteExecution",
        summary: "Deletes an execution with its nodes, findings and usage (admin).",
        query: WORKSPACE,
        answers: &[(204, Answer::Empty("Deleted."))],
        codes: &[
            Code::InvalidRequest,
            Code::UnknownField,
            Code::NotFound,
            Code::LegalHold,
        ],
        ..NONE
    },
    Operation {
        method: "put",
        path: "/v1/executions/{id}/nodes/{nodeId}",
        id: "recordNode",
        summary: "Records a node of an execution, or what is new of it (operator).",
        query: WORKSPACE,
        body: Some("RecordNode"),
        answers: &[
            (
                200,
                Answer::Json("It was there, and has what is new.", "ExecutionNode"),
            ),
            (201, Answer::Json("Recorded.", "ExecutionNode")),
        ],
        codes: RECORD,
        ..NONE
    },
    Operation {
        path: "/v1/executions/{id}/nodes",
        id: "listNodes",
        summary: "Nodes of an execution in their order; a page is at most about 4 MiB.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "NodePage"))],
        codes: LIST,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/findings",
        id: "recordFindings",
        summary: "Records findings, all of a batch or nothing; the same again changes nothing (operator).",
        query: WORKSPACE,
        body: Some("RecordFindings"),
        answers: &[(200, Answer::Json("Recorded.", "RecordedBatch"))],
        codes: BATCH,
        ..NONE
    },
    Operation {
        path: "/v1/findings",
        id: "listFindings",
        summary: "Findings in the order in which they were decided; a page is at most about 4 MiB.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("executionId", "Only those about this execution."),
            ("workflowId", "Only those about this workflow."),
            ("runId", "Only those about this run."),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "FindingPage"))],
        codes: LIST,
        ..NONE
    },
    Operation {
        method: "post",
        path: "/v1/usage",
        id: "recordUsage",
        summary: "Records usage entries, all of a batch or nothing; the same again counts once (operator).",
        query: WORKSPACE,
        body: Some("RecordUsage"),
        answers: &[(200, Answer::Json("Recorded.", "RecordedBatch"))],
        codes: BATCH,
        ..NONE
    },
    Operation {
        path: "/v1/usage",
        id: "listUsage",
        summary: "Usage entries in the order of time.",
        query: &[
            ("workspaceId", "May be absent for callers of one workspace."),
            ("executionId", "Only an execution's."),
            ("sessionId", "Only a session's."),
            ("runId", "Only a run's."),
            ("limit", "1 to 200; 50 when absent."),
            ("cursor", "nextCursor of the page before."),
        ],
        answers: &[(200, Answer::Json("One page.", "UsagePage"))],
        codes: LIST,
        ..NONE
    },
    record_version(
        "/v1/workflows/{configId}/versions/{version}",
        "recordWorkflowVersion",
        "Records a version of a workflow; the body is the configuration itself, and never changes (operator).",
    ),
    Operation {
        path: "/v1/workflows/{configId}/versions/{version}",
        id: "getWorkflowVersion",
        summary: "One version of a workflow, with its body.",
        query: WORKSPACE,
        answers: &[(200, Answer::Json("The version.", "ConfigVersion"))],
        codes: READ,
        ..NONE
    },
    Operation {
        path: "/v1/workflows/{configId}/versions",
        id: "listWorkflowVersions",
        summary: "Versions of a workflow without bodies, those that were recorded last first.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "VersionPage"))],
        codes: LIST,
        ..NONE
    },
    record_version(
        "/v1/exec-specs/{configId}/versions/{version}",
        "recordExecSpecVersion",
        "Records a version of an execution spec; the body is the configuration itself, and never changes (operator).",
    ),
    Operation {
        path: "/v1/exec-specs/{configId}/versions/{version}",
        id: "getExecSpecVersion",
        summary: "One version of an execution spec, with its body.",
        query: WORKSPACE,
        answers: &[(200, Answer::Json("The version.", "ConfigVersion"))],
        codes: READ,
        ..NONE
    },
    Operation {
        path: "/v1/exec-specs/{configId}/versions",
        id: "listExecSpecVersions",
        summary: "Versions of an execution spec without bodies, those that were recorded last first.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "VersionPage"))],
        codes: LIST,
        ..NONE
    },
    record_version(
        "/v1/model-configs/{configId}/versions/{version}",
        "recordModelConfigVersion",
        "Records a version of the models of a scope; the body is the configuration itself, and never changes (operator).",
    ),
    Operation {
        path: "/v1/model-configs/{configId}/versions/{version}",
        id: "getModelConfigVersion",
        summary: "One version of the models of a scope, with its body.",
        query: WORKSPACE,
        answers: &[(200, Answer::Json("The version.", "ConfigVersion"))],
        codes: READ,
        ..NONE
    },
    Operation {
        path: "/v1/model-configs/{configId}/versions",
        id: "listModelConfigVersions",
        summary: "Versions of the models of a scope without bodies, those that were recorded last first.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "VersionPage"))],
        codes: LIST,
        ..NONE
    },
    record_version(
        "/v1/agent-configs/{configId}/versions/{version}",
        "recordAgentConfigVersion",
        "Records a version of an agent's configuration; the body is the configuration itself, and never changes (operator).",
    ),
    Operation {
        path: "/v1/agent-configs/{configId}/versions/{version}",
        id: "getAgentConfigVersion",
        summary: "One version of an agent's configuration, with its body.",
        query: WORKSPACE,
        answers: &[(200, Answer::Json("The version.", "ConfigVersion"))],
        codes: READ,
        ..NONE
    },
    Operation {
        path: "/v1/agent-configs/{configId}/versions",
        id: "listAgentConfigVersions",
        summary: "Versions of an agent's configuration without bodies, those that were recorded last first.",
        query: PAGE,
        answers: &[(200, Answer::Json("One page.", "VersionPage"))],
        codes: LIST,
        ..NONE
    },
];
