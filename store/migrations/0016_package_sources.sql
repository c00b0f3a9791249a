-- What each package tells of: its sessions and its execution. When one of them is deleted, the object is to go too, soon.

ALTER TABLE packages
    ADD COLUMN sources text[] NOT NULL DEFAULT '{}',
    ADD COLUMN remove_at timestamptz;
UPDATE packages SET sources = ARRAY[id];
CREATE INDEX packages_by_source ON packages USING gin (sources);
CREATE INDEX packages_to_remove ON packages (remove_at) WHERE remove_at IS NOT NULL;
