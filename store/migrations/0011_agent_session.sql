-- The agent's own session, as the newest sandbox's driver named it: a fresh agent that can load it remembers by itself.

ALTER TABLE sessions ADD COLUMN agent_session_id text;
