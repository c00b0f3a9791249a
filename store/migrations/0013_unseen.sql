-- Nobody came to look at a session's sandbox the last time, for want of room: it waits among those that keep rounds waiting, and
-- nothing follows from it about the sandbox.

ALTER TABLE leases ADD COLUMN unseen boolean NOT NULL DEFAULT false;
