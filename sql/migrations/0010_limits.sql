-- Limits of tools: what of a tool, and of a tenant's share of it, may run at once, and how many calls
-- may wait.
-- Locks: ACCESS EXCLUSIVE on work and SHARE ROW EXCLUSIVE on tool for the length of this transaction,
-- which reads `work` once for a small index. Binaries of earlier versions go on; their
-- claims keep to the limits too, their acceptance knows of no backlog.

-- One row a tool that has limits, of its current version; see limits_set. Claims alone lock it: it is
-- the gate of the tool. Acceptance reads it.
CREATE TABLE tool_limit (
    name                text PRIMARY KEY,
    running             integer CHECK (running > 0),
    running_per_tenant  integer CHECK (running_per_tenant > 0),
    backlog             integer CHECK (backlog > 0),
    gated               boolean NOT NULL,                   -- claims of it go through the gate
    counted             boolean NOT NULL DEFAULT false,     -- limit_use has what ran before
    after               text                                -- the tenant where the next look begins
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- What each incarnation holds of a gated tool, as its last claim counted: never less than it does.
CREATE TABLE limit_use (
    name         text NOT NULL,
    tenant       text NOT NULL,
    incarnation  uuid NOT NULL,
    number       integer NOT NULL CHECK (number > 0),
    PRIMARY KEY (name, tenant, incarnation)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
CREATE INDEX limit_use_incarnation ON limit_use (incarnation);

-- A ready task whose due time is infinity is set aside: it waits for its tenant's turn, where claims
-- do not meet it. `turn`: when it was due.
ALTER TABLE work ADD COLUMN tenant text;
ALTER TABLE work ADD COLUMN turn timestamptz;
-- One index for two questions: with one more, what is locked for a write would not fit the fast path.
CREATE INDEX work_aside ON work (queue, state, tenant, turn)
WHERE (state = 'ready' AND due = 'infinity') OR state = 'scheduled';

-- However a version became the current one, by whichever release's `tools apply`.
CREATE FUNCTION tool_limits_follow() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
BEGIN
    PERFORM limits_set(NEW.name, NEW.doc);
    RETURN NULL;
END $$;
CREATE TRIGGER tool_limits AFTER INSERT OR UPDATE OF current ON tool
FOR EACH ROW WHEN (NEW.current) EXECUTE FUNCTION tool_limits_follow();

INSERT INTO tool_limit (name, running, running_per_tenant, backlog, gated)
SELECT l.name, l.running, l.running_per_tenant, l.backlog,
       l.running IS NOT NULL OR l.running_per_tenant IS NOT NULL
FROM (SELECT t.name, (t.doc::json #>> '{limits,running}')::numeric::integer AS running,
             (t.doc::json #>> '{limits,running_per_tenant}')::numeric::integer AS running_per_tenant,
             (t.doc::json #>> '{limits,backlog}')::numeric::integer AS backlog
      FROM tool t WHERE t.current) l
WHERE l.running IS NOT NULL OR l.running_per_tenant IS NOT NULL OR l.backlog IS NOT NULL;
