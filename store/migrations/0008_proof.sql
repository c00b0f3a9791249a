-- Signed statements about settled turns: one chain a session, append-only. The api may insert and read them, nobody may
-- change one; they go with their session.

CREATE TABLE turn_statements (
    session_id text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    -- its place in the session's chain: 0, 1, 2, …
    number     integer NOT NULL CHECK (number >= 0),
    turn       integer NOT NULL,
    -- the signed text, verbatim: the next one holds its digest
    statement  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, number)
);
CREATE INDEX turn_statements_by_turn ON turn_statements (session_id, turn, number);

-- A turn is due for a statement in the very transaction that settles it, heals it or gives it parts afterwards, whoever does
-- that; the statement follows. So no settle waits for a signature, and none is without its statement for good.
-- Turns that are here already are due, without a write to any of them; of an open turn the mark says nothing.
ALTER TABLE turns ADD COLUMN statement_due boolean NOT NULL DEFAULT true;
ALTER TABLE turns ALTER COLUMN statement_due SET DEFAULT false;
CREATE INDEX turns_statement_due ON turns (session_id, turn) WHERE statement_due AND verdict <> 'open';

CREATE FUNCTION bex_statement_due() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.statement_due := true;
    RETURN NEW;
END
$$;

-- the condition is looked at with every append; the function is called for settled turns alone
CREATE TRIGGER turns_statement_due BEFORE UPDATE OF verdict, stored_parts ON turns
    FOR EACH ROW
    WHEN (NEW.verdict <> 'open'
          AND (NEW.verdict IS DISTINCT FROM OLD.verdict OR NEW.stored_parts IS DISTINCT FROM OLD.stored_parts))
    EXECUTE FUNCTION bex_statement_due();
