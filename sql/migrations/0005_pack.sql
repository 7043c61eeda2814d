-- Prompts and resources that folders of `tools apply` offer beside their tools, or without one.
-- Locks: none that matter, both tables are new. Older binaries go on: they know nothing of them.

-- One row a folder that offers any; what stands is what is offered, so there are no versions.
CREATE TABLE pack (
    name     text PRIMARY KEY,
    tool     boolean NOT NULL,                              -- the name is that of a tool
    version  text NOT NULL CHECK (version ~ '^[0-9a-f]{64}$'),
    doc      text NOT NULL,                                 -- compiled by `tools apply`
    applied  timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE pack ALTER COLUMN doc SET STORAGE EXTENDED;

-- A prompt's name, a URI and a URI template belong to one pack.
CREATE TABLE pack_entry (
    kind  text NOT NULL CHECK (kind IN ('prompt', 'resource')),
    key   text NOT NULL,
    pack  text NOT NULL REFERENCES pack ON DELETE CASCADE,
    PRIMARY KEY (kind, key)
);
CREATE INDEX pack_entry_pack ON pack_entry (pack);
