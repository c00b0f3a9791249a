-- Sessions, their turns and their sandboxes. Lock order everywhere: leases, sessions, dispatches, transcript_heads,
-- turns, sandboxes.

CREATE TABLE sessions (
    id              text PRIMARY KEY,
    workspace_id    text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('interactive', 'autonomous')),
    workflow_id     text,
    title           text,
    repo            text,
    branch          text,
    -- the agent request as JSON text: profile, model, args, env references; never a secret value
    agent           text NOT NULL,
    created_by      text NOT NULL,
    phase           text NOT NULL CHECK (phase IN
                        ('creating', 'running', 'redispatching', 'completed', 'failed', 'canceling', 'canceled')),
    failure_reason  text,
    turns           integer NOT NULL,
    prompt_bytes    bigint NOT NULL,
    -- the highest sandbox generation ever given out; only grows
    generation      integer NOT NULL DEFAULT 0,
    legal_hold      boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    archived_at     timestamptz,
    cancel_requested_at timestamptz,
    canceled_at     timestamptz,
    CHECK ((kind = 'autonomous') = (workflow_id IS NOT NULL))
) WITH (fillfactor = 80);

CREATE INDEX sessions_by_workspace ON sessions (workspace_id, created_at DESC, id DESC);
CREATE INDEX sessions_active ON sessions (workspace_id)
    WHERE phase IN ('creating', 'running', 'redispatching', 'canceling');
CREATE INDEX sessions_canceling ON sessions (id) WHERE phase = 'canceling';

CREATE TABLE turns (
    session_id          text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn                integer NOT NULL CHECK (turn > 0),
    prompt              text NOT NULL,
    delivery_mode       text NOT NULL DEFAULT 'pending' CHECK (delivery_mode IN ('pending', 'fresh', 'live')),
    generation          integer NOT NULL DEFAULT 0,
    delivery_started_at timestamptz,
    delivered_at        timestamptz,
    stop_requested_at   timestamptz,
    verdict             text NOT NULL DEFAULT 'open' CHECK (verdict IN ('open', 'complete', 'truncated')),
    reason              text,
    ended_by            text,
    driver_state        text CHECK (driver_state IN ('succeeded', 'failed', 'stopped')),
    expected_parts      integer,
    expected_sha256     text,
    dropped_first       integer,
    dropped_last        integer,
    dropped_count       integer,
    unstorable          boolean NOT NULL DEFAULT false,
    mismatch_index      integer,
    rejudge             boolean NOT NULL DEFAULT false,
    stored_parts        integer NOT NULL DEFAULT 0,
    stored_bytes        bigint NOT NULL DEFAULT 0,
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    last_part_at        timestamptz,
    settled_at          timestamptz,
    healed_at           timestamptz,
    PRIMARY KEY (session_id, turn),
    CHECK ((verdict = 'truncated') = (reason IS NOT NULL)),
    CHECK ((verdict = 'open') = (settled_at IS NULL))
) WITH (fillfactor = 50, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.05);
-- append updates this row with every batch: no index names a column it changes (HOT), and a long prompt lies in TOAST

CREATE UNIQUE INDEX turns_one_open ON turns (session_id) WHERE verdict = 'open';
CREATE INDEX turns_rejudge ON turns (session_id) WHERE rejudge;

CREATE TABLE sandboxes (
    session_id        text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    generation        integer NOT NULL,
    -- the turn it was made for, and the turn it speaks or spoke last
    first_turn        integer NOT NULL,
    turn              integer NOT NULL,
    kind              text NOT NULL,
    namespace         text NOT NULL,
    pod               text NOT NULL,
    pod_uid           text,
    container         text NOT NULL,
    legacy            boolean NOT NULL,
    driver_kid        text NOT NULL,
    state             text NOT NULL CHECK (state IN ('creating', 'turn', 'idle', 'stopping', 'gone')),
    created_at        timestamptz NOT NULL DEFAULT now(),
    ready_at          timestamptz,
    idle_since        timestamptz,
    gone_at           timestamptz,
    teardown_attempts integer NOT NULL DEFAULT 0,
    teardown_after    timestamptz,
    PRIMARY KEY (session_id, generation)
);

CREATE INDEX sandboxes_living ON sandboxes (session_id) WHERE state <> 'gone';
