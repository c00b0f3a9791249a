-- What executions of workflows report about themselves: the versions that ran, nodes, findings, usage. Every key begins with the
-- workspace, so an id may be used by two of them and neither sees the other's. And the run ids that the server gives to turns.
-- Lock order: executions before everything that names one.

CREATE TABLE config_versions (
    workspace_id text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('workflow', 'exec_spec', 'model_config', 'agent_config')),
    id           text NOT NULL,
    version      text NOT NULL,
    -- JSON text as it was sent; never changed
    body         text NOT NULL,
    sha256       text NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    recorded_by  text NOT NULL,
    -- when it was recorded last: whoever is about to name it does so again
    seen_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, kind, id, version)
);
CREATE INDEX config_versions_in_order ON config_versions (workspace_id, kind, id, recorded_at DESC, version DESC);
CREATE INDEX config_versions_by_age ON config_versions (workspace_id, seen_at);

CREATE TABLE executions (
    workspace_id     text NOT NULL,
    id               text NOT NULL,
    workflow_id      text,
    workflow_version text,
    spec_id          text,
    spec_version     text,
    model_scope      text,
    model_version    text,
    governance_mode  text CHECK (governance_mode IN ('on', 'shadow', 'off')),
    status           text NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'canceled')),
    error            text,
    started_at       timestamptz,
    completed_at     timestamptz,
    -- a JSON object as it was sent
    usage_totals     text,
    -- raised by whatever changes this row
    revision         bigint NOT NULL DEFAULT 1,
    nodes            integer NOT NULL DEFAULT 0,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    recorded_by      text NOT NULL,
    -- of this row or a node of it
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, id),
    CHECK (workflow_version IS NULL OR workflow_id IS NOT NULL),
    CHECK (spec_version IS NULL OR spec_id IS NOT NULL),
    CHECK (model_version IS NULL OR model_scope IS NOT NULL),
    CHECK (status <> 'running' OR completed_at IS NULL)
) WITH (fillfactor = 80);
CREATE INDEX executions_in_order ON executions (workspace_id, recorded_at DESC, id DESC);
CREATE INDEX executions_by_workflow ON executions (workspace_id, workflow_id, recorded_at DESC, id DESC) WHERE workflow_id IS NOT NULL;
CREATE INDEX executions_by_age ON executions (workspace_id, updated_at);
-- whether a version is still named
CREATE INDEX executions_by_spec ON executions (workspace_id, spec_id, spec_version) WHERE spec_version IS NOT NULL;
CREATE INDEX executions_by_model ON executions (workspace_id, model_scope, model_version) WHERE model_version IS NOT NULL;

CREATE TABLE execution_nodes (
    workspace_id  text NOT NULL,
    execution_id  text NOT NULL,
    node_id       text NOT NULL,
    ordinal       integer NOT NULL CHECK (ordinal >= 0),
    agent_id      text,
    agent_version text,
    -- JSON text as it was sent
    inputs        text,
    outputs       text,
    error         text,
    status        text CHECK (status IN ('pending', 'running', 'completed', 'failed', 'skipped', 'canceled')),
    retries       integer NOT NULL DEFAULT 0 CHECK (retries >= 0),
    usage         text,
    started_at    timestamptz,
    completed_at  timestamptz,
    revision      bigint NOT NULL DEFAULT 1,
    recorded_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, execution_id, node_id),
    CHECK (agent_version IS NULL OR agent_id IS NOT NULL),
    FOREIGN KEY (workspace_id, execution_id) REFERENCES executions (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX execution_nodes_in_order ON execution_nodes (workspace_id, execution_id, ordinal, node_id);
-- whether a version of an agent's configuration is still named
CREATE INDEX execution_nodes_by_agent ON execution_nodes (workspace_id, agent_id, agent_version) WHERE agent_version IS NOT NULL;

-- A session may be deleted before the execution that named it: no foreign key on that side.
CREATE TABLE execution_sessions (
    workspace_id text NOT NULL,
    execution_id text NOT NULL,
    session_id   text NOT NULL,
    session_kind text NOT NULL CHECK (session_kind IN ('agent', 'remote')),
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, execution_id, session_id),
    FOREIGN KEY (workspace_id, execution_id) REFERENCES executions (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX execution_sessions_by_session ON execution_sessions (workspace_id, session_id);

CREATE TABLE findings (
    workspace_id text NOT NULL,
    finding_id   text NOT NULL,
    workflow_id  text,
    execution_id text,
    node_id      text,
    run_id       text,
    decision     text NOT NULL,
    -- JSON text as it was sent
    body         text NOT NULL,
    at           timestamptz NOT NULL,
    -- of all of the above: the same finding again is known by it
    sha256       text NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    recorded_by  text NOT NULL,
    PRIMARY KEY (workspace_id, finding_id),
    CHECK (node_id IS NULL OR execution_id IS NOT NULL),
    FOREIGN KEY (workspace_id, execution_id) REFERENCES executions (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX findings_in_order ON findings (workspace_id, at, finding_id);
CREATE INDEX findings_by_execution ON findings (workspace_id, execution_id, at, finding_id) WHERE execution_id IS NOT NULL;
CREATE INDEX findings_by_workflow ON findings (workspace_id, workflow_id, at, finding_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX findings_by_run ON findings (workspace_id, run_id, at, finding_id) WHERE run_id IS NOT NULL;
CREATE INDEX findings_by_age ON findings (workspace_id, recorded_at);

CREATE TABLE usage_ledger (
    workspace_id  text NOT NULL,
    entry_id      text NOT NULL,
    execution_id  text,
    session_id    text,
    node_id       text,
    run_id        text,
    input_tokens  bigint NOT NULL CHECK (input_tokens >= 0),
    output_tokens bigint NOT NULL CHECK (output_tokens >= 0),
    total_tokens  bigint NOT NULL CHECK (total_tokens >= 0),
    calls         bigint NOT NULL CHECK (calls >= 0),
    cost          numeric(24, 12) CHECK (cost >= 0),
    -- ISO 4217
    currency      text,
    at            timestamptz NOT NULL,
    sha256        text NOT NULL,
    recorded_at   timestamptz NOT NULL DEFAULT now(),
    recorded_by   text NOT NULL,
    PRIMARY KEY (workspace_id, entry_id),
    CHECK (node_id IS NULL OR execution_id IS NOT NULL),
    CHECK ((cost IS NULL) = (currency IS NULL)),
    FOREIGN KEY (workspace_id, execution_id) REFERENCES executions (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX usage_ledger_in_order ON usage_ledger (workspace_id, at, entry_id);
CREATE INDEX usage_ledger_by_execution ON usage_ledger (workspace_id, execution_id, at, entry_id) WHERE execution_id IS NOT NULL;
CREATE INDEX usage_ledger_by_session ON usage_ledger (workspace_id, session_id, at, entry_id) WHERE session_id IS NOT NULL;
CREATE INDEX usage_ledger_by_run ON usage_ledger (workspace_id, run_id, at, entry_id) WHERE run_id IS NOT NULL;
CREATE INDEX usage_ledger_by_age ON usage_ledger (workspace_id, recorded_at);

-- The run a turn is, given by the server when the turn is opened; turns from before have none. Never changed: appends stay HOT.
ALTER TABLE turns ADD COLUMN run_id text;
CREATE UNIQUE INDEX turns_by_run ON turns (run_id) WHERE run_id IS NOT NULL;
-- Of a remote session: derived from session and turn, so that rows which are made again have it again.
ALTER TABLE remote_turns ADD COLUMN run_id text;
CREATE INDEX remote_turns_by_run ON remote_turns (run_id) WHERE run_id IS NOT NULL;
