-- After a restore of an older state: its lost tail may hold steps, intents and whole tasks.
-- `holdfast restored` makes the store careful of all of them; until then nothing is accepted or
-- claimed, where any process saw that something is missing.

-- Promises what a process compares with what it remembers, see runtime/lineage.h. `tail`: where the log
-- ended that this server came up with; null where it was shut down in order.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION store_now(OUT system text, OUT home text, OUT held text,
    OUT restored bigint, OUT started text, OUT tail pg_lsn, OUT wal pg_lsn)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT s.system_identifier::text, coalesce(c.system, s.system_identifier::text), c.held,
           coalesce(to_ms(c.restored), 0), to_ms(pg_postmaster_start_time())::text,
           pg_last_wal_replay_lsn(), pg_current_wal_insert_lsn()
    FROM cluster c CROSS JOIN pg_control_system() s
$$;

-- Promises that this store stands still from now on: a process saw that it lost what it was told to be kept.
-- Locks the one row of cluster.
-- Twice: the first reason stays.
CREATE OR REPLACE FUNCTION restore_ask(why text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
BEGIN
    UPDATE cluster SET held = restore_ask.why WHERE held IS NULL;
    IF FOUND THEN
        PERFORM audit_put('restore asked for', NULL, session_user::text, restore_ask.why);
    END IF;
END $$;

-- Promises an error while the store stands still: a connection that gets this is given up, and each new one
-- is told why before anything else.
-- Locks nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION stand_still(held text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
BEGIN
    IF held IS NOT NULL THEN
        RAISE EXCEPTION 'a restored store: run `holdfast restored` (%)', held USING ERRCODE = '55000';
    END IF;
END $$;

-- Promises whether that phase may have run in a lost tail. `below`: an operator found that phase undone; so
-- are those that only follow it.
CREATE OR REPLACE FUNCTION in_tail(phase integer, below integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(phase < below OR (phase >= 64 AND below < 64), true)
$$;

-- Promises the effect class of a phase or undo step (127 - p) of this tool.json; behind the last: 'local'.
CREATE OR REPLACE FUNCTION class_of(doc text, phase integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = holdfast, pg_temp AS $$
    SELECT CASE WHEN p IS NULL THEN 'local'
                ELSE coalesce(p ->> 'effect', CASE WHEN p ->> 'kind' IN ('sql', 'wait') THEN 'local'
                                                   ELSE 'unsafe' END) END
    FROM (SELECT CASE WHEN phase < 64 THEN doc::json -> 'phases' -> phase
                      WHEN phase < 128 THEN doc::json -> 'phases' -> (127 - phase) -> 'undo' END AS p) x
$$;

-- Promises whether a phase that is done may run once more without an effect: it is pure, or waits for a time.
-- Locks nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION runs_anew(doc text, phase integer) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = holdfast, pg_temp AS $$
    SELECT class_of(doc, phase) = 'pure' OR coalesce(p ->> 'ms', p ->> 'until') IS NOT NULL
    FROM (SELECT doc::json -> 'phases' -> phase AS p) x
$$;

-- Promises what a claim has to know of the lost tail beside its phase: 'FROM TO', in ms, of a task that was
-- open then; and ' new' behind it for one that was accepted since, which may repeat a lost one for as long
-- as results are kept. Null: nothing.
CREATE OR REPLACE FUNCTION tail_of(tail_from timestamptz, tail_to timestamptz, tail_below integer,
    phase integer, accepted timestamptz, result_ttl_ms bigint, lost_from timestamptz,
    lost_to timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN tail_to IS NOT NULL THEN
                    CASE WHEN in_tail(phase, tail_below)
                         THEN format('%s %s', to_ms(tail_from), to_ms(tail_to)) END
                WHEN accepted > lost_from AND accepted < lost_to + ms(result_ttl_ms)
                    THEN format('%s %s new', to_ms(lost_from), to_ms(lost_to)) END
$$;

-- Promises, in a copy, that those of these work rows whose next phase is foreign are put off; the others
-- come back.
-- Locks nothing more: the caller holds the work rows.
-- Twice: those that came back come back.
CREATE OR REPLACE FUNCTION put_off_foreign(tids tid[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    gone tid[] := ARRAY(SELECT w.ctid FROM work w JOIN tool v ON v.tool = w.queue
                        WHERE w.ctid = ANY (tids)
                          AND class_of(v.doc, w.phase) NOT IN ('pure', 'local'));
BEGIN
    UPDATE work w SET state = 'scheduled', due = now_() + interval '5 s', updated = now_(),
        message = 'a copy: nothing foreign runs before `holdfast restored --confirm`'
    WHERE w.ctid = ANY (gone);
    RETURN ARRAY(SELECT t FROM unnest(tids) t WHERE t <> ALL (gone));
END $$;

-- Promises what `restored` would do: open tasks by the class of the phase they stand at, and of those the
-- ones that are claimed.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION restore_counts()
RETURNS TABLE (class text, tasks bigint, claimed bigint)
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    SELECT class_of(v.doc, w.phase), count(*), count(*) FILTER (WHERE w.state = 'running')
    FROM work w JOIN tool v ON v.tool = w.queue GROUP BY 1 ORDER BY 1
$$;

-- Promises the beginning: nothing is accepted or claimed from now on, and every incarnation of before is
-- over, so that no beat of it is acknowledged. 'begun'; 'again' (an earlier run did not come to its end);
-- 'done' (that has been done for this very time, and nothing was missed since).
-- Locks the one row of cluster; then all of claim_call, then all of worker.
-- Twice: 'again'; behind restore_end 'done'.
CREATE OR REPLACE FUNCTION restore_begin(since timestamptz, copy boolean, by text, why text)
RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c cluster;
    again boolean;
BEGIN
    SELECT x.* INTO c FROM cluster x FOR UPDATE;
    IF c.held IS NULL AND c.restored IS NOT NULL AND c.tail_from = since AND c.copy = restore_begin.copy
       AND c.system = (SELECT s.system_identifier::text FROM pg_control_system() s) THEN
        RETURN 'done';
    END IF;
    again := coalesce(starts_with(c.held, 'restored runs'), false);
    UPDATE cluster SET held = 'restored runs', tail_from = least(since, CASE WHEN again THEN c.tail_from END),
        tail_to = NULL, copy = c.copy OR restore_begin.copy,
        incarnation = CASE WHEN restore_begin.copy AND NOT (again AND c.copy) THEN gen_random_uuid()
                           ELSE c.incarnation END;
    PERFORM audit_put('restored' || CASE WHEN restore_begin.copy THEN ' --copy' ELSE '' END, NULL, by,
                      format('since %s: %s', since, why));
    DELETE FROM claim_call;
    DELETE FROM worker;
    RETURN CASE WHEN again THEN 'again' ELSE 'begun' END;
END $$;

-- Promises one batch, behind `after` in the order of task IDs; the last of it, null at the end. Claims are
-- void. Nothing is known any more of where the phase at hand stands: what nobody can ask about is unknown;
-- what can be read back will be, as `sent` asks for; a key's window began with the tail. In a copy, whose keys
-- are others, no earlier request can be recognized: its windows are over.
-- Locks work rows, in task order.
-- Twice: as once.
CREATE OR REPLACE FUNCTION restore_tasks(after bytea, most integer) RETURNS bytea
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    c cluster;
    w work;
    class text;
    last bytea;
BEGIN
    SELECT x.* INTO c FROM cluster x;
    IF NOT coalesce(starts_with(c.held, 'restored runs'), false) THEN
        RAISE EXCEPTION 'no restore is under way' USING ERRCODE = '55000';
    END IF;
    c.tail_from := CASE WHEN c.copy THEN 'epoch' ELSE c.tail_from END;
    FOR w IN SELECT x.* FROM work x WHERE x.task > after ORDER BY x.task LIMIT most FOR UPDATE LOOP
        last := w.task;
        -- What downstream has accepted is looked for there, not sent.
        SELECT CASE WHEN w.state = 'unverified' THEN 'lookup' ELSE class_of(v.doc, w.phase) END
        INTO class FROM tool v WHERE v.tool = w.queue;
        UPDATE work x SET token = NULL, incarnation = NULL, progress = NULL, updated = at,
            attempt = CASE WHEN w.state = 'running' THEN greatest(w.attempt - 1, 0) ELSE w.attempt END,
            -- Who hung up while it ran has left it: the next claim parks it, as after any worker's death.
            park = w.state = 'running' AND w.park AND w.pause IS NULL AND NOT w.cancel AND w.phase < 64
                   AND class <> 'unsafe',
            tail_from = c.tail_from, tail_to = at, tail_below = NULL, sent = at,
            first_try = least(w.first_try, c.tail_from),
            -- Settled, an unknown one is paused again; a tenant's the next claim sets aside.
            pause = CASE WHEN class = 'unsafe' AND w.pause = 'tenant' THEN NULL ELSE w.pause END,
            state = CASE WHEN class = 'unsafe' THEN 'unknown'
                         WHEN w.state <> 'running' THEN w.state
                         WHEN w.park AND w.pause IS NOT NULL AND NOT w.cancel AND w.phase < 64 THEN 'paused'
                         ELSE 'ready' END,
            due = CASE WHEN w.state = 'running' THEN at ELSE w.due END,
            -- What a worker said of one that was unknown already stays: it has the key.
            message = CASE WHEN w.state = 'unknown' THEN w.message
                           WHEN class = 'unsafe' THEN unknown_text(w.queue, w.phase)
                           WHEN w.state = 'running' THEN NULL ELSE w.message END
        WHERE x.task = w.task;
        IF class = 'unsafe' AND w.state <> 'unknown' THEN
            PERFORM note(w.week, w.task, 'unknown', w.phase, w.attempt,
                         unknown_text(w.queue, w.phase));
        END IF;
        IF c.copy THEN
            UPDATE holdfast.task t SET incarnation = c.incarnation WHERE t.week = w.week AND t.task = w.task;
        END IF;
    END LOOP;
    RETURN last;
END $$;

-- Promises what stands, for people, in the place of what a worker would have said.
-- Locks nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION unknown_text(queue integer, phase integer) RETURNS text
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    SELECT format('it cannot be told whether %s happened: the store was restored, and what it did '
                  'afterwards is lost', coalesce(phase_name(v.doc, unknown_text.phase), 'it'))
    FROM tool v WHERE v.tool = unknown_text.queue
$$;

-- Promises the end: the store is at home in this Postgres, and goes on.
-- Locks the one row of cluster.
-- Twice: nothing more.
CREATE OR REPLACE FUNCTION restore_end() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
DECLARE
    at timestamptz := now_();
BEGIN
    UPDATE cluster SET held = NULL, restored = greatest(at, restored + interval '1 ms'),
        tail_to = CASE WHEN copy THEN NULL ELSE at END,
        system = (SELECT s.system_identifier::text FROM pg_control_system() s)
    WHERE starts_with(held, 'restored runs');
END $$;

-- Promises that nothing was lost (an upgrade with another identifier, a dump of a store at rest): it goes on
-- as it is. 'intact', or why not: 'running' (a restore is under way).
-- Locks the one row of cluster.
-- Twice: once more in the audit record.
CREATE OR REPLACE FUNCTION restore_intact(by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
DECLARE
    at timestamptz := now_();
BEGIN
    UPDATE cluster SET held = NULL, restored = greatest(at, restored + interval '1 ms'),
        system = (SELECT s.system_identifier::text FROM pg_control_system() s)
    WHERE NOT starts_with(coalesce(held, ''), 'restored runs');
    IF NOT FOUND THEN
        RETURN 'running';
    END IF;
    PERFORM audit_put('restored --intact', NULL, restore_intact.by, restore_intact.why);
    RETURN 'intact';
END $$;

-- Promises that a copy may act on the world: 'confirmed', 'no_copy'.
-- Locks the one row of cluster; then work rows, skipping what others hold, which come due by themselves.
-- Twice: 'no_copy'.
CREATE OR REPLACE FUNCTION restore_confirm(by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
BEGIN
    UPDATE cluster SET copy = false WHERE copy AND held IS NULL;
    IF NOT FOUND THEN
        RETURN 'no_copy';
    END IF;
    PERFORM audit_put('restored --confirm', NULL, restore_confirm.by, restore_confirm.why);
    UPDATE work w SET due = now_() WHERE w.ctid = ANY (ARRAY(
        SELECT x.ctid FROM work x
        WHERE x.state = 'scheduled' AND x.message LIKE 'a copy: nothing foreign%' FOR UPDATE SKIP LOCKED));
    RETURN 'confirmed';
END $$;
