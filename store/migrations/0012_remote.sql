-- Agents on machines that are not ours: who may report, what was reported, and the turns and messages made from it.
-- Lock order among these: remote_sessions, remote_heads.

CREATE TABLE machines (
    id           text PRIMARY KEY,
    workspace_id text NOT NULL,
    name         text NOT NULL,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz,
    -- what it says of itself, JSON text
    detail       text,
    revoked_at   timestamptz
);
CREATE INDEX machines_by_workspace ON machines (workspace_id, created_at DESC, id DESC);

CREATE TABLE machine_tokens (
    sha256     text PRIMARY KEY,
    machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- a former token, after a rotation
    expires_at timestamptz
);
CREATE INDEX machine_tokens_of ON machine_tokens (machine_id);

CREATE TABLE remote_sessions (
    id              text PRIMARY KEY,
    workspace_id    text NOT NULL,
    machine_id      text NOT NULL REFERENCES machines (id),
    kind            text NOT NULL CHECK (kind IN ('interactive', 'autonomous')),
    activity        text NOT NULL CHECK (activity IN ('chat', 'agent', 'terminal', 'workflow')),
    workflow_id     text,
    title           text,
    project_path    text,
    cli_tool        text,
    model           text,
    created_by      text NOT NULL,
    state           text NOT NULL DEFAULT 'active'
                        CHECK (state IN ('active', 'paused', 'ending', 'completed', 'stopped', 'error')),
    -- how it ends, how many events its machine says there are, and since when that is known
    ending_as       text CHECK (ending_as IN ('completed', 'stopped', 'error')),
    ending_index    bigint,
    ending_since    timestamptz,
    error           text,
    cli_session_id  text,
    input_tokens    bigint NOT NULL DEFAULT 0,
    output_tokens   bigint NOT NULL DEFAULT 0,
    cache_read_tokens  bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    request_count   bigint NOT NULL DEFAULT 0,
    legal_hold      boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    paused_at       timestamptz,
    ended_at        timestamptz,
    archived_at     timestamptz,
    CHECK ((kind = 'autonomous') = (workflow_id IS NOT NULL)),
    CHECK ((activity = 'workflow') = (workflow_id IS NOT NULL)),
    CHECK ((state IN ('active', 'paused')) = (ending_as IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX remote_sessions_by_workspace ON remote_sessions (workspace_id, created_at DESC, id DESC);
CREATE INDEX remote_sessions_live ON remote_sessions (id) WHERE state IN ('active', 'paused', 'ending');
CREATE INDEX remote_sessions_of_machine ON remote_sessions (machine_id);

CREATE TABLE remote_heads (
    session_id    text PRIMARY KEY REFERENCES remote_sessions (id) ON DELETE CASCADE,
    -- every event below is there, or was given up as a gap
    next_index    bigint NOT NULL DEFAULT 0,
    -- one above the highest that is there
    high_index    bigint NOT NULL DEFAULT 0,
    -- events below were removed by the retention
    first_index   bigint NOT NULL DEFAULT 0,
    bytes         bigint NOT NULL DEFAULT 0,
    byte_limit    bigint NOT NULL,
    -- of them, those that the builder has read, or never will
    seen_bytes    bigint NOT NULL DEFAULT 0,
    -- since when an event is missing that others follow, and whether one of these said that the program ended
    gap_since     timestamptz,
    last_seen     boolean NOT NULL DEFAULT false,
    gaps          integer NOT NULL DEFAULT 0,
    -- the builder: where another may start, how many rows it wrote, how far it has read
    cursor_index  bigint NOT NULL DEFAULT 0,
    cursor_offset integer NOT NULL DEFAULT 0,
    cursor_ordinal bigint NOT NULL DEFAULT 0,
    built         bigint NOT NULL DEFAULT 0,
    seen_index    bigint NOT NULL DEFAULT 0,
    seen_at       timestamptz NOT NULL DEFAULT now(),
    -- raised by whoever writes rows from the log or an import
    revision      bigint NOT NULL DEFAULT 0,
    next_position bigint NOT NULL DEFAULT 0,
    message_count bigint NOT NULL DEFAULT 0,
    turn_count    bigint NOT NULL DEFAULT 0,
    -- imports whose rows are not written
    imports_waiting integer NOT NULL DEFAULT 0
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.02);

-- No foreign key, as with transcript_parts: the head stands in for it.
CREATE TABLE remote_events (
    session_id  text NOT NULL,
    event_index bigint NOT NULL CHECK (event_index >= 0),
    stream      text NOT NULL,
    data        text NOT NULL,
    complete    boolean NOT NULL,
    spoken_at   timestamptz,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (session_id, event_index)
);
ALTER TABLE remote_events ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE remote_events SET (toast_tuple_target = 8160);
CREATE INDEX remote_events_age ON remote_events USING brin (created_at);

-- events that were given up: first and last
CREATE TABLE remote_gaps (
    session_id text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    from_index bigint NOT NULL,
    to_index   bigint NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, from_index),
    CHECK (from_index <= to_index)
);

CREATE TABLE remote_turns (
    session_id      text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    turn_id         text NOT NULL,
    -- counted from 0 in the order in which turns were written
    turn_no         bigint NOT NULL,
    visible_text    text NOT NULL,
    content_blocks  text NOT NULL,
    -- lists as JSON text
    tool_call_ids   text NOT NULL,
    evidence_ids    text NOT NULL,
    terminal_reason text NOT NULL,
    gaps            text NOT NULL,
    overflow        boolean NOT NULL,
    source          text NOT NULL,
    model           text,
    -- of its events in the log; an import has none
    first_index     bigint,
    last_index      bigint,
    started_at      timestamptz NOT NULL,
    completed_at    timestamptz NOT NULL,
    -- of the visible text, where there is any: an import of what was seen live is known by it
    text_sha256     text,
    PRIMARY KEY (session_id, turn_id)
);
CREATE INDEX remote_turns_by_text ON remote_turns (session_id, text_sha256) WHERE text_sha256 IS NOT NULL;
CREATE UNIQUE INDEX remote_turns_in_order ON remote_turns (session_id, turn_no);
CREATE INDEX remote_turns_by_event ON remote_turns (session_id, last_index) WHERE last_index IS NOT NULL;

CREATE TABLE messages (
    session_id     text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    position       bigint NOT NULL,
    message_id     text NOT NULL,
    role           text NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
    content        text NOT NULL,
    content_blocks text,
    source         text NOT NULL,
    turn_id        text,
    model          text,
    said_at        timestamptz NOT NULL,
    PRIMARY KEY (session_id, position)
);
CREATE UNIQUE INDEX messages_once ON messages (session_id, message_id);

-- what providers call the pieces that were told already
CREATE TABLE message_origins (
    session_id text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    origin     text NOT NULL,
    PRIMARY KEY (session_id, origin)
);

-- A program's own record, handed in: kept, so that turns and messages can be made again. Its rows stand behind the first `after_built`
-- rows of the log.
CREATE TABLE remote_imports (
    session_id  text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    sha256      text NOT NULL,
    ordinal     bigint GENERATED ALWAYS AS IDENTITY,
    lines       text NOT NULL,
    after_built bigint NOT NULL,
    applied     boolean NOT NULL DEFAULT false,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, sha256)
);

CREATE TABLE remote_commands (
    id           text PRIMARY KEY,
    session_id   text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    machine_id   text NOT NULL,
    ordinal      bigint GENERATED ALWAYS AS IDENTITY,
    kind         text NOT NULL CHECK (kind IN ('chat', 'abort', 'stop', 'pause', 'resume', 'permission')),
    payload      text NOT NULL,
    state        text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'failed', 'void')),
    -- of the user row that a chat wrote
    position     bigint,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    done_at      timestamptz,
    result       text
);
CREATE INDEX remote_commands_waiting ON remote_commands (machine_id, ordinal) WHERE state = 'waiting';
CREATE INDEX remote_commands_of ON remote_commands (session_id, ordinal);

CREATE TABLE usage_reports (
    session_id text NOT NULL REFERENCES remote_sessions (id) ON DELETE CASCADE,
    report_id  text NOT NULL,
    sha256     text NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, report_id)
);

-- The one way an event is stored. As with bex_append, the head's lock makes identity, quota and order one decision.
--
-- status: stored | unknown | ended | conflict | too_far | full | backlog. Only `stored` changes anything; events that were there before
-- are always answered as `stored`.
CREATE FUNCTION bex_remote_append(
    p_session text, p_machine text,
    p_index bigint[], p_stream text[], p_data text[], p_complete boolean[], p_spoken_at timestamptz[],
    p_window bigint, p_charge integer, p_backlog bigint,
    OUT status text, OUT stored bigint, OUT duplicates bigint, OUT next_index bigint, OUT at_index bigint
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    head    public.remote_heads%ROWTYPE;
    v_state text;
    v_low   bigint;
    v_high  bigint;
    v_take  integer[];
    v_bytes bigint;
    v_late  bigint;
    v_last  boolean;
BEGIN
    status := 'stored'; stored := 0; duplicates := 0;
    SELECT * INTO head FROM public.remote_heads h WHERE h.session_id = p_session FOR UPDATE;
    IF NOT FOUND THEN status := 'unknown'; RETURN; END IF;
    SELECT s.state INTO v_state FROM public.remote_sessions s WHERE s.id = p_session AND s.machine_id = p_machine;
    IF NOT FOUND THEN status := 'unknown'; RETURN; END IF;
    next_index := head.next_index;

    SELECT min(u.idx), max(u.idx) INTO v_low, v_high FROM unnest(p_index) AS u (idx);
    IF v_low IS NULL THEN RETURN; END IF;
    IF v_low >= head.high_index THEN
        -- the common case: nothing of it can be there, but in the batch itself
        SELECT array_agg(b.ord ORDER BY b.idx), COALESCE(sum(octet_length(p_data[b.ord]) + p_charge), 0)
          INTO v_take, v_bytes
          FROM (SELECT DISTINCT ON (u.idx) u.idx, u.ord::integer AS ord
                  FROM unnest(p_index) WITH ORDINALITY AS u (idx, ord) ORDER BY u.idx, u.ord) b;
        duplicates := cardinality(p_index) - cardinality(v_take);
        SELECT min(a.idx) INTO at_index
          FROM unnest(p_index, p_data) AS a (idx, data)
         WHERE duplicates > 0 AND EXISTS (SELECT 1 FROM unnest(v_take) AS t (ord)
                 WHERE p_index[t.ord] = a.idx AND p_data[t.ord] <> a.data);
    ELSE
        SELECT array_agg(b.ord ORDER BY b.idx) FILTER (WHERE e.data IS NULL),
               COALESCE(sum(octet_length(p_data[b.ord]) + p_charge) FILTER (WHERE e.data IS NULL), 0),
               min(b.idx) FILTER (WHERE e.data IS NOT NULL
                   AND (e.data <> p_data[b.ord] OR e.stream <> p_stream[b.ord] OR e.complete <> p_complete[b.ord]))
          INTO v_take, v_bytes, at_index
          FROM (SELECT DISTINCT ON (u.idx) u.idx, u.ord::integer AS ord
                  FROM unnest(p_index) WITH ORDINALITY AS u (idx, ord) ORDER BY u.idx, u.ord) b
          LEFT JOIN LATERAL (
                SELECT x.data, x.stream, x.complete FROM public.remote_events x
                 WHERE x.session_id = p_session AND x.event_index = b.idx AND b.idx >= head.first_index
                OFFSET 0) e ON true
         WHERE b.idx >= head.first_index;
        v_take := COALESCE(v_take, '{}');
        duplicates := cardinality(p_index) - cardinality(v_take);
    END IF;
    IF at_index IS NOT NULL THEN status := 'conflict'; duplicates := 0; RETURN; END IF;
    stored := cardinality(v_take);
    IF stored = 0 THEN RETURN; END IF;

    IF v_state NOT IN ('active', 'paused', 'ending') THEN status := 'ended'; stored := 0; RETURN; END IF;
    IF v_high >= head.next_index + p_window + cardinality(p_index) THEN
        status := 'too_far'; stored := 0; at_index := v_high; RETURN;
    END IF;
    IF head.bytes + v_bytes > head.byte_limit THEN status := 'full'; stored := 0; RETURN; END IF;
    IF head.bytes - head.seen_bytes > p_backlog THEN status := 'backlog'; stored := 0; RETURN; END IF;

    INSERT INTO public.remote_events (session_id, event_index, stream, data, complete, spoken_at, created_at)
    SELECT p_session, p_index[u.ord], p_stream[u.ord], p_data[u.ord], p_complete[u.ord], p_spoken_at[u.ord],
           clock_timestamp()
      FROM unnest(v_take) AS u (ord);
    v_low := p_index[v_take[1]];
    v_high := p_index[v_take[cardinality(v_take)]];
    SELECT bool_or(p_complete[u.ord] AND p_stream[u.ord] = 'stdout'),
           COALESCE(sum(octet_length(p_data[u.ord]) + p_charge) FILTER (WHERE p_index[u.ord] < head.next_index), 0)
      INTO v_last, v_late FROM unnest(v_take) AS u (ord);

    IF v_low <= head.next_index AND head.high_index <= head.next_index AND v_high - v_low + 1 = stored THEN
        next_index := GREATEST(head.next_index, v_high + 1);
    ELSIF v_low <= head.next_index OR head.next_index < head.high_index THEN
        next_index := public.bex_remote_first_missing(p_session, head.next_index, GREATEST(head.high_index, v_high + 1));
    END IF;
    UPDATE public.remote_heads h
       SET next_index = bex_remote_append.next_index,
           high_index = GREATEST(h.high_index, v_high + 1),
           bytes = h.bytes + v_bytes,
           seen_bytes = h.seen_bytes + v_late,
           gap_since = CASE WHEN bex_remote_append.next_index >= GREATEST(h.high_index, v_high + 1) THEN NULL
                            WHEN bex_remote_append.next_index > h.next_index OR h.gap_since IS NULL THEN clock_timestamp()
                            ELSE h.gap_since END,
           last_seen = bex_remote_append.next_index < GREATEST(h.high_index, v_high + 1) AND (h.last_seen OR v_last)
     WHERE h.session_id = p_session;
END
$$;

-- The first index from p_from on that is not there; p_to where none is missing below it.
CREATE FUNCTION bex_remote_first_missing(p_session text, p_from bigint, p_to bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    v_at  bigint := p_from;
    v_row record;
BEGIN
    FOR v_row IN SELECT e.event_index FROM public.remote_events e
                  WHERE e.session_id = p_session AND e.event_index >= p_from AND e.event_index < p_to
                  ORDER BY e.event_index LOOP
        EXIT WHEN v_row.event_index <> v_at;
        v_at := v_at + 1;
    END LOOP;
    RETURN v_at;
END
$$;

REVOKE ALL ON FUNCTION bex_remote_append FROM PUBLIC;
REVOKE ALL ON FUNCTION bex_remote_first_missing FROM PUBLIC;
