-- Since when nothing clear was seen of a session's sandbox, whichever replica looked. With the lease, because a window that
-- each replica measured alone would neither end for two that take turns nor begin again after the other saw clearly.

ALTER TABLE leases ADD COLUMN unclear_since timestamptz;
