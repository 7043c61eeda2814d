-- An operator's acts: retry, pause, resume, cancel. Each names who and why, and leaves an audit row in
-- its own commit. Called by the administrator's commands alone, but for what the claim and the polls
-- read. Locks as everywhere: week, effect, work, step.

-- Promises what waits for a paused tool or tenant, for people; null: nothing is paused here.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION pause_word(queue integer, owner bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM pause p) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT 'all work of this ' || p.kind FROM pause p
            WHERE (p.kind = 'tool'
                   AND p.name = (SELECT t.name FROM tool t WHERE t.tool = pause_word.queue))
               OR (p.kind = 'tenant'
                   AND p.name = (SELECT o.tenant FROM principal o WHERE o.owner = pause_word.owner))
            ORDER BY p.kind LIMIT 1);
END $$;

-- Promises those of these queues whose tools are not paused, in their order.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION queues_open(queues integer[]) RETURNS integer[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT q.queue FROM unnest(queues_open.queues) WITH ORDINALITY q (queue, ord)
                 WHERE NOT EXISTS (SELECT FROM tool t JOIN pause p ON p.name = t.name
                                   WHERE t.tool = q.queue AND p.kind = 'tool')
                 ORDER BY q.ord);
END $$;

-- Promises that of these work rows those of paused tenants become paused; the others come back. So a claim
-- never looks at them twice. The tenant's row in `pause` stays until this has committed: its resume takes
-- that away first and looks for paused tasks after (V9).
-- Locks rows of pause, by name, FOR KEY SHARE; the caller holds the work rows. Who takes a pause away holds
-- no other lock.
-- Twice: those that came back come back.
CREATE OR REPLACE FUNCTION pause_tenants(tids tid[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    tenants text[];
    gone tid[];
BEGIN
    SELECT array_agg(l.name) INTO tenants FROM (
        SELECT p.name FROM pause p WHERE p.kind = 'tenant'
          AND p.name IN (SELECT o.tenant FROM work w JOIN principal o ON o.owner = w.owner
                         WHERE w.ctid = ANY (tids))
        ORDER BY p.name FOR KEY SHARE) l;
    IF tenants IS NULL THEN
        RETURN tids;
    END IF;
    gone := ARRAY(SELECT w.ctid FROM work w JOIN principal o ON o.owner = w.owner
                  WHERE w.ctid = ANY (tids) AND o.tenant = ANY (tenants));
    UPDATE work w SET state = 'paused', pause = 'tenant', message = 'all work of this tenant',
        updated = now_()
    WHERE w.ctid = ANY (gone);
    RETURN ARRAY(SELECT t FROM unnest(tids) t WHERE t <> ALL (gone));
END $$;

-- Promises one row in the audit record.
-- Locks nothing.
-- Twice: two rows.
CREATE OR REPLACE FUNCTION audit_put(act text, task bytea, by text, detail text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    INSERT INTO audit (at, act, task, by, detail)
    VALUES (now_(), audit_put.act, audit_put.task, audit_put.by, audit_put.detail)
$$;

-- Promises what an operator's retry does to an open task: it is due now. Only a task that nobody runs, and
-- at the place where it stands.
-- Locks nothing more: the caller holds the work row.
-- Twice: the state that it has by then.
CREATE OR REPLACE FUNCTION retry_open(w work, from_phase integer, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF w.state NOT IN ('scheduled', 'paused', 'unverified') THEN
        RETURN w.state;
    ELSIF w.state = 'paused' AND w.pause = 'tenant' THEN
        RETURN 'tenant';
    ELSIF from_phase IS DISTINCT FROM w.phase AND from_phase IS NOT NULL THEN
        RETURN 'place';
    END IF;
    PERFORM audit_put('retry', w.task, by, why);
    PERFORM note(w.week, w.task, 'retried', w.phase, w.attempt, 'by ' || by || ': ' || why);
    UPDATE work x SET state = 'ready', due = now_(), pause = NULL, message = NULL, updated = now_()
    WHERE x.task = w.task;
    RETURN 'due';
END $$;

-- Promises, of a task whose undo steps were begun, the phases that it has left done, for a person. Null: they
-- were not. One whose undo step failed may be undone all the same.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION left_standing(week integer, task bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    failed_at integer;
    maybe boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM event e WHERE e.week = left_standing.week AND e.task = left_standing.task
                   AND e.kind = 'undo')
       AND NOT EXISTS (SELECT FROM step s WHERE s.week = left_standing.week AND s.task = left_standing.task
                       AND s.kind = 'recovery_point' AND s.place >= 64 * 65536) THEN
        RETURN NULL;
    END IF;
    -- The next to be undone is where it failed.
    SELECT max(u.phase) INTO failed_at
    FROM holdfast.task t JOIN tool v ON v.tool = t.tool CROSS JOIN unnest(v.undos) u (phase)
    JOIN step s ON s.week = t.week AND s.task = t.task AND s.place = u.phase * 65536 + 65535
    WHERE t.week = left_standing.week AND t.task = left_standing.task
      AND NOT EXISTS (SELECT FROM step y WHERE y.week = t.week AND y.task = t.task
                      AND y.place = (127 - u.phase) * 65536 + 65535);
    -- As in retry, of a phase.
    SELECT coalesce(o.error::json #>> '{data,phase_executed}', 'maybe') <> 'no' INTO maybe
    FROM step o
    WHERE o.week = left_standing.week AND o.task = left_standing.task AND o.place = 2147483647;
    RETURN (SELECT coalesce(string_agg(s.name
                                || CASE WHEN s.place / 65536 = failed_at AND maybe
                                             AND class_of(v.doc, 127 - failed_at) NOT IN ('pure', 'local')
                                        THEN ' (its undo may have taken effect)' ELSE '' END,
                                ', ' ORDER BY s.place), 'nothing')
            FROM holdfast.task t JOIN tool v ON v.tool = t.tool
            JOIN step s ON s.week = t.week AND s.task = t.task AND s.kind = 'recovery_point'
            WHERE t.week = left_standing.week AND t.task = left_standing.task AND s.place < 64 * 65536
              AND class_of(v.doc, s.place / 65536) <> 'pure'
              AND v.doc::json -> 'phases' -> (s.place / 65536) ->> 'kind' IS DISTINCT FROM 'wait'
              AND NOT EXISTS (SELECT FROM step y WHERE y.week = t.week AND y.task = t.task
                              AND y.place = (127 - s.place / 65536) * 65536 + 65535));
END $$;

-- Promises a retry by an operator. An open task goes on at once: 'due'. Of a failed one a
-- successor is accepted: 'retried'. It begins at from_phase, null: where the task failed, and has the
-- recovery points before that; the effect points to it. Its keys are the same, but for new_key: then those
-- of that phase are of the next generation.
-- Else why not: the state of an open task, 'tenant' (its tenant is paused), 'place' (an open task goes on
-- where it stands); 'completed', 'cancelled', 'missing', 'successor' (there is one: it comes back), 'undone'
-- (it was cancelled, and undoing its phases was begun), 'ahead' (of the place where it failed), 'done' (to be
-- repeated was an effect), 'maybe' (that phase may have taken effect, so that it begins there alone),
-- 'not_refused' (a new key without a definitive refusal).
-- Locks the work row; where there is none the week, FOR KEY SHARE, then the effect.
-- Twice: 'successor', or the state that an open task has by then.
CREATE OR REPLACE FUNCTION retry(week integer, task bytea, from_phase integer, new_key boolean,
    by text, why text, random bytea, OUT answer text, OUT successor bytea)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    new_week integer := week_of(to_ms(at));
    w work;
    t record;
    o record;
    failed_at integer;
    begins integer;
    effect_of text;
    failure json;
    maybe boolean;
    first timestamptz;
    keys integer[];
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = retry.task FOR UPDATE;
    IF FOUND THEN
        answer := CASE WHEN new_key THEN 'not_refused' ELSE retry_open(w, from_phase, by, why) END;
        RETURN;
    END IF;
    -- Lock: the sweep comes before or after, and so does another retry.
    PERFORM 1 FROM week k WHERE k.week = retry.week FOR KEY SHARE;
    PERFORM 1 FROM effect e
    WHERE e.digest = (SELECT x.digest FROM holdfast.task x
                      WHERE x.week = retry.week AND x.task = retry.task) FOR UPDATE;
    -- Read after, with a snapshot of its own.
    SELECT x.*, e.task AS newest, v.doc, v.phases, v.deadline_ms, v.name AS tool_name INTO t
    FROM holdfast.task x JOIN effect e ON e.digest = x.digest JOIN tool v ON v.tool = x.tool
    WHERE x.week = retry.week AND x.task = retry.task;
    SELECT x.* INTO o FROM step x
    WHERE x.week = retry.week AND x.task = retry.task AND x.place = 2147483647;
    IF t.task IS NULL OR o.place IS NULL OR o.at + ms(t.result_ttl_ms) <= at THEN
        answer := 'missing';
        RETURN;
    ELSIF o.name <> 'failed' THEN
        answer := o.name;
        RETURN;
    ELSIF t.newest <> retry.task THEN
        answer := 'successor';
        successor := coalesce(t.successor, t.newest);
        RETURN;
    ELSIF left_standing(retry.week, retry.task) IS NOT NULL THEN
        answer := 'undone';
        RETURN;
    END IF;

    -- It failed behind its last recovery point, or, with all of them, at its result.
    SELECT count(*) INTO failed_at FROM step s WHERE s.week = retry.week AND s.task = retry.task
                                                 AND s.kind = 'recovery_point';
    begins := coalesce(from_phase, failed_at);
    failure := o.error::json;
    effect_of := class_of(t.doc, failed_at);
    -- What a worker or the store could not rule out (V7).
    maybe := failed_at < t.phases AND effect_of NOT IN ('pure', 'local')
             AND coalesce(failure #>> '{data,phase_executed}',
                          CASE failure #>> '{data,type}' WHEN 'deadline' THEN 'no' END, 'maybe') <> 'no';
    answer := CASE
        WHEN begins > failed_at THEN 'ahead'
        WHEN EXISTS (SELECT FROM generate_series(begins, failed_at - 1) p
                     WHERE NOT runs_anew(t.doc, p)) THEN 'done'
        WHEN maybe AND begins < failed_at THEN 'maybe'
        WHEN new_key AND (begins <> failed_at OR failed_at >= t.phases OR maybe
                          OR effect_of IN ('pure', 'local')
                          OR failure #>> '{data,type}' IS DISTINCT FROM 'phase_failed')
            THEN 'not_refused' END;
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;

    keys := coalesce(t.generations, array_fill(0, ARRAY[t.phases]));
    IF new_key THEN
        keys[begins + 1] := keys[begins + 1] + 1;
    END IF;
    IF maybe THEN
        SELECT coalesce(t.tried, max(s.at), t.accepted) INTO first FROM step s
        WHERE s.week = retry.week AND s.task = retry.task AND s.place = failed_at * 65536 - 1;
    END IF;
    -- Its own checkpoints and answers stay, but where somebody asks for a pure phase from its
    -- beginning, and where the answer is all that it is.
    successor := retry_accept(t.week, t.task, new_week, t.deadline_ms, begins,
        (from_phase IS NULL OR class_of(t.doc, begins) IS DISTINCT FROM 'pure')
        AND t.doc::json -> 'phases' -> begins ->> 'kind' IS DISTINCT FROM 'wait',
        CASE WHEN 0 < ANY (keys) THEN keys END, first, o.at, random);
    UPDATE effect e SET task = successor WHERE e.digest = t.digest;
    PERFORM audit_put('retry', retry.task, by,
        format('%s; successor %s, from phase %s%s', why,
               task_id(successor), coalesce(phase_name(t.doc, begins), 'none'),
               CASE WHEN new_key THEN format(', key generation %s', keys[begins + 1]) ELSE '' END));
    PERFORM note(retry.week, retry.task, 'retried', least(begins, t.phases - 1), o.attempt,
                 'by ' || by || ': ' || why);
    answer := 'retried';
END $$;

-- Promises the rows of a successor. `first`, `sent`: when the phase that it begins with was first tried and
-- may last have been sent; null where that has provably no effect.
-- Locks nothing more: the caller holds week and effect.
-- Twice: one more, so retry calls it once.
CREATE OR REPLACE FUNCTION retry_accept(week integer, task bytea, new_week integer,
    deadline_ms bigint, begins integer, checkpoints boolean, keys integer[], first timestamptz,
    sent timestamptz, random bytea, OUT successor bytea)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    c cluster;
BEGIN
    SELECT x.* INTO c FROM cluster x;
    successor := task_head(to_ms(at)) || random;
    INSERT INTO holdfast.task (week, task, owner, tool, effect_id, digest, fingerprint, arguments,
        inputs, asks, accepted, deadline, trace, key_version, incarnation, result_ttl_ms, retry_of,
        generations, tried)
    SELECT new_week, retry_accept.successor, x.owner, x.tool, x.effect_id, x.digest, x.fingerprint,
           x.arguments, x.inputs, x.asks, at, at + ms(deadline_ms), x.trace, x.key_version, c.incarnation,
           x.result_ttl_ms, x.task, keys, first
    FROM holdfast.task x WHERE x.week = retry_accept.week AND x.task = retry_accept.task;
    UPDATE holdfast.task x SET successor = retry_accept.successor
    WHERE x.week = retry_accept.week AND x.task = retry_accept.task;

    INSERT INTO step (week, task, place, kind, name, state, derived_key, answer, attempt, generation,
                      hash, started, at, origin)
    SELECT new_week, retry_accept.successor, s.place, s.kind, s.name, s.state, s.derived_key, s.answer,
           s.attempt, s.generation, s.hash, s.started, s.at, coalesce(s.origin, s.task)
    FROM step s
    WHERE s.week = retry_accept.week AND s.task = retry_accept.task AND s.kind <> 'outcome'
      AND s.place / 65536 < begins + checkpoints::integer;
    INSERT INTO artifact (week, task, phase, name, media_type, sha256, content, at)
    SELECT new_week, retry_accept.successor, a.phase, a.name, a.media_type, a.sha256, a.content, a.at
    FROM artifact a
    WHERE a.week = retry_accept.week AND a.task = retry_accept.task AND a.phase < begins;
    -- Of the phase at hand what was answered; what stood open, or was too late, is asked anew.
    INSERT INTO inbox (week, task, key, phase, request, asked, until, how, answer, answered)
    SELECT new_week, retry_accept.successor, i.key, i.phase, i.request, i.asked, i.until, i.how,
           i.answer, i.answered
    FROM inbox i
    WHERE i.week = retry_accept.week AND i.task = retry_accept.task
      AND (i.phase IS NULL OR i.phase < begins
           OR (checkpoints AND i.phase = begins AND i.how = 'answer'));
    -- To a worker an intent is what says that an unsafe phase may have left.
    INSERT INTO intent (week, task, phase, token, name, at)
    SELECT new_week, retry_accept.successor, begins, gen_random_uuid(), 'before the retry',
           coalesce((SELECT min(i.at) FROM intent i
                     WHERE i.week = retry_accept.week AND i.task = retry_accept.task
                       AND i.phase = begins), sent)
    WHERE first IS NOT NULL;

    -- Held: no plain call's hang-up parks what an operator wants done.
    -- A task that had failed before a restore may have had a successor in the lost tail. In a copy its
    -- keys are others now, and the original may have retried it at any time: as restore_tasks has it.
    INSERT INTO work (task, week, owner, queue, state, due, deadline, phase, held, generations,
                      first_try, sent, updated, tail_from, tail_to)
    SELECT retry_accept.successor, new_week, x.owner, x.tool, 'ready', at, at + ms(deadline_ms), begins,
           true, keys, CASE WHEN other THEN 'epoch' ELSE coalesce(first, lost.tail_from) END,
           CASE WHEN other THEN c.restored
                ELSE greatest(CASE WHEN first IS NOT NULL THEN sent END, lost.tail_to) END, at,
           CASE WHEN other THEN 'epoch' ELSE lost.tail_from END,
           CASE WHEN other THEN c.restored ELSE lost.tail_to END
    FROM holdfast.task x
    CROSS JOIN LATERAL (SELECT x.incarnation <> c.incarnation AS other) o
    LEFT JOIN cluster lost ON retry_accept.sent < lost.tail_to
    WHERE x.week = retry_accept.week AND x.task = retry_accept.task;
END $$;

-- Promises that one task is paused: at once where nobody runs it; its worker is asked as for a park: what is
-- in flight is answered and committed, then it stops. 'paused', 'asked', or why not: 'missing' (none open),
-- 'unknown', 'ending' (a cancel is under way). Its deadline goes on.
-- Locks the work row.
-- Twice: the same answer, and nothing changes.
CREATE OR REPLACE FUNCTION pause_task(task bytea, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w work;
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = pause_task.task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF w.cancel OR w.phase >= 64 THEN
        RETURN 'ending';
    ELSIF w.state = 'unknown' THEN
        RETURN 'unknown';
    ELSIF w.pause = 'task' AND (w.state = 'paused' OR w.park) THEN
        RETURN CASE w.state WHEN 'paused' THEN 'paused' ELSE 'asked' END;
    END IF;
    PERFORM audit_put('pause', w.task, by, why);
    PERFORM note(w.week, w.task, 'paused', w.phase, w.attempt, 'by ' || by || ': ' || why);
    UPDATE work x SET pause = 'task', updated = now_(), park = w.state = 'running',
        state = CASE w.state WHEN 'running' THEN 'running' ELSE 'paused' END,
        message = CASE w.state WHEN 'running' THEN x.message END
    WHERE x.task = w.task;
    RETURN CASE w.state WHEN 'running' THEN 'asked' ELSE 'paused' END;
END $$;

-- Promises to take that back; the task is due now. 'resumed', or why not: 'missing', 'not_paused', 'tenant'
-- (all work of its tenant is paused); 'unknown': resumed, but it goes on when settled.
-- Locks the work row.
-- Twice: 'not_paused'.
CREATE OR REPLACE FUNCTION resume_task(task bytea, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w work;
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = resume_task.task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF w.pause IS NULL OR NOT (w.park OR w.state IN ('paused', 'unknown')) THEN
        RETURN 'not_paused';
    ELSIF w.pause = 'tenant' THEN
        RETURN 'tenant';
    END IF;
    PERFORM audit_put('resume', w.task, by, why);
    PERFORM note(w.week, w.task, 'resumed', w.phase, w.attempt, 'by ' || by || ': ' || why);
    UPDATE work x SET pause = NULL, park = false, updated = now_(),
        state = CASE w.state WHEN 'paused' THEN 'ready' ELSE w.state END,
        due = CASE w.state WHEN 'paused' THEN now_() ELSE w.due END,
        message = CASE w.state WHEN 'paused' THEN NULL ELSE x.message END
    WHERE x.task = w.task;
    RETURN CASE w.state WHEN 'unknown' THEN 'unknown' ELSE 'resumed' END;
END $$;

-- Promises a cancel by an operator, for whichever owner. 'cancelled' (ended, or a worker undoes what is
-- done), 'asked' (running or unknown), 'missing' (none open).
-- Locks the work row.
-- Twice: the same wish, once more in the audit record; 'missing' where it has ended.
CREATE OR REPLACE FUNCTION cancel_task(task bytea, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w work;
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = cancel_task.task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    END IF;
    PERFORM audit_put('cancel', w.task, by, why);
    PERFORM note(w.week, w.task, 'operator', w.phase, w.attempt,
                 'cancel by ' || by || ': ' || why);
    RETURN (SELECT CASE WHEN c.flagged THEN 'asked' ELSE 'cancelled' END
            FROM cancel(w.week, ARRAY[w.owner], ARRAY[w.task]) c);
END $$;

-- Promises that nothing of a whole tool or tenant is claimed. 'paused', 'already'; 'missing' (no such tool;
-- a tenant may yet come).
-- Locks its row in pause, by the insert.
-- Twice: 'already'.
CREATE OR REPLACE FUNCTION pause_all(kind text, name text, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF kind = 'tool' AND NOT EXISTS (SELECT FROM tool t WHERE t.name = pause_all.name) THEN
        RETURN 'missing';
    END IF;
    INSERT INTO pause (kind, name, by, why, at)
    VALUES (pause_all.kind, pause_all.name, pause_all.by, pause_all.why, now_())
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'already';
    END IF;
    PERFORM audit_put('pause ' || pause_all.kind || ' ' || pause_all.name, NULL, pause_all.by,
                      pause_all.why);
    RETURN 'paused';
END $$;

-- Promises to take that back. 'resumed', 'not_paused'. Of a tenant, resume_tenant is to follow, in commits of
-- its own.
-- Locks its row in pause.
-- Twice: 'not_paused'.
CREATE OR REPLACE FUNCTION resume_all(kind text, name text, by text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM pause p WHERE p.kind = resume_all.kind AND p.name = resume_all.name;
    IF NOT FOUND THEN
        RETURN 'not_paused';
    END IF;
    PERFORM audit_put('resume ' || resume_all.kind || ' ' || resume_all.name, NULL, resume_all.by,
                      resume_all.why);
    RETURN 'resumed';
END $$;

-- Promises that the ready tasks of paused tenants are out of the claims' way, in some pages of `work`.
-- Returns the page to go on from, 0 at the end. Claims do the rest as they meet them.
-- Locks work rows, in the order of their pages, skipping what others hold; then as pause_tenants.
-- Twice: as once.
CREATE OR REPLACE FUNCTION pause_pages(page bigint, pages integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    PERFORM pause_tenants(ARRAY(
        SELECT w.ctid FROM work w
        WHERE w.ctid >= format('(%s,0)', page)::tid AND w.ctid < format('(%s,0)', page + pages)::tid
          AND w.state = 'ready'
        FOR UPDATE SKIP LOCKED));
    RETURN page_after('holdfast.work', page, pages);
END $$;

-- Promises that the tasks which a tenant's pause has set aside are due again. Returns how many; 0 at the
-- end.
-- Locks work rows, skipping what others hold.
-- Twice: the next batch.
CREATE OR REPLACE FUNCTION resume_tenant(tenant text, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    n integer;
BEGIN
    -- Paused again meanwhile: they stay.
    IF EXISTS (SELECT FROM pause p WHERE p.kind = 'tenant' AND p.name = resume_tenant.tenant) THEN
        RETURN 0;
    END IF;
    -- Set aside for a limit, too: the next claim sees to that.
    UPDATE work w SET state = 'ready', pause = NULL, message = NULL, updated = now_(),
        due = CASE w.due WHEN 'infinity' THEN w.turn ELSE w.due END
    WHERE w.ctid = ANY (ARRAY(
        SELECT x.ctid FROM work x JOIN principal o ON o.owner = x.owner
        WHERE x.state = 'paused' AND x.pause = 'tenant' AND o.tenant = resume_tenant.tenant
        LIMIT most FOR UPDATE OF x SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Promises what a filter means: tasks in that state, of a tool and a tenant (null: any), accepted before now
-- less older_ms, behind `after` in the order of task IDs. Failed ones that have a successor are over.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION pick(state text, tool text, tenant text, older_ms bigint, after bytea,
                                most integer) RETURNS SETOF bytea
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    before timestamptz := now_() - ms(older_ms);
BEGIN
    IF pick.state = 'failed' THEN
        RETURN QUERY
        SELECT t.task FROM holdfast.task t
        JOIN step o ON o.week = t.week AND o.task = t.task AND o.place = 2147483647
        JOIN holdfast.tool v ON v.tool = t.tool JOIN principal p ON p.owner = t.owner
        WHERE t.week >= week_of_task(pick.after) AND t.task > pick.after AND o.name = 'failed'
          AND t.successor IS NULL AND o.at + ms(t.result_ttl_ms) > now_() AND t.accepted <= before
          AND (pick.tool IS NULL OR v.name = pick.tool)
          AND (pick.tenant IS NULL OR p.tenant = pick.tenant)
        ORDER BY t.week, t.task LIMIT most;
    ELSE
        RETURN QUERY
        SELECT w.task FROM work w JOIN holdfast.tool v ON v.tool = w.queue
        JOIN principal p ON p.owner = w.owner
        WHERE w.task > pick.after AND w.state = pick.state
          AND ms_of_task(w.task) <= to_ms(before)
          AND (pick.tool IS NULL OR v.name = pick.tool)
          AND (pick.tenant IS NULL OR p.tenant = pick.tenant)
        ORDER BY w.task LIMIT most;
    END IF;
END $$;

-- Promises one act on some tasks, in one commit: answers by their number.
-- Locks for a retry their weeks, then their effects, in digest order, before any work row (rule 6); then
-- what the act locks, one task after the other, in task order.
-- Twice: what each of the acts says.
CREATE OR REPLACE FUNCTION operate(act text, tasks bytea[], by text, why text)
RETURNS TABLE (answer text, number bigint)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one bytea;
    answers text[] := '{}';
BEGIN
    -- The order of locks holds over the batch, not for one task alone: the sweep goes by digest, too.
    IF act = 'retry' THEN
        PERFORM 1 FROM week k WHERE k.week IN (SELECT week_of_task(u) FROM unnest(tasks) u)
        ORDER BY k.week FOR KEY SHARE;
        PERFORM 1 FROM effect e
        WHERE e.digest = ANY (ARRAY(SELECT x.digest FROM unnest(tasks) u (task)
                                    CROSS JOIN LATERAL (SELECT t.digest FROM holdfast.task t
                                        WHERE t.week = week_of_task(u.task) AND t.task = u.task
                                        OFFSET 0) x))
        ORDER BY e.digest FOR UPDATE;
    END IF;
    FOR one IN SELECT u FROM unnest(tasks) u ORDER BY u LOOP
        answers := answers || CASE act
            WHEN 'pause' THEN pause_task(one, by, why)
            WHEN 'resume' THEN resume_task(one, by, why)
            WHEN 'cancel' THEN cancel_task(one, by, why)
            WHEN 'retry' THEN (SELECT r.answer FROM retry(week_of_task(one), one, NULL, false, by,
                why, decode(replace(gen_random_uuid()::text, '-', ''), 'hex')) r) END;
    END LOOP;
    RETURN QUERY SELECT a, count(*) FROM unnest(answers) a GROUP BY a ORDER BY count(*) DESC, a;
END $$;
