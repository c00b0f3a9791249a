-- Agents on machines that are not ours: who may report, what was reported, and the turns and messages made from it.
-- Lock order among these: remote_sessions, remote_heads, the rest; a row with a foreign key takes its session's too.

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
    -- no event that is kept is older; none where there is none
    first_at      timestamptz,
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
    imports_waiting integer NOT NULL DEFAULT 0,
    -- rows are to be made again or an import's to be written, in whatever state the session is
    again         boolean NOT NULL DEFAULT false,
    -- a chat's row stands here or behind it: where the next row was when rows were last made again
    chat_position bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.02);
-- seldom true, and never changed by what is reported
CREATE INDEX remote_heads_again ON remote_heads (session_id) WHERE again;
CREATE INDEX remote_heads_age ON remote_heads (first_at) WHERE first_at IS NOT NULL;

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

-- The one way an event is stored. As with bex_append, the head's lock makes identity, quota and order one decision. Its time grows with a
-- report's size only: arrays are read in one go, as an element of a text array is found by walking to it; and new events in their order,
-- which nearly all are, are looked at once.
--
-- status: stored | unknown | revoked | ended | conflict | too_far | full | backlog. Only `stored` changes anything; events that were there
-- before are always answered as `stored`.
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
    head      public.remote_heads%ROWTYPE;
    v_state   text;
    v_revoked boolean;
    v_ordered boolean;
    v_new     boolean[];
    v_low     bigint;
    v_high    bigint;
    v_top     bigint;
    v_bytes   bigint;
    v_late    bigint := 0;
    v_last    boolean;
BEGIN
    status := 'stored'; stored := 0; duplicates := 0;
    SELECT * INTO head FROM public.remote_heads h WHERE h.session_id = p_session FOR UPDATE;
    IF NOT FOUND THEN status := 'unknown'; RETURN; END IF;
    SELECT s.state, m.revoked_at IS NOT NULL INTO v_state, v_revoked
      FROM public.remote_sessions s JOIN public.machines m ON m.id = s.machine_id
     WHERE s.id = p_session AND s.machine_id = p_machine;
    IF NOT FOUND THEN status := 'unknown'; RETURN; END IF;
    -- its token was good when the report began; a body may take its time
    IF v_revoked THEN status := 'revoked'; RETURN; END IF;
    next_index := head.next_index;
    IF cardinality(p_index) = 0 THEN RETURN; END IF;

    SELECT max(u.idx), bool_and(u.idx = p_index[1] + u.ord - 1) INTO v_top, v_ordered
      FROM unnest(p_index) WITH ORDINALITY AS u (idx, ord);
    v_ordered := v_ordered AND p_index[1] >= head.high_index;
    IF v_ordered THEN
        stored := cardinality(p_index);
        v_low := p_index[1];
        v_high := v_top;
        SELECT sum(octet_length(u.data) + p_charge), bool_or(u.complete AND u.stream = 'stdout')
          INTO v_bytes, v_last FROM unnest(p_stream, p_data, p_complete) AS u (stream, data, complete);
    ELSE
        -- an event is compared with what stands under its index, or else with the first of the report that would
        SELECT array_agg(q.new ORDER BY q.ord), count(*) FILTER (WHERE q.new), count(*) FILTER (WHERE NOT q.new),
               min(q.idx) FILTER (WHERE q.differs), min(q.idx) FILTER (WHERE q.new), max(q.idx) FILTER (WHERE q.new),
               COALESCE(sum(octet_length(q.data) + p_charge) FILTER (WHERE q.new), 0),
               COALESCE(sum(octet_length(q.data) + p_charge) FILTER (WHERE q.new AND q.idx < head.next_index), 0),
               bool_or(q.complete AND q.stream = 'stdout') FILTER (WHERE q.new)
          INTO v_new, stored, duplicates, at_index, v_low, v_high, v_bytes, v_late, v_last
          FROM (SELECT u.*,
                       -- what was removed was there, whatever it said
                       u.nth = 1 AND NOT COALESCE(e.there, false) AND u.idx >= head.first_index AS new,
                       u.idx >= head.first_index
                           AND (u.data, u.stream, u.complete) IS DISTINCT FROM
                               (CASE WHEN e.there THEN e.data ELSE u.first_data END,
                                CASE WHEN e.there THEN e.stream ELSE u.first_stream END,
                                CASE WHEN e.there THEN e.complete ELSE u.first_complete END) AS differs
                  FROM (SELECT t.*, row_number() OVER w AS nth, first_value(t.data) OVER w AS first_data,
                               first_value(t.stream) OVER w AS first_stream, first_value(t.complete) OVER w AS first_complete
                          FROM unnest(p_index, p_stream, p_data, p_complete) WITH ORDINALITY
                               AS t (idx, stream, data, complete, ord)
                        WINDOW w AS (PARTITION BY t.idx ORDER BY t.ord)) u
                  LEFT JOIN LATERAL (
                        SELECT true AS there, x.data, x.stream, x.complete FROM public.remote_events x
                         WHERE x.session_id = p_session AND x.event_index = u.idx OFFSET 0) e ON true) q;
    END IF;
    IF at_index IS NOT NULL THEN status := 'conflict'; stored := 0; duplicates := 0; RETURN; END IF;
    IF stored = 0 THEN RETURN; END IF;

    IF v_state NOT IN ('active', 'paused', 'ending') THEN status := 'ended'; stored := 0; RETURN; END IF;
    IF v_top >= head.next_index + p_window + cardinality(p_index) THEN
        status := 'too_far'; stored := 0; at_index := v_top; RETURN;
    END IF;
    IF head.bytes + v_bytes > head.byte_limit THEN status := 'full'; stored := 0; RETURN; END IF;
    -- what the others wait for is taken all the same, within twice the bound: without it they are never read
    IF head.bytes - head.seen_bytes
       > p_backlog * (CASE WHEN v_low = head.next_index AND head.next_index < head.high_index THEN 2 ELSE 1 END)
    THEN status := 'backlog'; stored := 0; RETURN; END IF;

    IF v_ordered THEN
        INSERT INTO public.remote_events (session_id, event_index, stream, data, complete, spoken_at, created_at)
        SELECT p_session, u.idx, u.stream, u.data, u.complete, u.spoken_at, clock_timestamp()
          FROM unnest(p_index, p_stream, p_data, p_complete, p_spoken_at) AS u (idx, stream, data, complete, spoken_at);
    ELSE
        INSERT INTO public.remote_events (session_id, event_index, stream, data, complete, spoken_at, created_at)
        SELECT p_session, u.idx, u.stream, u.data, u.complete, u.spoken_at, clock_timestamp()
          FROM unnest(p_index, p_stream, p_data, p_complete, p_spoken_at, v_new)
               AS u (idx, stream, data, complete, spoken_at, new)
         WHERE u.new ORDER BY u.idx;
    END IF;

    IF v_low <= head.next_index AND head.high_index <= head.next_index AND v_high - v_low + 1 = stored THEN
        next_index := GREATEST(head.next_index, v_high + 1);
    ELSIF v_low <= head.next_index OR head.next_index < head.high_index THEN
        next_index := public.bex_remote_first_missing(p_session, head.next_index, GREATEST(head.high_index, v_high + 1));
    END IF;
    UPDATE public.remote_heads h
       SET next_index = bex_remote_append.next_index,
           high_index = GREATEST(h.high_index, v_high + 1),
           bytes = h.bytes + v_bytes,
           first_at = COALESCE(h.first_at, clock_timestamp()),
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
