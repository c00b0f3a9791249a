-- Work that outlives a process: the dispatch outbox, the completer's leases, idempotent answers.

CREATE TABLE dispatches (
    session_id      text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn            integer NOT NULL,
    workspace_id    text NOT NULL,
    owner           text,
    until           timestamptz,
    fence           bigint NOT NULL DEFAULT 0,
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, turn)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX dispatches_due ON dispatches (next_attempt_at);

CREATE TABLE leases (
    session_id  text PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    owner       text,
    fence       bigint NOT NULL DEFAULT 0,
    until       timestamptz,
    next_due_at timestamptz NOT NULL DEFAULT now(),
    -- somebody asked for attention while the session was being worked on
    woken       boolean NOT NULL DEFAULT false,
    failures    integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE idempotency_keys (
    workspace_id text NOT NULL,
    scope        text NOT NULL,
    key          text NOT NULL,
    body_sha256  text NOT NULL,
    session_id   text NOT NULL,
    turn         integer NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, scope, key)
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
CREATE INDEX idempotency_keys_session ON idempotency_keys (session_id);
