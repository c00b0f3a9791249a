-- Who may look, who looked, and what changed. These rows outlive the sessions they name. Identity columns, not
-- serials: inserting then needs no grant on a sequence.

CREATE TABLE ticket_nonces (
    jti        text PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
CREATE INDEX ticket_nonces_expiry ON ticket_nonces (expires_at);

CREATE TABLE revocations (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id text NOT NULL,
    subject      text,
    session_id   text,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX revocations_by_workspace ON revocations (workspace_id, created_at);

CREATE TABLE stream_audit (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id   text NOT NULL,
    session_id     text NOT NULL,
    subject        text NOT NULL,
    action         text NOT NULL,
    instance       text NOT NULL,
    remote_address text NOT NULL,
    opened_at      timestamptz NOT NULL DEFAULT now(),
    closed_at      timestamptz,
    result         text,
    parts          bigint,
    bytes          bigint
);
CREATE INDEX stream_audit_by_session ON stream_audit (session_id, opened_at);
CREATE INDEX stream_audit_age ON stream_audit (workspace_id, opened_at);

CREATE TABLE audit_events (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id text NOT NULL,
    subject      text NOT NULL,
    action       text NOT NULL,
    session_id   text,
    result       text NOT NULL,
    detail       text,
    at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_events_age ON audit_events (workspace_id, at);

-- what LISTEN would have said, for processes that poll
CREATE TABLE changes (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL,
    payload text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX changes_age ON changes (at);
