-- Pages of a transcript in both orders. Functions, because each must walk its index in order and stop at the page's
-- end whatever the statistics say: a planner that expects few parts would rather sort, and then every page reads all the
-- rest of the session. They run with the caller's rights. `octet_length` reads no payload (storage is EXTERNAL).

CREATE FUNCTION bex_conversation_page(p_session text, p_turn integer, p_index integer, p_parts bigint, p_bytes bigint)
RETURNS SETOF transcript_parts
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, public, pg_temp
SET enable_sort = off
SET enable_bitmapscan = off
SET enable_seqscan = off
AS $$
DECLARE
    part  public.transcript_parts;
    bytes bigint := 0;
    first boolean := true;
BEGIN
    FOR part IN
        SELECT * FROM public.transcript_parts p
         WHERE p.session_id = p_session AND (p.turn, p.part_index) >= (p_turn, p_index)
         ORDER BY p.turn, p.part_index LIMIT p_parts
    LOOP
        bytes := bytes + octet_length(part.part);
        EXIT WHEN bytes > p_bytes AND NOT first;
        first := false;
        RETURN NEXT part;
    END LOOP;
END
$$;

-- Where the pages of a conversation begin and end, found without reading payloads. The pages themselves are then read by
-- their bounds with a plain statement, whose rows stream while they are found: twice as fast as rows that pass a function. A
-- page lies in one turn: an index scan stops at a bound of its last column, but not at one of a pair.
CREATE FUNCTION bex_page_bounds(p_session text, p_turn integer, p_index integer, p_parts bigint, p_bytes bigint, p_pages integer,
                                OUT turn integer, OUT first_index integer, OUT last_index integer)
RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, public, pg_temp
SET enable_sort = off
SET enable_bitmapscan = off
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    part  record;
    parts bigint := 0;
    bytes bigint := 0;
    pages integer := 0;
BEGIN
    FOR part IN
        SELECT p.turn, p.part_index, octet_length(p.part) AS len FROM public.transcript_parts p
         WHERE p.session_id = p_session AND (p.turn, p.part_index) >= (p_turn, p_index)
         ORDER BY p.turn, p.part_index LIMIT p_parts * p_pages
    LOOP
        IF parts > 0 AND (parts = p_parts OR bytes + part.len > p_bytes OR part.turn <> bex_page_bounds.turn) THEN
            RETURN NEXT;
            pages := pages + 1;
            parts := 0;
            EXIT WHEN pages = p_pages;
        END IF;
        IF parts = 0 THEN
            bex_page_bounds.turn := part.turn; first_index := part.part_index; bytes := 0;
        END IF;
        last_index := part.part_index;
        parts := parts + 1; bytes := bytes + part.len;
    END LOOP;
    IF parts > 0 THEN
        RETURN NEXT;
    END IF;
END
$$;

CREATE FUNCTION bex_feed_page(p_session text, p_after bigint, p_parts bigint, p_bytes bigint)
RETURNS SETOF transcript_parts
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, public, pg_temp
SET enable_sort = off
SET enable_bitmapscan = off
SET enable_seqscan = off
AS $$
DECLARE
    part  public.transcript_parts;
    bytes bigint := 0;
    first boolean := true;
BEGIN
    FOR part IN
        SELECT * FROM public.transcript_parts p
         WHERE p.session_id = p_session AND p.seq >= 0 AND p.seq > p_after
         ORDER BY p.seq LIMIT p_parts
    LOOP
        bytes := bytes + octet_length(part.part);
        EXIT WHEN bytes > p_bytes AND NOT first;
        first := false;
        RETURN NEXT part;
    END LOOP;
END
$$;
