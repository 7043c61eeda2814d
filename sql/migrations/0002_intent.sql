-- What may have happened: intents, undo steps, tasks that are accepted downstream and not yet seen.
-- Locks: ACCESS EXCLUSIVE on tool and work for the length of this transaction, which reads no row of
-- tool and builds one index over `work`. Binaries of version 1 go on: they never write what is new here.

-- A committed note "about to send", written before what is neither keyed nor readable back. One that
-- stands may have left; one that provably never left is deleted.
CREATE TABLE intent (
    week   integer NOT NULL,
    task   bytea NOT NULL,
    phase  integer NOT NULL,
    token  uuid NOT NULL,                                   -- the claim that was about to send
    name   text NOT NULL,                                   -- of the phase
    at     timestamptz NOT NULL,
    PRIMARY KEY (week, task, phase, token)
) PARTITION BY RANGE (week);

-- The phases that a cancel undoes, by number. Undoing phase p is phase 127 - p, so that they run in
-- reverse, after all others, by the same rules.
ALTER TABLE tool ADD COLUMN undos integer[] NOT NULL DEFAULT '{}';

DROP INDEX work_later;
CREATE INDEX work_later ON work (state, due) WHERE state IN ('scheduled', 'parked', 'unverified');

-- Partitions that the other tables have already.
DO $$
DECLARE
    w integer;
BEGIN
    FOR w IN SELECT week FROM week ORDER BY week LOOP
        EXECUTE format('CREATE TABLE intent_w%s (LIKE intent INCLUDING ALL)', w);
        EXECUTE format('ALTER TABLE intent ATTACH PARTITION intent_w%s FOR VALUES FROM (%s) TO (%s)',
                       w, w, w + 1);
    END LOOP;
END $$;
