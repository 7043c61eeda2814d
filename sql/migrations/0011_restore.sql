-- What a restore of an older state means for what is sent to others: who the store is, whether it
-- stands still until an operator has looked, and which tasks may have gone further in a lost tail.
-- Locks: ACCESS EXCLUSIVE on cluster and work for the length of this transaction, which reads one row
-- of the first and none of the other. Binaries of earlier versions go on, but know nothing of a lost
-- tail past the phase at hand: after a restore start none of them.

-- The Postgres cluster that this store lives in; another one here is a copy.
ALTER TABLE cluster ADD COLUMN system text;
UPDATE cluster SET system = (SELECT system_identifier::text FROM pg_control_system());
-- Why nothing is accepted or claimed, for people; null: it is.
ALTER TABLE cluster ADD COLUMN held text;
-- A copy: nothing foreign runs before an operator confirms it.
ALTER TABLE cluster ADD COLUMN copy boolean NOT NULL DEFAULT false;
-- The last `holdfast restored`: its number rises with time, also from one restore to another.
ALTER TABLE cluster ADD COLUMN restored timestamptz;
-- The tail that was lost then: nothing of it is older than the first, nothing sent after the second.
ALTER TABLE cluster ADD COLUMN tail_from timestamptz;
ALTER TABLE cluster ADD COLUMN tail_to timestamptz;

-- The same of a task that was open then: each phase of it that is still to come may have run.
ALTER TABLE work ADD COLUMN tail_from timestamptz;
ALTER TABLE work ADD COLUMN tail_to timestamptz;
-- But not this one, nor those behind it on the same way (forward, or back): see in_tail().
ALTER TABLE work ADD COLUMN tail_below integer;
