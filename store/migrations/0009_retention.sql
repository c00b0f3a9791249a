-- How long a workspace's sessions and audit rows are kept, and what is being forgotten.

CREATE TABLE workspace_policies (
    workspace_id   text PRIMARY KEY,
    -- null: as the deployment says; 0: for ever
    retention_days integer CHECK (retention_days >= 0),
    -- the workspace is to be deleted: it takes no new session
    deleting_since timestamptz,
    updated_by     text NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now()
);

-- Sessions that are gone and whose parts are still to be removed. A session's row goes with all that refers to it in one short
-- transaction, and from then on nobody can see its parts; those, which may be many, are removed in batches.
CREATE TABLE deletions (
    session_id   text PRIMARY KEY,
    workspace_id text NOT NULL,
    deleted_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX deletions_age ON deletions (deleted_at);
