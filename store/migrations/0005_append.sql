-- The one way a part is stored. The head row's lock makes seq, quota and identity one decision: whoever holds it
-- sees every part committed before, and seq n+1 cannot become visible before seq n.
--
-- Under that lock a part that was not found is not there, so that the insert needs no second look.
--
-- status: stored | complete (no-op) | unknown_turn | wrong_generation | offset_moved. Only `stored` changes anything.
-- The planner settings and the lateral sub-select (OFFSET 0 keeps it one) hold the cached plan to one primary key
-- look-up a part: a plan made while the table was empty would otherwise read the whole session with every batch.

CREATE FUNCTION bex_append(
    p_session text, p_turn integer, p_generation integer,
    p_index integer[], p_kind text[], p_chunk_id text[], p_part text[], p_spoken_at timestamptz[],
    p_unstorable boolean,
    p_log_id text, p_from bigint, p_to bigint,
    OUT status text, OUT stored integer, OUT duplicates integer, OUT refused_quota integer,
    OUT refused_declared integer, OUT quota_turn integer, OUT quota_index integer,
    OUT mismatch_index integer, OUT next_seq bigint
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
    c_charge  CONSTANT integer := 64;
    head      public.transcript_heads%ROWTYPE;
    v_turn    record;
    v_take    integer[];      -- positions in the arrays of the parts to store, in index order
    v_fit     integer[] := '{}';
    v_sum     bigint;         -- their own bytes
    v_stop    integer;        -- first index of this turn behind the quota mark
    v_ord     integer;
    v_len     bigint;
BEGIN
    status := 'stored'; stored := 0; duplicates := 0; refused_quota := 0; refused_declared := 0;

    SELECT * INTO head FROM public.transcript_heads h WHERE h.session_id = p_session FOR UPDATE;
    IF NOT FOUND THEN status := 'unknown_turn'; RETURN; END IF;
    quota_turn := head.quota_turn; quota_index := head.quota_index; next_seq := head.next_seq;

    SELECT t.generation, t.verdict, t.expected_parts INTO v_turn
      FROM public.turns t WHERE t.session_id = p_session AND t.turn = p_turn FOR NO KEY UPDATE;
    IF NOT FOUND THEN status := 'unknown_turn'; RETURN; END IF;
    IF v_turn.generation <> p_generation THEN status := 'wrong_generation'; RETURN; END IF;
    IF v_turn.verdict = 'complete' THEN status := 'complete'; RETURN; END IF;

    IF p_log_id IS NOT NULL THEN
        IF p_from = 0 THEN
            INSERT INTO public.harvest_offsets (session_id, generation, log_id, turn, byte_offset)
            VALUES (p_session, p_generation, p_log_id, p_turn, 0) ON CONFLICT DO NOTHING;
        END IF;
        UPDATE public.harvest_offsets o SET byte_offset = p_to, turn = p_turn, updated_at = now()
         WHERE o.session_id = p_session AND o.generation = p_generation AND o.log_id = p_log_id
           AND o.byte_offset = p_from;
        IF NOT FOUND THEN status := 'offset_moved'; RETURN; END IF;
    END IF;

    SELECT array_agg(b.ord ORDER BY b.idx) FILTER (WHERE p.seq IS NULL AND NOT b.beyond),
           COALESCE(sum(b.len) FILTER (WHERE p.seq IS NULL AND NOT b.beyond), 0),
           count(*) FILTER (WHERE p.seq IS NOT NULL),
           count(*) FILTER (WHERE p.seq IS NULL AND b.beyond),
           min(b.idx) FILTER (WHERE p.part IS DISTINCT FROM p_part[b.ord] AND p.seq IS NOT NULL)
      INTO v_take, v_sum, duplicates, refused_declared, mismatch_index
      FROM (SELECT DISTINCT ON (u.idx) u.idx, u.ord::integer AS ord, octet_length(p_part[u.ord::integer]) AS len,
                   COALESCE(u.idx >= v_turn.expected_parts, false) AS beyond
              FROM unnest(p_index) WITH ORDINALITY AS u (idx, ord)
             WHERE u.idx >= 0
             ORDER BY u.idx, u.ord) b
      LEFT JOIN LATERAL (
            SELECT s.seq, s.part FROM public.transcript_parts s
             WHERE s.session_id = p_session AND s.turn = p_turn AND s.part_index = b.idx
            OFFSET 0) p ON true;
    v_take := COALESCE(v_take, '{}');

    v_stop := CASE WHEN head.quota_turn IS NULL OR head.quota_turn > p_turn THEN NULL
                   WHEN head.quota_turn < p_turn THEN 0
                   ELSE head.quota_index END;
    IF v_stop IS NOT NULL
       OR head.bytes + v_sum + c_charge * cardinality(v_take) > head.byte_limit
       OR head.parts + cardinality(v_take) > head.part_limit THEN
        v_sum := 0;
        FOREACH v_ord IN ARRAY v_take LOOP
            v_len := octet_length(p_part[v_ord]);
            IF v_stop IS NOT NULL AND p_index[v_ord] >= v_stop THEN
                refused_quota := refused_quota + 1;
            ELSIF head.bytes + v_sum + v_len + c_charge * (cardinality(v_fit) + 1) <= head.byte_limit
              AND head.parts + cardinality(v_fit) + 1 <= head.part_limit THEN
                v_fit := v_fit || v_ord;
                v_sum := v_sum + v_len;
            ELSE
                refused_quota := refused_quota + 1;
                IF quota_turn IS NULL THEN
                    quota_turn := p_turn; quota_index := p_index[v_ord]; v_stop := quota_index;
                END IF;
            END IF;
        END LOOP;
        v_take := v_fit;
    END IF;
    stored := cardinality(v_take);

    IF stored > 0 THEN
        INSERT INTO public.transcript_parts
               (session_id, turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at)
        SELECT p_session, p_turn, p_index[u.ord], head.next_seq + u.n - 1, p_kind[u.ord], p_chunk_id[u.ord],
               p_part[u.ord], p_spoken_at[u.ord], clock_timestamp()
          FROM unnest(v_take) WITH ORDINALITY AS u (ord, n);
    END IF;

    next_seq := head.next_seq + stored;
    IF stored > 0 OR quota_turn IS DISTINCT FROM head.quota_turn THEN
        UPDATE public.transcript_heads h
           SET next_seq = bex_append.next_seq, bytes = h.bytes + v_sum + c_charge * stored,
               parts = h.parts + stored,
               quota_turn = bex_append.quota_turn, quota_index = bex_append.quota_index
         WHERE h.session_id = p_session;
    END IF;
    IF stored > 0 OR p_unstorable OR mismatch_index IS NOT NULL THEN
        UPDATE public.turns t
           SET stored_parts = t.stored_parts + stored,
               stored_bytes = t.stored_bytes + CASE WHEN stored > 0 THEN v_sum ELSE 0 END,
               last_part_at = CASE WHEN stored > 0 THEN clock_timestamp() ELSE t.last_part_at END,
               started_at = COALESCE(t.started_at, CASE WHEN stored > 0 THEN clock_timestamp() END),
               unstorable = t.unstorable OR p_unstorable,
               mismatch_index = LEAST(t.mismatch_index, bex_append.mismatch_index),
               rejudge = t.rejudge OR (t.verdict = 'truncated' AND stored > 0)
         WHERE t.session_id = p_session AND t.turn = p_turn;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION bex_append FROM PUBLIC;
