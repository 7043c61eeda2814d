-- What people may read with psql: three views, and a function of each view's name for one task. Their
-- columns are a promise: new ones come last, none goes or changes its type. The tables are private.
--
--   SELECT * FROM holdfast.waiting WHERE needs_act;
--   SELECT * FROM holdfast.steps('tsk_…');
--
-- `GRANT holdfast_reader TO ann` lets ann read them and no table: they read the tables by their owner's
-- right. They hide columns, no rows, so that no security barrier is needed: a reader sees the tasks of all
-- tenants, but no argument, answer of a caller, state, result or token. Messages are there, with what they
-- quote of a downstream's answer or a program's last words; and the derived key, as `holdfast task show`
-- has it: it is the name that downstream knows a request by, and tells nothing of the secret that it was
-- made with.
--
-- A task ID stands in no index as text: filtered by task_id the views read `task` once, as they do by
-- effect_id; by week and task, or through the functions, they use the primary key.

CREATE OR REPLACE VIEW tasks AS
SELECT task_id(t.task) AS task_id, v.name AS tool, v.version, p.tenant, p.subject, t.effect_id,
       coalesce(o.name, w.state, 'lost') AS state, phase_name(v.doc, w.phase) AS phase,
       coalesce(w.attempt, o.attempt) AS attempt, w.crashes, t.accepted, t.deadline, o.at AS ended,
       o.at + t.result_ttl_ms * interval '1 millisecond' AS kept_until,
       coalesce(o.message, w.message) AS message, coalesce(w.cancel, false) AS cancel_asked,
       w.incarnation AS worker, task_id(t.retry_of) AS retry_of, task_id(t.successor) AS successor,
       t.week, t.task
FROM task t
JOIN tool v ON v.tool = t.tool
LEFT JOIN principal p ON p.owner = t.owner
LEFT JOIN work w ON w.task = t.task
LEFT JOIN step o ON o.week = t.week AND o.task = t.task AND o.place = 2147483647;

COMMENT ON VIEW tasks IS 'One row a task, from its acceptance until its retention is over and it is swept. Stable.';
COMMENT ON COLUMN tasks.task_id IS 'The handle that the client polls: tsk_…';
COMMENT ON COLUMN tasks.tool IS 'The tool that it is a run of.';
COMMENT ON COLUMN tasks.version IS 'The version of the tool that it was accepted with and stays with: SHA-256, hex.';
COMMENT ON COLUMN tasks.tenant IS 'The tenant of its owner.';
COMMENT ON COLUMN tasks.subject IS 'The subject of its owner, as the token named it.';
COMMENT ON COLUMN tasks.effect_id IS 'The caller''s string, unique per owner and tool; of a task and its successors the same.';
COMMENT ON COLUMN tasks.state IS 'ready, scheduled, running, waiting, paused, parked, unverified, unknown; for good: completed, failed, cancelled.';
COMMENT ON COLUMN tasks.phase IS 'The phase it stands at, or undo:PHASE; null: none is to come.';
COMMENT ON COLUMN tasks.attempt IS 'Which try of that phase it is, or was at the end.';
COMMENT ON COLUMN tasks.crashes IS 'How many workers died with it; null: it has ended.';
COMMENT ON COLUMN tasks.accepted IS 'When it was accepted, by the database''s clock, as all times here.';
COMMENT ON COLUMN tasks.deadline IS 'When it ends failed, unless it has ended before; settled, an unknown one gets back the time that it was.';
COMMENT ON COLUMN tasks.ended IS 'When its outcome was committed; null: it is open.';
COMMENT ON COLUMN tasks.kept_until IS 'How long its result is kept; null: it is open.';
COMMENT ON COLUMN tasks.message IS 'What to tell a person: of its outcome, or of what it does now.';
COMMENT ON COLUMN tasks.cancel_asked IS 'It was asked to stop and has not ended.';
COMMENT ON COLUMN tasks.worker IS 'The incarnation of the worker that runs it; null: nobody does.';
COMMENT ON COLUMN tasks.retry_of IS 'The failed task that an operator made this one the successor of.';
COMMENT ON COLUMN tasks.successor IS 'The task that goes on in its place, made by an operator''s retry.';
COMMENT ON COLUMN tasks.week IS 'Whole weeks since 1970 of its acceptance: its partition.';
COMMENT ON COLUMN tasks.task IS 'The task ID in bytes; with week the primary key.';

CREATE OR REPLACE VIEW steps AS
SELECT task_id(s.task) AS task_id, s.kind,
       CASE WHEN s.kind <> 'outcome' THEN phase_name(v.doc, s.place / 65536) END AS phase, s.name,
       CASE WHEN s.kind <> 'outcome' THEN class_of(v.doc, s.place / 65536) END AS effect_class,
       s.attempt, s.derived_key, s.generation, s.answer, s.message, s.started, s.at AS committed,
       round(extract(epoch FROM s.at - s.started) * 1000)::bigint AS took_ms,
       octet_length(s.state) AS state_bytes, task_id(s.origin) AS origin, s.place, s.week, s.task
FROM step s
JOIN task t ON t.week = s.week AND t.task = s.task
JOIN tool v ON v.tool = t.tool;

COMMENT ON VIEW steps IS 'One row a recovery point, checkpoint or outcome of a task; never written again. In the order of place. Stable.';
COMMENT ON COLUMN steps.task_id IS 'The task that it is of.';
COMMENT ON COLUMN steps.kind IS 'recovery_point: the phase is done; checkpoint: set within a phase; outcome: the task has ended.';
COMMENT ON COLUMN steps.phase IS 'The phase that it is of, or undo:PHASE; null: the outcome.';
COMMENT ON COLUMN steps.name IS 'The phase''s name, the checkpoint''s, or the outcome: completed, failed, cancelled.';
COMMENT ON COLUMN steps.effect_class IS 'pure, local, keyed, lookup or unsafe; null: the outcome.';
COMMENT ON COLUMN steps.attempt IS 'The try of the phase that came to it.';
COMMENT ON COLUMN steps.derived_key IS 'The key that downstream got; null: it got none.';
COMMENT ON COLUMN steps.generation IS 'Of that key: raised only by an operator''s retry --new-key.';
COMMENT ON COLUMN steps.answer IS 'What downstream or the tool answered, in short; or who settled it.';
COMMENT ON COLUMN steps.message IS 'Of an outcome: what to tell a person.';
COMMENT ON COLUMN steps.started IS 'When that attempt began; null: the store wrote it.';
COMMENT ON COLUMN steps.committed IS 'When it was committed.';
COMMENT ON COLUMN steps.took_ms IS 'From the one to the other, in ms.';
COMMENT ON COLUMN steps.state_bytes IS 'The size of the state that it holds for the next phase, in bytes.';
COMMENT ON COLUMN steps.origin IS 'The task that committed it, where it was copied into a successor.';
COMMENT ON COLUMN steps.place IS 'Where it stands: rises with the phase, and within it.';
COMMENT ON COLUMN steps.week IS 'As in tasks.';
COMMENT ON COLUMN steps.task IS 'As in tasks; with week and place the primary key.';

-- `holdfast task why` tells what this says, so the sentences stand here alone. Of several reasons that
-- hold, the first in their order counts.
CREATE OR REPLACE VIEW waiting AS
SELECT task_id(f.task) AS task_id, f.tool, f.tenant, f.effect_id, f.state, f.phase, f.attempt, a.reason,
       a.act AS needs_act, a.why || n.broken AS why, f.updated AS since, f.due, f.incarnation AS worker, f.accepted,
       f.deadline, f.week, f.task
FROM (
    SELECT t.week, t.task, t.effect_id, t.accepted, t.deadline, w.state, v.name AS tool, v.version,
           p.tenant, w.queue, w.message, w.attempt, w.pause AS paused_with, w.cancel, w.incarnation,
           w.first_try, w.updated, w.crashes, v.crash_limit,
           w.due = 'infinity' AS aside,
           CASE WHEN w.state IN ('unknown', 'paused') THEN NULL WHEN w.due = 'infinity' THEN w.turn ELSE w.due END AS due,
           coalesce(phase_name(v.doc, w.phase), 'its end') AS phase,
           v.doc::json -> 'phases' -> w.phase ->> 'kind' AS kind, now_() AS at,
           -- A keyed phase is sent again, and what was accepted is looked for: neither becomes unknown.
           w.state IN ('ready', 'scheduled', 'paused') AND class_of(v.doc, w.phase) = 'unsafe'
               AND EXISTS (SELECT FROM intent i
                           WHERE i.week = w.week AND i.task = w.task AND i.phase = w.phase)
               AND NOT EXISTS (SELECT FROM step s WHERE s.week = w.week AND s.task = w.task
                               AND s.place = w.phase * 65536 + 65533) AS intended
    FROM work w
    JOIN task t ON t.week = w.week AND t.task = w.task
    JOIN tool v ON v.tool = w.queue
    LEFT JOIN principal p ON p.owner = w.owner) f
-- Who had it, its tool or its tenant paused.
LEFT JOIN LATERAL (
    SELECT x.what, x.by, x.why, x.resume FROM (
        SELECT 1 AS rank, 'all work of the ' || b.kind || ' ' || b.name AS what, b.by, b.why, b.at,
               format('--%s %s', b.kind, b.name) AS resume
        FROM pause b
        WHERE (b.kind = 'tool' AND b.name = f.tool AND f.state IN ('ready', 'scheduled'))
           OR (b.kind = 'tenant' AND b.name = f.tenant
               AND (f.state IN ('ready', 'scheduled') OR f.paused_with = 'tenant'))
        UNION ALL
        SELECT 2, 'it', b.by, b.detail, b.at, task_id(f.task) FROM audit b
        WHERE b.task = f.task AND b.act = 'pause' AND f.state = 'paused' AND f.paused_with = 'task') x
    ORDER BY x.rank, x.at DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (
    SELECT k.incarnation, extract(epoch FROM f.at - k.seen) AS silent_s
    FROM worker k WHERE k.incarnation = f.incarnation) k ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, count(*) FILTER (WHERE f.queue = ANY (k.serves)) AS serving,
           count(*) FILTER (WHERE f.queue = ANY (k.serves) AND k.running < k.capacity) AS idle,
           (SELECT string_agg(DISTINCT v.name || ' ' || left(v.version, 12), ', ')
            FROM worker y CROSS JOIN unnest(y.serves) q
            JOIN tool v ON v.tool = q WHERE v.name = f.tool) AS versions
    FROM worker k WHERE k.role = 'worker') s
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM lease l WHERE l.until > f.at) AS led) m
-- A limit of its tool, by the use that claims go by: of all, or of its tenant.
LEFT JOIN LATERAL (
    SELECT format('limit reached: running %s of %s (tool %s%s)', u.used, u.most, f.tool, u.whose) AS why
    FROM tool_limit l
    CROSS JOIN LATERAL (
        SELECT 1 AS rank, coalesce(sum(y.number), 0) AS used, l.running AS most, '' AS whose
        FROM limit_use y WHERE y.name = l.name
        UNION ALL
        SELECT 2, coalesce(sum(y.number), 0), l.running_per_tenant, ', tenant ' || f.tenant
        FROM limit_use y WHERE y.name = l.name AND y.tenant = f.tenant) u
    WHERE l.name = f.tool AND l.gated AND u.used >= u.most ORDER BY u.rank DESC LIMIT 1) l ON true
CROSS JOIN LATERAL (SELECT
    round(extract(epoch FROM f.at - f.first_try))::bigint || ' s' AS phase_age,
    greatest(round(extract(epoch FROM f.due - f.at))::bigint, 0) || ' s' AS due_in,
    round(extract(epoch FROM f.at - f.due))::bigint || ' s' AS waited,
    round(extract(epoch FROM f.at - f.updated))::bigint || ' s' AS state_age,
    to_char(f.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS due_at,
    -- An attempt that crashed counts as a crash instead.
    CASE WHEN f.crashes > 0 AND 'crash' = (SELECT e.kind FROM event e WHERE e.week = f.week AND e.task = f.task
                                           ORDER BY e.place DESC LIMIT 1)
             THEN format(', after %s crash%s of %s', f.crashes, CASE f.crashes WHEN 1 THEN '' ELSE 'es' END,
                         f.crash_limit)
         WHEN f.attempt > 0 THEN ', after attempt ' || f.attempt ELSE '' END AS after,
    CASE WHEN m.led THEN '' ELSE '; no maintenance leads: start `holdfast maintain`' END AS unled,
    CASE WHEN f.message IS NULL THEN '' ELSE ': ' || f.message END AS said,
    CASE WHEN f.intended THEN format('; phase %s was broken off after its request may have left: it '
        'becomes unknown, to be settled, when a worker next claims it%s', f.phase,
        ', so not before `holdfast resume ' || b.resume || '`') ELSE '' END AS broken) n
CROSS JOIN LATERAL (SELECT x.reason, x.act, x.why FROM (
    SELECT 0 AS rank, 'restore' AS reason, true AS act, CASE WHEN c.held IS NOT NULL
               THEN format('the store stands still (%s): `holdfast restored`', c.held)
               ELSE format('phase %s waits: %s', f.phase, f.message) END AS why
    FROM cluster c
    WHERE f.state IN ('ready', 'scheduled') AND (c.held IS NOT NULL
                                                 OR (c.copy AND f.message LIKE 'a copy: %'))
    UNION ALL
    SELECT 1, 'paused', true, format('%s is paused by %s: %s', b.what, b.by, b.why)
        WHERE b.what IS NOT NULL
    UNION ALL SELECT 2, 'paused', true, 'it is paused by an operator' WHERE f.state = 'paused'
    UNION ALL SELECT 3, 'worker_gone', NOT m.led, format('its worker %s is gone; maintenance gives the '
        'task to another%s', f.incarnation, n.unled) WHERE f.state = 'running' AND k.incarnation IS NULL
    UNION ALL SELECT 4, 'worker_stalls', NOT m.led, format('its worker %s stalls: no beat for %s s; '
        'declared dead, the task goes on elsewhere%s', f.incarnation, round(k.silent_s::numeric, 1),
        n.unled) WHERE f.state = 'running' AND k.silent_s > 5
    UNION ALL SELECT 5, 'running', false, format('it runs: phase %s, attempt %s, begun %s ago, on worker '
        '%s%s', f.phase, f.attempt, n.phase_age, f.incarnation,
        CASE WHEN f.cancel THEN '; a cancel was asked for' ELSE '' END) WHERE f.state = 'running'
    UNION ALL SELECT 6, 'unknown', true, format('nobody can tell whether phase %s happened%s. Look for '
        'it downstream, then `holdfast settle %s done|absent|fail --by WHO --why WHY`',
        f.phase, n.said, task_id(f.task)) WHERE f.state = 'unknown'
    UNION ALL SELECT 7, 'unverified', false, format('phase %s was accepted downstream and is not yet '
        'seen there; looked for again in %s%s', f.phase, n.due_in, n.said) WHERE f.state = 'unverified'
    UNION ALL SELECT 8, 'input', true, format('phase %s waits for input, for %s now%s', f.phase,
        n.state_age, n.said) WHERE f.state = 'waiting'
    UNION ALL SELECT 9, 'parked', true, format('it is parked: its client hung up %s ago; the same effect '
        'ID takes it up again, else it ends cancelled in %s', n.state_age, n.due_in)
        WHERE f.state = 'parked'
    UNION ALL SELECT 10, 'timer', false, format('phase %s waits until %s, %s from now', f.phase,
        n.due_at, n.due_in) WHERE f.state = 'scheduled' AND f.kind = 'wait' AND f.due > f.at
    UNION ALL SELECT 10, 'breaker', false, format('phase %s is not sent: breaker open: %s, probe in %s%s',
        f.phase, substring(f.message FROM 'breaker open for (\S+)'), n.due_in, n.said)
        WHERE f.state = 'scheduled' AND f.due > f.at AND f.message LIKE '%breaker open for %'
    UNION ALL SELECT 11, 'backoff', false, format('phase %s backs off until %s, %s from now%s%s',
        f.phase, n.due_at, n.due_in, n.after, n.said)
        WHERE f.state = 'scheduled' AND f.due > f.at
    UNION ALL SELECT 12, 'no_worker', true, format('no worker is running; %s waits for %s', f.phase,
        n.waited) WHERE f.state IN ('ready', 'scheduled') AND s.workers = 0
    UNION ALL SELECT 13, 'no_worker', true, format('no worker serves version %s of %s; of this tool they '
        'serve: %s', left(f.version, 12), f.tool, coalesce(s.versions, 'none'))
        WHERE f.state IN ('ready', 'scheduled') AND s.serving = 0
    UNION ALL SELECT 14, 'limit', false, format('%s; it waits for its turn, for %s now', l.why, n.waited)
        WHERE f.state IN ('ready', 'scheduled') AND l.why IS NOT NULL
    UNION ALL SELECT 15, 'limit', false, format('it was set aside for its tenant''s limit, for %s now; a '
        'worker with a slot free takes it next; %s workers serve it', n.waited, s.serving) WHERE f.aside
    UNION ALL SELECT 16, 'queued', false, format('phase %s is due for %s; %s workers serve it, %s of them '
        'with a slot free', f.phase, n.waited, s.serving, s.idle)
        WHERE f.state IN ('ready', 'scheduled')) x
    ORDER BY x.rank LIMIT 1) a;

COMMENT ON VIEW waiting IS 'One row an open task, and what it waits for now. Stable.';
COMMENT ON COLUMN waiting.task_id IS 'The handle that the client polls: tsk_…';
COMMENT ON COLUMN waiting.tool IS 'The tool that it is a run of.';
COMMENT ON COLUMN waiting.tenant IS 'The tenant of its owner.';
COMMENT ON COLUMN waiting.effect_id IS 'The caller''s string, unique per owner and tool.';
COMMENT ON COLUMN waiting.state IS 'ready, scheduled, running, waiting, paused, parked, unverified, unknown.';
COMMENT ON COLUMN waiting.phase IS 'The phase it stands at, or undo:PHASE, or its end.';
COMMENT ON COLUMN waiting.attempt IS 'Which try of that phase it is.';
COMMENT ON COLUMN waiting.reason IS 'restore, paused, worker_gone, worker_stalls, running, unknown, unverified, input, parked, timer, breaker, backoff, no_worker, limit, queued.';
COMMENT ON COLUMN waiting.needs_act IS 'It does not go on before somebody does something.';
COMMENT ON COLUMN waiting.why IS 'The same as a sentence, as `holdfast task why` says it.';
COMMENT ON COLUMN waiting.since IS 'When it last changed: a running one was claimed or made progress then.';
COMMENT ON COLUMN waiting.due IS 'When it goes on, or was due; of one that waits for input or is parked: when that is over; null: it is unknown or paused.';
COMMENT ON COLUMN waiting.worker IS 'The incarnation of the worker that runs it; null: nobody does.';
COMMENT ON COLUMN waiting.accepted IS 'When it was accepted.';
COMMENT ON COLUMN waiting.deadline IS 'When it ends failed.';
COMMENT ON COLUMN waiting.week IS 'As in tasks.';
COMMENT ON COLUMN waiting.task IS 'As in tasks.';

-- Written so that Postgres puts their text in the place of the call: with it the week is known when it
-- plans, and one partition is read.

-- Promises the view of that name, of one task, by the index.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION tasks(task_id text) RETURNS SETOF tasks
LANGUAGE sql STABLE AS $$
    SELECT x.* FROM holdfast.tasks x
    WHERE x.week = holdfast.week_of_task(holdfast.task_of(tasks.task_id))
      AND x.task = holdfast.task_of(tasks.task_id)
$$;

-- Promises the view of that name, of one task, by the index.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION steps(task_id text) RETURNS SETOF steps
LANGUAGE sql STABLE AS $$
    SELECT x.* FROM holdfast.steps x
    WHERE x.week = holdfast.week_of_task(holdfast.task_of(steps.task_id))
      AND x.task = holdfast.task_of(steps.task_id)
    ORDER BY x.place
$$;

-- Promises the view of that name, of one task, by the index.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION waiting(task_id text) RETURNS SETOF waiting
LANGUAGE sql STABLE AS $$
    SELECT x.* FROM holdfast.waiting x
    WHERE x.week = holdfast.week_of_task(holdfast.task_of(waiting.task_id))
      AND x.task = holdfast.task_of(waiting.task_id)
$$;
