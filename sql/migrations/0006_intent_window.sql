-- Calls without an effect ID that are taken for repeats (R1.9): which one the first of them got, and
-- when. Locks: none that matter, the table is new. Older binaries never look at it.
CREATE TABLE intent_window (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 16),
    effect_id  text NOT NULL,
    opened     timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX intent_window_opened ON intent_window (opened);
