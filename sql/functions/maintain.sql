-- Maintenance: the lease, dead incarnations, deadlines, retention. Called by `holdfast maintain`,
-- whose role is a member of the owner. Each statement is limited in rows.

-- Promises the one maintenance lease by the database's clock. True: it is ours until now + ttl.
-- Locks the lease's row.
-- Twice: renewed, from then on.
CREATE OR REPLACE FUNCTION lease_take(name text, incarnation uuid, ttl_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO lease AS l (name, incarnation, until)
    VALUES (lease_take.name, lease_take.incarnation, now_() + ms(ttl_ms))
    ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, until = excluded.until
        WHERE l.incarnation = excluded.incarnation OR l.until < now_()
              OR l.until > now_() + ms(ttl_ms * 10); -- left by a clock that leapt
    RETURN FOUND;
END $$;

-- Promises that an incarnation is dead whose counter stood still between two looks of the caller. False: it
-- has beaten since. Its claims are freed by reclaim, which does the same for any claim whose incarnation is
-- gone.
-- Locks claim_call, then worker, as a claim does.
-- Twice: false.
CREATE OR REPLACE FUNCTION declare_dead(incarnation uuid, beat bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM claim_call c WHERE c.incarnation = declare_dead.incarnation FOR UPDATE;
    DELETE FROM worker w WHERE w.incarnation = declare_dead.incarnation
                           AND w.beat = declare_dead.beat;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM claim_call c WHERE c.incarnation = declare_dead.incarnation;
    RETURN true;
END $$;

-- Promises that claims of incarnations that are no more are freed. A crash is not a business attempt (R2.6);
-- a worker ends the task past its tool's bound, since what was being sent may have to be settled first. That
-- may still have left until now. What they used of limits goes with them.
-- Locks work rows, in task order, skipping what others hold; then gates, as limit_leave.
-- Twice: those that were held meanwhile.
CREATE OR REPLACE FUNCTION reclaim(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    w record;
    n integer := 0;
BEGIN
    FOR w IN WITH dead AS MATERIALIZED (
                 SELECT x.task, x.incarnation FROM work x WHERE x.incarnation IS NOT NULL
                 AND NOT EXISTS (SELECT FROM worker k WHERE k.incarnation = x.incarnation)
                 LIMIT most)
             SELECT l.* FROM (SELECT * FROM dead ORDER BY task) d
             CROSS JOIN LATERAL (
                 SELECT x.ctid AS tid, x.task, x.week, x.phase, x.attempt
                 FROM work x WHERE x.task = d.task AND x.incarnation = d.incarnation
                 OFFSET 0 FOR UPDATE SKIP LOCKED) l LOOP
        n := n + 1;
        PERFORM note(w.week, w.task, 'crash', w.phase, w.attempt, 'worker died');
        UPDATE work x SET state = 'ready', token = NULL, incarnation = NULL, due = at,
               attempt = greatest(x.attempt - 1, 0), crashes = x.crashes + 1, sent = at,
               progress = NULL, updated = at,
               message = CASE WHEN EXISTS (SELECT FROM intent i
                                           WHERE i.week = w.week AND i.task = w.task AND i.phase = w.phase)
                              THEN 'its worker died; its request may have left'
                              ELSE 'its worker died; goes on elsewhere' END
        WHERE x.ctid = w.tid;
    END LOOP;
    PERFORM limit_leave(NULL);
    RETURN n;
END $$;

-- Promises that tasks past their deadline end that nobody runs; a cancelled one has a worker's undo steps
-- before it. `unknown` stays unknown (V7), and what may have been sent becomes due at once, for a worker to
-- settle and then to end. Its rows are found by another index than expire_parked's, and are looked at again
-- under their lock by the same conditions: so both are written out.
-- Locks work rows, in task order, skipping what others hold.
-- Twice: those that were held meanwhile.
CREATE OR REPLACE FUNCTION expire_deadlines(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w record;
    n integer := 0;
BEGIN
    FOR w IN WITH late AS MATERIALIZED (
                 SELECT x.task FROM work x
                 WHERE x.deadline < now_() AND x.state NOT IN ('running', 'unknown')
                   AND NOT x.cancel AND (x.sent IS NULL OR x.state <> 'ready') LIMIT most)
             SELECT l.* FROM (SELECT * FROM late ORDER BY task) d
             CROSS JOIN LATERAL (
                 SELECT x.ctid AS tid, x.task, x.week, x.phase, x.attempt, x.crashes, x.sent
                 FROM work x WHERE x.task = d.task AND x.state NOT IN ('running', 'unknown')
                              AND NOT x.cancel AND x.deadline < now_()
                 OFFSET 0 FOR UPDATE SKIP LOCKED) l LOOP
        n := n + 1;
        IF w.sent IS NOT NULL THEN
            UPDATE work x SET state = 'ready', due = now_() WHERE x.ctid = w.tid;
            CONTINUE;
        END IF;
        PERFORM end_task(w.week, w.task, 'failed', format(
            '{"code":-32603,"message":"deadline exceeded","data":{"type":"deadline","executed":"%s"}}',
            CASE WHEN w.phase = 0 AND w.attempt = 0 AND w.crashes = 0 THEN 'no' ELSE 'maybe' END),
            'deadline exceeded; ' || phases_done(w.week, w.task), w.attempt);
    END LOOP;
    RETURN n;
END $$;

-- Promises that attachments of API incarnations that are no more are parked, as if their clients had hung
-- up.
-- Locks work rows, in task order.
-- Twice: finds nothing more.
CREATE OR REPLACE FUNCTION park_orphans(most integer) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    WITH orphans AS MATERIALIZED (
        SELECT x.task, x.attached, x.attached_no FROM work x
        WHERE x.attached IS NOT NULL
          AND NOT EXISTS (SELECT FROM worker k WHERE k.incarnation = x.attached) LIMIT most)
    SELECT count(*)::integer
    FROM (SELECT array_agg(o.task) AS tasks, array_agg(o.attached) AS apis,
                 array_agg(o.attached_no) AS numbers, array_agg(true) AS parks FROM orphans o) a
    CROSS JOIN LATERAL detach(a.tasks, a.apis, a.numbers, a.parks) d
    WHERE d.ours
$$;

-- Promises that tasks which stayed parked for longer than their tool allows end cancelled, and say what was
-- done.
-- Locks work rows, in task order, skipping what others hold.
-- Twice: those that were held meanwhile.
CREATE OR REPLACE FUNCTION expire_parked(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w record;
    n integer := 0;
BEGIN
    FOR w IN WITH late AS MATERIALIZED (
                 SELECT x.task FROM work x WHERE x.state = 'parked' AND x.due < now_() LIMIT most)
             SELECT l.* FROM (SELECT * FROM late ORDER BY task) d
             CROSS JOIN LATERAL (SELECT x.task, x.week FROM work x
                                 WHERE x.task = d.task AND x.state = 'parked' AND x.due < now_()
                                 OFFSET 0 FOR UPDATE SKIP LOCKED) l LOOP
        n := n + 1;
        PERFORM stop_task(w.week, w.task, 'its client hung up and nobody took it up again');
    END LOOP;
    RETURN n;
END $$;

-- Promises, after the clock went back, to mend what it wrote while it was ahead, in some pages of `work`.
-- What its rows wait for is due as long after now as it was after that write, or it would be due by as much
-- later as the clock leapt; what was tried or sent cannot have been after now. Deadlines stay. Returns the
-- next page, 0 at the end, and how many were mended.
-- Locks work rows, skipping what others hold, which is for the next time; then their inbox.
-- Twice: what was mended is not ahead any more.
CREATE OR REPLACE FUNCTION mend_clock(page bigint, pages integer, slack_ms bigint)
RETURNS TABLE (next bigint, mended integer)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    w record;
BEGIN
    mended := 0;
    FOR w IN SELECT x.ctid AS tid, x.week, x.task, x.state, x.updated - at AS ahead FROM work x
             WHERE x.ctid >= format('(%s,0)', page)::tid
               AND x.ctid < format('(%s,0)', page + pages)::tid
               AND x.updated > at + ms(slack_ms) FOR UPDATE SKIP LOCKED LOOP
        UPDATE work x SET due = x.due - w.ahead, turn = x.turn - w.ahead, first_try = least(x.first_try, at),
               sent = least(x.sent, at), updated = at
        WHERE x.ctid = w.tid;
        IF w.state = 'waiting' THEN
            UPDATE inbox i SET until = i.until - w.ahead, asked = at
            WHERE i.week = w.week AND i.task = w.task AND i.how IS NULL AND i.asked > at;
        END IF;
        mended := mended + 1;
    END LOOP;
    next := page_after('holdfast.work', page, pages);
    RETURN NEXT;
END $$;

-- Promises that tasks of a week whose retention is over are removed, in one limited batch, and their effects
-- are tombstones in the same commit (rule 15). Returns how many.
-- Locks the week; then effects, in digest order.
-- Twice: the next batch.
CREATE OR REPLACE FUNCTION sweep(week integer, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    gone bytea[];
    digests bytea[];
BEGIN
    PERFORM 1 FROM week k WHERE k.week = sweep.week FOR UPDATE;
    SELECT array_agg(x.task), array_agg(x.digest) INTO gone, digests FROM (
        SELECT t.task, t.digest FROM step s
        JOIN holdfast.task t ON t.week = sweep.week AND t.task = s.task
        WHERE s.week = sweep.week AND s.place = 2147483647
          AND s.at + ms(t.result_ttl_ms) < now_() LIMIT most) x;
    IF gone IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM 1 FROM effect e WHERE e.digest = ANY (digests) ORDER BY e.digest FOR NO KEY UPDATE;
    UPDATE effect e SET tombstone_until = s.at + ms(v.tombstone_ttl_ms)
    FROM step s, holdfast.task t, tool v
    WHERE s.week = sweep.week AND s.task = ANY (gone) AND s.place = 2147483647
      AND t.week = sweep.week AND t.task = s.task AND v.tool = t.tool
      AND e.digest = t.digest AND e.task = t.task;
    DELETE FROM artifact x WHERE x.week = sweep.week AND x.task = ANY (gone);
    DELETE FROM event x WHERE x.week = sweep.week AND x.task = ANY (gone);
    DELETE FROM inbox x WHERE x.week = sweep.week AND x.task = ANY (gone);
    DELETE FROM intent x WHERE x.week = sweep.week AND x.task = ANY (gone);
    DELETE FROM step x WHERE x.week = sweep.week AND x.task = ANY (gone);
    DELETE FROM holdfast.task x WHERE x.week = sweep.week AND x.task = ANY (gone);
    RETURN cardinality(gone);
END $$;

-- Promises that an old week which holds nothing more is marked for dropping. True: detach and drop its
-- partitions.
-- Locks the week.
-- Twice: true again.
CREATE OR REPLACE FUNCTION close_week(week integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM week k WHERE k.week = close_week.week FOR UPDATE;
    IF NOT FOUND OR close_week.week >= week_of(to_ms(now_())) - 1
       OR EXISTS (SELECT FROM holdfast.task t WHERE t.week = close_week.week) THEN
        RETURN false;
    END IF;
    UPDATE week k SET state = 'closing' WHERE k.week = close_week.week;
    RETURN true;
END $$;

-- Promises that tombstones past their time go, page by page of one partition: the effect table has no index
-- on it. Returns the next page, 0 at the end.
-- Locks effects, in the order of their pages, skipping what others hold: accept deletes by digest.
-- Twice: finds nothing more in those pages.
CREATE OR REPLACE FUNCTION sweep_tombstones(part integer, page bigint, pages integer)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
DECLARE
    relation text := format('holdfast.effect_%s', part);
BEGIN
    EXECUTE format('DELETE FROM %1$s e WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM %1$s x'
                   ' WHERE x.ctid >= %2$L::tid AND x.ctid < %3$L::tid'
                   ' AND x.tombstone_until < holdfast.now_() FOR UPDATE SKIP LOCKED))',
                   relation, format('(%s,0)', page), format('(%s,0)', page + pages));
    RETURN page_after(relation, page, pages);
END $$;

-- Promises that intent windows go that are over for sure: a day is the longest that a tool may have. Returns
-- how many.
-- Locks their rows, the oldest first, skipping what others hold.
-- Twice: the next batch.
CREATE OR REPLACE FUNCTION sweep_windows(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
DECLARE
    n integer;
BEGIN
    DELETE FROM holdfast.intent_window w WHERE w.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.intent_window x WHERE x.opened < now_() - interval '1 day'
        ORDER BY x.opened LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Promises the end of backends of our roles that block others while their client has stopped reading (rule
-- 12).
-- Locks nothing.
-- Twice: those that do it by then.
CREATE OR REPLACE FUNCTION end_blockers(older_ms bigint) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    -- Materialized: the planner may not ask the terminating function before the conditions.
    WITH blockers AS MATERIALIZED (
        SELECT b.pid FROM pg_stat_activity b
        WHERE b.usename LIKE 'holdfast\_%' AND b.wait_event = 'ClientRead' AND b.state <> 'idle'
          AND b.pid <> pg_backend_pid() AND b.state_change < clock_timestamp() - ms(older_ms)
          AND EXISTS (SELECT FROM pg_locks l
                      WHERE NOT l.granted AND b.pid = ANY (pg_blocking_pids(l.pid)))
    )
    SELECT count(*)::integer FROM blockers b WHERE pg_terminate_backend(b.pid)
$$;

-- Promises, for the gauges, open tasks by state in some pages of `work`, and in the row without a state the
-- page to go on from, 0 at the end. What moves meanwhile may count twice or not at all.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION count_work(page bigint, pages integer)
RETURNS TABLE (state text, number bigint)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT w.state, count(*) FROM work w
    WHERE w.ctid >= format('(%s,0)', page)::tid AND w.ctid < format('(%s,0)', page + pages)::tid
    GROUP BY w.state;
    RETURN QUERY SELECT NULL::text, page_after('holdfast.work', page, pages);
END $$;

-- Promises numbers for the gauges: one index probe a version of a tool, and two small tables. Ages are in
-- ms.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION gauges() RETURNS TABLE (name text, label text, number bigint)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := now_();
    at bigint := to_ms(now);
BEGIN
    RETURN QUERY
    SELECT 'oldest_ready', t.name, max(at - to_ms(r.due)) AS age FROM tool t
    CROSS JOIN LATERAL (SELECT w.due FROM work w WHERE w.queue = t.tool AND w.state = 'ready'
                          AND w.due <= now ORDER BY w.due LIMIT 1) r
    GROUP BY t.name ORDER BY age DESC LIMIT 64;
    RETURN QUERY
    SELECT 'incarnations', k.role, count(w.incarnation)
    FROM (VALUES ('api'), ('worker')) k (role) LEFT JOIN worker w ON w.role = k.role
    GROUP BY k.role;
    RETURN QUERY
    SELECT 'weeks_ahead', '', count(*) FROM week w WHERE w.week > week_of(at);
    RETURN QUERY SELECT * FROM limit_gauges();
END $$;
