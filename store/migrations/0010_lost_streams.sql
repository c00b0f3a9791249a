-- Streams that nobody closed: few, and looked for once a minute.
CREATE INDEX stream_audit_open ON stream_audit (opened_at) WHERE closed_at IS NULL;
