-- Pages of a transcript in seq order. A function, because it must walk its index in order and stop at the page's end whatever
-- the statistics say: a planner that expects few parts would rather sort, and then every page reads all the rest of the
-- session. It runs with the caller's rights. `octet_length` reads no payload (storage is EXTERNAL).

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
