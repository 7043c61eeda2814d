-- What operators do: successors of failed tasks, key generations, pauses; and which versions a worker
-- serves. Locks: ACCESS EXCLUSIVE on task, step, work and worker for the length of this transaction,
-- which reads no row of them and builds one index over `work`. Binaries of earlier versions go on.

-- Set once, when an operator retries a failed task: the one row of `task` that is written again.
ALTER TABLE task ADD COLUMN successor bytea;
-- Of a successor: the generation of each phase's key, from the first on; null where all are 0.
ALTER TABLE task ADD COLUMN generations integer[];
-- Of a successor: when the phase that it begins with was first tried, where that may have taken
-- effect (V7).
ALTER TABLE task ADD COLUMN tried timestamptz;
-- A recovery point that was copied: the task which committed it.
ALTER TABLE step ADD COLUMN origin bytea;

-- As in task, for the recovery points.
ALTER TABLE work ADD COLUMN generations integer[];
-- Who had it paused, 'task' or 'tenant'. With `park`, of a running one: be paused, not parked.
ALTER TABLE work ADD COLUMN pause text;
CREATE INDEX work_paused ON work (owner) WHERE state = 'paused';

-- Tools and tenants for which nothing is claimed. Read by each claim, so it has to stay small.
CREATE TABLE pause (
    kind  text NOT NULL CHECK (kind IN ('tool', 'tenant')),
    name  text NOT NULL,
    by    text NOT NULL,
    why   text NOT NULL,
    at    timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE INDEX audit_task ON audit (task) WHERE task IS NOT NULL;

-- The queues that it last claimed for; for people.
ALTER TABLE worker ADD COLUMN serves integer[];
