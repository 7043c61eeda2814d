-- What running tasks ask of their callers, and the answers.
-- Locks: ACCESS EXCLUSIVE on tool and work for the length of this transaction, which reads no row
-- of tool and builds one index over `work`. Binaries of version 3 go on: no task of theirs waits.

-- One row a key of a task. A key is asked once and answered once, first answer first; a question
-- that is asked again has a key of its own.
CREATE TABLE inbox (
    week      integer NOT NULL,
    task      bytea NOT NULL,
    key       text NOT NULL,
    phase     integer,                  -- that asks; null: answered before it was asked
    request   text,                     -- as it was sent, byte for byte
    asked     timestamptz,
    until     timestamptz,              -- no answer by then counts as silence; null: the deadline's
    how       text CHECK (how IN ('answer', 'silence')),    -- it was closed; null: outstanding
    answer    text,                     -- the client's own bytes
    answered  timestamptz,
    PRIMARY KEY (week, task, key),
    CHECK ((how IS NULL) = (answered IS NULL)),
    CHECK ((how IS NOT DISTINCT FROM 'answer') = (answer IS NOT NULL))
) PARTITION BY RANGE (week);

-- The keys that the wait phases of a tool declare: an answer to one of them is kept even where it
-- comes before the question.
ALTER TABLE tool ADD COLUMN inputs text[] NOT NULL DEFAULT '{}';

DROP INDEX work_later;
CREATE INDEX work_later ON work (state, due)
    WHERE state IN ('scheduled', 'parked', 'unverified', 'waiting');

-- Partitions that the other tables have already.
DO $$
DECLARE
    w integer;
BEGIN
    FOR w IN SELECT week FROM week ORDER BY week LOOP
        EXECUTE format('CREATE TABLE inbox_w%s (LIKE inbox INCLUDING ALL)', w);
        EXECUTE format('ALTER TABLE inbox ATTACH PARTITION inbox_w%s FOR VALUES FROM (%s) TO (%s)',
                       w, w, w + 1);
    END LOOP;
END $$;
