-- The durable transcript. No foreign key on the parts: it would cost a look-up a row on the hottest path. The head
-- row stands in for it: append needs it, and delete takes it under the same lock before it removes the parts.

CREATE TABLE transcript_heads (
    session_id  text PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    next_seq    bigint NOT NULL DEFAULT 0,
    -- charged bytes: the parts' own and 64 for each
    bytes       bigint NOT NULL DEFAULT 0,
    parts       bigint NOT NULL DEFAULT 0,
    quota_turn  integer,
    quota_index integer,
    byte_limit  bigint NOT NULL,
    part_limit  bigint NOT NULL,
    CHECK ((quota_turn IS NULL) = (quota_index IS NULL))
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE transcript_parts (
    session_id text NOT NULL,
    turn       integer NOT NULL,
    part_index integer NOT NULL,
    seq        bigint NOT NULL CHECK (seq >= 0),
    kind       text NOT NULL,
    chunk_id   text,
    part       text NOT NULL,
    spoken_at  timestamptz,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, turn, part_index)
);
-- The predicate holds for every row. It is there so that only a query that says `seq >= 0` may use this index: while
-- the table is empty both indexes cost the same, and a plan of append that was cached on this one would read the whole
-- session with every part.
CREATE UNIQUE INDEX transcript_parts_feed ON transcript_parts (session_id, seq) WHERE seq >= 0;
-- parts are read back whole and verbatim: compressing them costs more on both ways than the pages it saves, and one that fits
-- a page stays in its row, since every part moved out costs a second look-up
ALTER TABLE transcript_parts ALTER COLUMN part SET STORAGE EXTERNAL;
ALTER TABLE transcript_parts SET (toast_tuple_target = 8160);

CREATE TABLE harvest_offsets (
    session_id  text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    generation  integer NOT NULL,
    log_id      text NOT NULL,
    turn        integer NOT NULL,
    byte_offset bigint NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, generation, log_id)
) WITH (fillfactor = 50);
