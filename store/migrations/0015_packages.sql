-- Replay packages that were made: when the first with this content was, so that the next with the same content is the same bytes. The object
-- itself lies elsewhere and is removed there.

CREATE TABLE packages (
    workspace_id text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('execution', 'conversation', 'run')),
    -- of what it is
    id           text NOT NULL,
    package_id   text NOT NULL,
    generated_at timestamptz NOT NULL,
    -- when it was asked for last: its object is as old
    renewed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, kind, id, package_id)
);
CREATE INDEX packages_by_age ON packages (renewed_at);

-- An execution is asked for by its id alone, and whoever builds a package looks for rows of others that name what is in it.
CREATE INDEX executions_by_id ON executions (id);
CREATE INDEX execution_nodes_by_execution ON execution_nodes (execution_id);
CREATE INDEX execution_sessions_by_execution ON execution_sessions (execution_id);
CREATE INDEX findings_naming_execution ON findings (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX findings_naming_run ON findings (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX usage_ledger_naming_execution ON usage_ledger (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX usage_ledger_naming_session ON usage_ledger (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX usage_ledger_naming_run ON usage_ledger (run_id) WHERE run_id IS NOT NULL;
