-- `holdfast task why`: one answer to "why does it not run", as JSON. $1 week, $2 task. Read only, by
-- an administrator. `act`: it does not go on before somebody does something.
SELECT json_build_object('task_id', 'tsk_' || translate(encode(f.task, 'base64'), '+/', '-_'),
                         'state', f.state, 'act', a.act, 'why', a.why)
FROM (
    SELECT t.task, coalesce(o.name, w.state, 'lost') AS state, t.successor, v.name AS tool,
           v.version, p.tenant, o.message AS ending, o.at AS ended, w.queue, w.message, w.attempt,
           w.pause AS paused_with, w.cancel, w.phase, w.incarnation, w.first_try, w.updated,
           CASE w.due WHEN 'infinity' THEN w.turn ELSE w.due END AS due, w.due = 'infinity' AS aside,
           coalesce(v.doc::json -> 'phases' -> w.phase ->> 'name',
                    CASE WHEN w.phase < 128
                         THEN 'undo:' || (v.doc::json -> 'phases' -> (127 - w.phase) ->> 'name') END,
                    'its end') AS phase_name,
           v.doc::json -> 'phases' -> w.phase ->> 'kind' AS kind,
           holdfast.now_() AS at
    FROM holdfast.task t
    JOIN holdfast.tool v ON v.tool = t.tool
    LEFT JOIN holdfast.principal p ON p.owner = t.owner
    LEFT JOIN holdfast.work w ON w.task = t.task
    LEFT JOIN holdfast.step o ON o.week = t.week AND o.task = t.task AND o.place = 2147483647
    WHERE t.week = $1::integer AND t.task = $2::bytea) f
-- Who had it, its tool or its tenant paused.
LEFT JOIN LATERAL (
    SELECT x.what, x.by, x.why FROM (
        SELECT 1 AS rank, 'all work of the ' || b.kind || ' ' || b.name AS what, b.by, b.why, b.at
        FROM holdfast.pause b
        WHERE (b.kind = 'tool' AND b.name = f.tool AND f.state IN ('ready', 'scheduled'))
           OR (b.kind = 'tenant' AND b.name = f.tenant
               AND (f.state IN ('ready', 'scheduled') OR f.paused_with = 'tenant'))
        UNION ALL
        SELECT 2, 'it', b.by, b.detail, b.at FROM holdfast.audit b
        WHERE b.task = f.task AND b.act = 'pause' AND f.state = 'paused' AND f.paused_with = 'task') x
    ORDER BY x.rank, x.at DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (
    SELECT k.incarnation, extract(epoch FROM f.at - k.seen) AS silent_s
    FROM holdfast.worker k WHERE k.incarnation = f.incarnation) k ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, count(*) FILTER (WHERE f.queue = ANY (k.serves)) AS serving,
           count(*) FILTER (WHERE f.queue = ANY (k.serves) AND k.running < k.capacity) AS idle,
           (SELECT string_agg(DISTINCT v.name || ' ' || left(v.version, 12), ', ')
            FROM holdfast.worker y CROSS JOIN unnest(y.serves) q
            JOIN holdfast.tool v ON v.tool = q WHERE v.name = f.tool) AS versions
    FROM holdfast.worker k WHERE k.role = 'worker') s
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM holdfast.lease l WHERE l.until > f.at) AS led) m
-- A limit of its tool, by the use that claims go by: of all, or of its tenant.
LEFT JOIN LATERAL (
    SELECT format('limit reached: running %s of %s (tool %s%s)', u.used, u.most, f.tool, u.whose) AS why
    FROM holdfast.tool_limit l
    CROSS JOIN LATERAL (
        SELECT 1 AS rank, coalesce(sum(y.number), 0) AS used, l.running AS most, '' AS whose
        FROM holdfast.limit_use y WHERE y.name = l.name
        UNION ALL
        SELECT 2, coalesce(sum(y.number), 0), l.running_per_tenant, ', tenant ' || f.tenant
        FROM holdfast.limit_use y WHERE y.name = l.name AND y.tenant = f.tenant) u
    WHERE l.name = f.tool AND l.gated AND u.used >= u.most ORDER BY u.rank DESC LIMIT 1) l ON true
CROSS JOIN LATERAL (SELECT
    round(extract(epoch FROM f.at - f.first_try))::bigint || ' s' AS phase_age,
    greatest(round(extract(epoch FROM f.due - f.at))::bigint, 0) || ' s' AS due_in,
    round(extract(epoch FROM f.at - f.due))::bigint || ' s' AS waited,
    round(extract(epoch FROM f.at - f.updated))::bigint || ' s' AS state_age,
    CASE WHEN m.led THEN '' ELSE '; no maintenance leads: start `holdfast maintain`' END AS unled,
    CASE WHEN f.message IS NULL THEN '' ELSE ': ' || f.message END AS said) n
CROSS JOIN LATERAL (SELECT x.act, x.why FROM (
    SELECT 0 AS rank, true AS act, CASE WHEN c.held IS NOT NULL
               THEN format('the store stands still (%s): `holdfast restored`', c.held)
               ELSE format('phase %s waits: %s', f.phase_name, f.message) END AS why
    FROM holdfast.cluster c
    WHERE f.state IN ('ready', 'scheduled') AND (c.held IS NOT NULL
                                                 OR (c.copy AND f.message LIKE 'a copy: %'))
    UNION ALL
    SELECT 1, true, format('%s is paused by %s: %s', b.what, b.by, b.why) WHERE b.what IS NOT NULL
    UNION ALL SELECT 2, true, 'it is paused by an operator' WHERE f.state = 'paused'
    UNION ALL SELECT 3, NOT m.led, format('its worker %s is gone; maintenance gives the task to '
        'another%s', f.incarnation, n.unled) WHERE f.state = 'running' AND k.incarnation IS NULL
    UNION ALL SELECT 4, NOT m.led, format('its worker %s stalls: no beat for %s s; declared dead, the '
        'task goes on elsewhere%s', f.incarnation, round(k.silent_s::numeric, 1), n.unled)
        WHERE f.state = 'running' AND k.silent_s > 5
    UNION ALL SELECT 5, false, format('it runs: phase %s, attempt %s, begun %s ago, on worker %s%s',
        f.phase_name, f.attempt, n.phase_age, f.incarnation,
        CASE WHEN f.cancel THEN '; a cancel was asked for' ELSE '' END) WHERE f.state = 'running'
    UNION ALL SELECT 6, true, format('nobody can tell whether phase %s happened%s. Look for it '
        'downstream, by the key that `holdfast task show` names, then `holdfast settle`',
        f.phase_name, n.said) WHERE f.state = 'unknown'
    UNION ALL SELECT 7, false, format('phase %s was accepted downstream and is not yet seen there; '
        'looked for again in %s%s', f.phase_name, n.due_in, n.said) WHERE f.state = 'unverified'
    UNION ALL SELECT 8, true, format('phase %s waits for input, for %s now%s', f.phase_name,
        n.state_age, n.said) WHERE f.state = 'waiting'
    UNION ALL SELECT 9, true, format('it is parked: its client hung up %s ago; the same effect ID '
        'takes it up again, else it ends cancelled in %s', n.state_age, n.due_in)
        WHERE f.state = 'parked'
    UNION ALL SELECT 10, false, format('phase %s waits until %s, %s from now', f.phase_name,
        to_char(f.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), n.due_in)
        WHERE f.state = 'scheduled' AND f.kind = 'wait' AND f.due > f.at
    UNION ALL SELECT 10, false, format('phase %s is not sent: breaker open: %s, probe in %s%s',
        f.phase_name, substring(f.message FROM 'breaker open for (\S+)'), n.due_in, n.said)
        WHERE f.state = 'scheduled' AND f.due > f.at AND f.message LIKE '%breaker open for %'
    UNION ALL SELECT 11, false, format('phase %s backs off until %s, %s from now, after attempt %s%s',
        f.phase_name, to_char(f.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), n.due_in,
        f.attempt, n.said) WHERE f.state = 'scheduled' AND f.due > f.at
    UNION ALL SELECT 12, true, format('no worker is running; %s waits for %s', f.phase_name, n.waited)
        WHERE f.state IN ('ready', 'scheduled') AND s.workers = 0
    UNION ALL SELECT 13, true, format('no worker serves version %s of %s; of this tool they serve: %s',
        left(f.version, 12), f.tool, coalesce(s.versions, 'none'))
        WHERE f.state IN ('ready', 'scheduled') AND s.serving = 0
    UNION ALL SELECT 14, false, format('%s; it waits for its turn, for %s now', l.why, n.waited)
        WHERE f.state IN ('ready', 'scheduled') AND l.why IS NOT NULL
    UNION ALL SELECT 15, false, format('it was set aside for its tenant''s limit, for %s now; a worker with a '
        'slot free takes it next; %s workers serve it', n.waited, s.serving) WHERE f.aside
    UNION ALL SELECT 16, false, format('phase %s is due for %s; %s workers serve it, %s of them with a '
        'slot free', f.phase_name, n.waited, s.serving, s.idle)
        WHERE f.state IN ('ready', 'scheduled')
    UNION ALL SELECT 17, false, format('it failed: %s; an operator retried it as tsk_%s', f.ending,
        translate(encode(f.successor, 'base64'), '+/', '-_'))
        WHERE f.state = 'failed' AND f.successor IS NOT NULL
    UNION ALL SELECT 18, true, format('it failed: %s; `holdfast retry` runs it on', f.ending)
        WHERE f.state = 'failed'
    UNION ALL SELECT 19, false, format('it is %s since %s%s', f.state,
        to_char(f.ended AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        CASE WHEN f.ending IS NULL OR f.ending = '' THEN '' ELSE ': ' || f.ending END)) x
    ORDER BY x.rank LIMIT 1) a
