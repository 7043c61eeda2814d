-- Limits of tools (V10; rule 6). Of a tool, by its name, `running` tasks may be claimed at once, and of
-- each tenant `running_per_tenant`. Who claims passes the tool's gate, the lock of its row in
-- tool_limit, which no other path takes; behind it the use of all incarnations is summed. Each
-- incarnation's use stands in rows of its own, counted anew at its own claims from the tasks that it
-- holds: it may be too high in between, never too low, and nothing that is lost can leak. Tools without
-- limits pass no gate.
--
--   ready ──claim: its tenant has no room──► set aside (due: infinity) ──claim: it has──► running
--
-- Set aside, a tenant's backlog is met once, however long it is and however long it waits.
-- Gates are locked by name. Who holds one skips work rows that others hold, and waits only for who takes a
-- pause away, which waits for nobody. Maintenance takes them last.

-- Promises the limits of the version that is current now. Called by a trigger of `tool`.
-- Locks the tool's gate, behind its rows in `tool`.
-- Twice: as once, but that the next claim counts anew.
CREATE OR REPLACE FUNCTION limits_set(name text, doc text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    limits json := doc::json -> 'limits';
    most integer := (limits ->> 'running')::numeric::integer;
    each integer := (limits ->> 'running_per_tenant')::numeric::integer;
    waiting integer := (limits ->> 'backlog')::numeric::integer;
    gates boolean := most IS NOT NULL OR each IS NOT NULL;
BEGIN
    -- What had a gate keeps it: tasks may be set aside. A claim takes it away, see limit_enter.
    UPDATE tool_limit l SET running = most, running_per_tenant = each, backlog = waiting,
           gated = l.gated OR gates, counted = false
    WHERE l.name = limits_set.name;
    IF NOT FOUND AND (gates OR waiting IS NOT NULL) THEN
        INSERT INTO tool_limit (name, running, running_per_tenant, backlog, gated)
        VALUES (limits_set.name, most, each, waiting, gates);
    END IF;
END $$;

-- Promises which of this tool's tasks an incarnation holds, by tenant, written where it is not so already;
-- of all incarnations where it is null.
-- Locks rows of limit_use, which nobody writes without the gate: the caller holds it.
-- Twice: as once.
CREATE OR REPLACE FUNCTION limit_count(name text, incarnation uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    versions integer[] := ARRAY(SELECT t.tool FROM tool t WHERE t.name = limit_count.name);
BEGIN
    WITH held AS MATERIALIZED (
        SELECT o.tenant, w.incarnation, count(*)::integer AS number
        FROM work w JOIN principal o ON o.owner = w.owner
        WHERE w.incarnation IS NOT NULL AND w.queue = ANY (versions)
          AND (limit_count.incarnation IS NULL OR w.incarnation = limit_count.incarnation)
        GROUP BY o.tenant, w.incarnation
    ), gone AS (
        DELETE FROM limit_use u
        WHERE u.name = limit_count.name
          AND (limit_count.incarnation IS NULL OR u.incarnation = limit_count.incarnation)
          AND NOT EXISTS (SELECT FROM held h
                          WHERE h.tenant = u.tenant AND h.incarnation = u.incarnation)
    )
    INSERT INTO limit_use AS u (name, tenant, incarnation, number)
    SELECT limit_count.name, h.tenant, h.incarnation, h.number FROM held h
    ON CONFLICT (name, tenant, incarnation) DO UPDATE SET number = excluded.number
        WHERE u.number <> excluded.number;
END $$;

-- Promises the gated tools through whose gate this claim has to go: it holds some of them, or some are due
-- and there may be room.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION limit_gates(incarnation uuid, queues integer[], at timestamptz)
RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN ARRAY(
        SELECT l.name FROM tool_limit l
        WHERE l.gated AND (
            EXISTS (SELECT FROM limit_use u
                    WHERE u.incarnation = limit_gates.incarnation AND u.name = l.name)
            OR (coalesce((SELECT sum(u.number) FROM limit_use u WHERE u.name = l.name) < l.running,
                         true)
                AND EXISTS (SELECT FROM tool t
                            CROSS JOIN LATERAL (
                                (SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'ready'
                                   AND w.due <= at ORDER BY w.due LIMIT 1)
                                UNION ALL
                                (SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'ready'
                                   AND w.due = 'infinity' LIMIT 1)) r
                            WHERE t.name = l.name AND t.tool = ANY (queues)))));
END $$;

-- Promises a way through these gates, until the transaction ends: what this incarnation holds of them is
-- counted, of all others too where the limits are new. A tool that has no more limits, and nothing set
-- aside, loses its gate.
-- Locks gates, by name.
-- Twice: as once, in one transaction.
CREATE OR REPLACE FUNCTION limit_enter(names text[], incarnation uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    l tool_limit;
BEGIN
    PERFORM 1 FROM tool_limit x WHERE x.name = ANY (names) ORDER BY x.name FOR UPDATE;
    FOR l IN SELECT x.* FROM tool_limit x WHERE x.name = ANY (names) ORDER BY x.name LOOP
        IF l.running IS NULL AND l.running_per_tenant IS NULL AND NOT EXISTS (
               SELECT FROM tool t CROSS JOIN LATERAL (
                   SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'ready'
                     AND w.due = 'infinity' LIMIT 1) a
               WHERE t.name = l.name) THEN
            DELETE FROM limit_use u WHERE u.name = l.name;
            UPDATE tool_limit x SET gated = false WHERE x.name = l.name;
        ELSE
            PERFORM limit_count(l.name, CASE WHEN l.counted THEN limit_enter.incarnation END);
            UPDATE tool_limit x SET counted = true WHERE x.name = l.name AND NOT x.counted;
        END IF;
    END LOOP;
END $$;

-- Promises that the use of an incarnation that is over is given back, null: of all that are gone, as far as
-- no claim of theirs is left. A dead one's share comes back with its claims, not before.
-- Locks gates, by name.
-- Twice: as once.
CREATE OR REPLACE FUNCTION limit_leave(incarnation uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    names text[];
    gone record;
BEGIN
    SELECT array_agg(DISTINCT u.name) INTO names FROM limit_use u
    WHERE coalesce(u.incarnation = limit_leave.incarnation,
                   NOT EXISTS (SELECT FROM worker k WHERE k.incarnation = u.incarnation));
    IF names IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM tool_limit x WHERE x.name = ANY (names) ORDER BY x.name FOR UPDATE;
    FOR gone IN SELECT DISTINCT u.name, u.incarnation FROM limit_use u
                WHERE u.name = ANY (names)
                  AND NOT EXISTS (SELECT FROM worker k WHERE k.incarnation = u.incarnation) LOOP
        PERFORM limit_count(gone.name, gone.incarnation);
    END LOOP;
END $$;

-- Promises tenants of which tasks are set aside in this queue, behind `after` and then from the first on.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION limit_tenants(queue integer, after text, most integer) RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan
-- In the index's order, never all of a backlog sorted, whatever the statistics say.
SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    found text[];
BEGIN
    -- From one tenant to the next: as many probes of the index as there are tenants.
    found := ARRAY(
        WITH RECURSIVE loose (tenant, n) AS (
            (SELECT w.tenant, 1 FROM work w
             WHERE w.queue = limit_tenants.queue AND w.state = 'ready' AND w.due = 'infinity'
               AND (limit_tenants.after IS NULL OR w.tenant > limit_tenants.after)
             ORDER BY w.tenant LIMIT 1)
            UNION ALL
            SELECT x.tenant, l.n + 1 FROM loose l CROSS JOIN LATERAL (
                SELECT w.tenant FROM work w
                WHERE w.queue = limit_tenants.queue AND w.state = 'ready' AND w.due = 'infinity'
                  AND w.tenant > l.tenant
                ORDER BY w.tenant LIMIT 1) x
            WHERE l.n < most)
        SELECT l.tenant FROM loose l ORDER BY l.n);
    IF after IS NOT NULL AND cardinality(found) < most THEN
        found := found || limit_tenants(queue, NULL, most - cardinality(found));
    END IF;
    RETURN found;
END $$;

-- Promises up to `most` due tasks of one queue of a gated tool, the oldest first, as far as there is room;
-- `picked` is what this claim has already. Tasks in front whose tenant has no room are set aside, at most 4
-- times 256 a call, so that what a claim does is bounded, and the next one sees further. Of those set aside,
-- the tenants in sight are those of the tasks in front and 64 more in turn.
-- Locks work rows, the oldest first, skipping what others hold; then as pause_tenants. The caller holds the
-- gate.
-- Twice: others, the first ones being in `picked`.
CREATE OR REPLACE FUNCTION limit_pick(name text, queue integer, most integer, at timestamptz,
                                      pauses boolean, picked tid[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan
-- In the index's order, never all of a backlog sorted, whatever the statistics say.
SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    l tool_limit;
    own tid[] := '{}';
    have tid[];
    room integer;
    front tid[];
    met integer;
    tenants text[];
    chosen tid[];
    waiting tid[];
    over tid[];
BEGIN
    SELECT x.* INTO l FROM tool_limit x WHERE x.name = limit_pick.name;
    FOR round IN 1..4 LOOP
        have := picked || own;
        room := least(most - cardinality(own), coalesce(
            l.running - (SELECT coalesce(sum(u.number), 0) FROM limit_use u
                         WHERE u.name = limit_pick.name)
                      - (SELECT count(*) FROM work w JOIN tool t ON t.tool = w.queue
                         WHERE w.ctid = ANY (have) AND t.name = limit_pick.name), most));
        EXIT WHEN room <= 0;
        front := ARRAY(
            SELECT x.ctid FROM work x
            WHERE x.state = 'ready' AND x.queue = limit_pick.queue AND x.due <= at
              AND x.ctid <> ALL (have)
            ORDER BY x.due LIMIT CASE WHEN l.running_per_tenant IS NULL THEN room ELSE 256 END
            FOR UPDATE SKIP LOCKED);
        met := cardinality(front);
        front := CASE WHEN pauses THEN pause_tenants(front) ELSE front END;
        tenants := limit_tenants(queue, l.after, 64);
        IF tenants[64] IS DISTINCT FROM l.after THEN
            UPDATE tool_limit x SET after = tenants[64] WHERE x.name = limit_pick.name
            RETURNING x.* INTO l;
        END IF;

        WITH ahead AS MATERIALIZED (
            SELECT w.ctid AS tid, o.tenant, w.due FROM work w JOIN principal o ON o.owner = w.owner
            WHERE w.ctid = ANY (front)
        ), asked AS MATERIALIZED (
            SELECT a.tenant, coalesce(
                l.running_per_tenant - (SELECT coalesce(sum(u.number), 0) FROM limit_use u
                                        WHERE u.name = limit_pick.name AND u.tenant = a.tenant)
                                     - (SELECT count(*) FROM work w JOIN tool t ON t.tool = w.queue
                                        JOIN principal o ON o.owner = w.owner
                                        WHERE w.ctid = ANY (have) AND t.name = limit_pick.name
                                          AND o.tenant = a.tenant), room) AS free
            FROM (SELECT h.tenant FROM ahead h UNION SELECT unnest(tenants)) a
        ), seen AS (
            SELECT h.tid, h.tenant, h.due, false AS aside FROM ahead h
            UNION ALL
            SELECT x.tid, a.tenant, x.turn, true FROM asked a CROSS JOIN LATERAL (
                SELECT w.ctid AS tid, w.turn FROM work w
                WHERE w.queue = limit_pick.queue AND w.state = 'ready' AND w.due = 'infinity'
                  AND w.tenant = a.tenant AND w.ctid <> ALL (have)
                ORDER BY w.turn LIMIT greatest(least(a.free, room), 0)) x
        ), ranked AS (
            SELECT s.*, row_number() OVER (PARTITION BY s.tenant ORDER BY s.due, s.tid) <= a.free AS fits
            FROM seen s JOIN asked a ON a.tenant = s.tenant
        ), first AS (
            SELECT r.tid, r.aside FROM ranked r WHERE r.fits ORDER BY r.due, r.tid LIMIT room
        )
        SELECT ARRAY(SELECT f.tid FROM first f WHERE NOT f.aside),
               ARRAY(SELECT f.tid FROM first f WHERE f.aside),
               ARRAY(SELECT r.tid FROM ranked r WHERE NOT r.fits AND NOT r.aside)
        INTO chosen, waiting, over;

        waiting := ARRAY(SELECT w.ctid FROM work w
                         WHERE w.ctid = ANY (waiting) AND w.state = 'ready' AND w.due = 'infinity'
                         FOR UPDATE SKIP LOCKED);
        waiting := CASE WHEN pauses THEN pause_tenants(waiting) ELSE waiting END;
        own := own || chosen || waiting;
        UPDATE work w SET due = 'infinity', turn = w.due, tenant = o.tenant
        FROM principal o WHERE w.ctid = ANY (over) AND o.owner = w.owner;
        EXIT WHEN cardinality(over) = 0 AND cardinality(front) = met;
    END LOOP;
    RETURN own;
END $$;

-- Promises how many tasks of a tool wait, ready or scheduled, of all its versions; it stops at `most`.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION limit_backlog(name text, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    n integer;
BEGIN
    SELECT count(*) INTO n FROM (
        SELECT FROM tool t CROSS JOIN LATERAL (
            SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'ready' LIMIT most) r
        WHERE t.name = limit_backlog.name LIMIT most) x;
    IF n < most THEN
        n := n + (SELECT count(*) FROM (
            SELECT FROM tool t CROSS JOIN LATERAL (
                SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'scheduled'
                LIMIT most - n) r
            WHERE t.name = limit_backlog.name LIMIT most - n) x);
    END IF;
    RETURN n;
END $$;

-- Promises, of these calls of a batch, which are all new, those that their tools' backlogs have no room for.
-- What others are accepting at the moment is not seen: each API process has one batch in flight, of at most
-- 256 calls, so that n of them go past the limit by n - 1 batches at most.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION limit_refuses(ords integer[], tools integer[]) RETURNS integer[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    l record;
    refused integer[] := '{}';
BEGIN
    IF NOT EXISTS (SELECT FROM tool_limit x WHERE x.backlog IS NOT NULL) THEN
        RETURN refused;
    END IF;
    FOR l IN SELECT x.name, x.backlog, array_agg(o.ord ORDER BY o.ord) AS asked
             FROM unnest(ords) o (ord) JOIN tool t ON t.tool = tools[o.ord]
             JOIN tool_limit x ON x.name = t.name
             WHERE x.backlog IS NOT NULL GROUP BY x.name, x.backlog LOOP
        refused := refused || l.asked[l.backlog - limit_backlog(l.name, l.backlog) + 1:];
    END LOOP;
    RETURN refused;
END $$;

-- Promises, for the gauges, of each tool with limits the use and the bound, the fullest first. Of tenants it
-- is the one that uses most.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION limit_gauges() RETURNS TABLE (name text, label text, number bigint)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT g.name, l.name, g.number::bigint
    FROM (SELECT x.*, r.running AS runs, r.tenant, CASE WHEN x.backlog IS NOT NULL
               THEN limit_backlog(x.name, x.backlog) END AS waits
          FROM tool_limit x CROSS JOIN LATERAL (
              SELECT coalesce(sum(u.number), 0) AS running, coalesce(max(u.number), 0) AS tenant
              FROM (SELECT sum(y.number) AS number FROM limit_use y WHERE y.name = x.name
                    GROUP BY y.tenant) u) r
          WHERE coalesce(x.running, x.running_per_tenant, x.backlog) IS NOT NULL
          ORDER BY greatest(r.running / x.running::numeric, r.tenant / x.running_per_tenant::numeric)
                   DESC NULLS LAST, x.name LIMIT 64) l
    CROSS JOIN LATERAL (VALUES
        ('tool_running', l.runs, l.running), ('tool_running_limit', l.running, l.running),
        ('tool_tenant_running', l.tenant, l.running_per_tenant),
        ('tool_tenant_running_limit', l.running_per_tenant, l.running_per_tenant),
        ('tool_backlog', l.waits, l.backlog), ('tool_backlog_limit', l.backlog, l.backlog))
        g (name, number, bound)
    WHERE g.bound IS NOT NULL;
END $$;
