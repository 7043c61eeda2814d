-- `holdfast task show`: a task as one JSON object. $1 week, $2 task. Read only, by an
-- administrator. Stored JSON stays json, never jsonb: its bytes count. At equal times an event
-- stands before the step that followed it. Steps and events keep their own order, whatever the
-- clock did meanwhile.
SELECT json_build_object(
    'task_id', holdfast.task_id(t.task),
    'tool', v.name,
    'version', v.version,
    'effect_id', t.effect_id,
    'owner', json_build_object('number', t.owner, 'issuer', p.issuer, 'subject', p.subject,
                               'tenant', p.tenant),
    'state', coalesce(o.name, w.state, 'lost'),
    'is_error', coalesce(o.result::json ->> 'isError', '') = 'true',
    'accepted', to_char(t.accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'deadline', to_char(t.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'retry_of', holdfast.task_id(t.retry_of),
    'successor', holdfast.task_id(t.successor),
    'trace', nullif(split_part(t.trace, E'\n', 1), ''),
    'key_version', t.key_version,
    'arguments', t.arguments::json,
    'history', (
        SELECT coalesce(json_agg(h.entry ORDER BY h.at, h.rank, h.place), '[]')
        FROM (
            SELECT max(s.at) OVER (ORDER BY s.place) AS at, 1 AS rank, s.place, json_build_object(
                'what', s.kind,
                'at', to_char(s.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'after_ms', round(extract(epoch FROM s.at - t.accepted) * 1000)::bigint,
                'phase', CASE WHEN s.kind <> 'outcome' THEN n.names[s.place / 65536] END,
                'name', s.name,
                'place', s.place,
                'attempt', s.attempt,
                'took_ms', round(extract(epoch FROM s.at - s.started) * 1000)::bigint,
                'derived_key', s.derived_key,
                'answer', s.answer,
                'generation', s.generation,
                'origin', holdfast.task_id(s.origin),
                'message', s.message,
                'result', s.result::json,
                'error', s.error::json,
                'state_bytes', octet_length(s.state)) AS entry
            FROM holdfast.step s
            WHERE s.week = t.week AND s.task = t.task
            UNION ALL
            -- An intent that was settled keeps the time of before.
            SELECT CASE e.kind WHEN 'intent' THEN e.at ELSE max(e.at) OVER (ORDER BY e.place) END, 0,
                   CASE e.kind WHEN 'intent' THEN 0 ELSE e.place END, json_build_object(
                'what', e.kind,
                'at', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'after_ms', round(extract(epoch FROM e.at - t.accepted) * 1000)::bigint,
                'phase', n.names[e.phase],
                'place', e.place,
                'attempt', e.attempt,
                'text', e.text)
            FROM holdfast.event e
            WHERE e.week = t.week AND e.task = t.task
            UNION ALL
            SELECT i.at, 0, 0, json_build_object(
                'what', 'intent',
                'at', to_char(i.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'after_ms', round(extract(epoch FROM i.at - t.accepted) * 1000)::bigint,
                'phase', n.names[i.phase])
            FROM holdfast.intent i
            WHERE i.week = t.week AND i.task = t.task
            UNION ALL
            SELECT i.asked, 2, 0, json_build_object(
                'what', 'asks',
                'at', to_char(i.asked AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'after_ms', round(extract(epoch FROM i.asked - t.accepted) * 1000)::bigint,
                'phase', n.names[i.phase],
                'name', i.key,
                'request', i.request::json)
            FROM holdfast.inbox i
            WHERE i.week = t.week AND i.task = t.task AND i.phase IS NOT NULL
            UNION ALL
            SELECT i.answered, 3, 0, json_build_object(
                'what', CASE i.how WHEN 'answer' THEN 'is told' ELSE 'gets no answer' END,
                'at', to_char(i.answered AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'after_ms', round(extract(epoch FROM i.answered - t.accepted) * 1000)::bigint,
                'phase', n.names[i.phase],
                'name', i.key,
                'told', i.answer::json)
            FROM holdfast.inbox i
            WHERE i.week = t.week AND i.task = t.task AND i.how IS NOT NULL) h),
    'now', CASE WHEN w.task IS NOT NULL THEN json_build_object(
        'state', w.state,
        'phase', n.names[w.phase],
        'attempt', w.attempt,
        'crashes', w.crashes,
        'percent', round(w.progress * 100),
        'message', w.message,
        'cancel', w.cancel,
        'worker', w.incarnation,
        'asks', (SELECT json_agg(i.key ORDER BY i.asked, i.key) FROM holdfast.inbox i
                 WHERE i.week = t.week AND i.task = t.task AND i.phase = w.phase
                   AND i.how IS NULL),
        -- Set aside for a limit, it was due at its turn. What is unknown or paused is not due.
        'due', to_char(d.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'due_in_ms', round(extract(epoch FROM d.due - clock_timestamp()) * 1000)::bigint) END,
    'to_come', CASE WHEN w.task IS NOT NULL THEN (
        SELECT coalesce(json_agg(n.names[i] ORDER BY i), '[]')
        FROM generate_series(w.phase + 1, v.phases - 1) i) END,
    'artifacts', (
        SELECT coalesce(json_agg(json_build_object(
            'phase', n.names[a.phase],
            'name', a.name,
            'media_type', a.media_type,
            'bytes', octet_length(a.content),
            'sha256', encode(a.sha256, 'hex')) ORDER BY a.phase, a.name), '[]')
        FROM holdfast.artifact a
        WHERE a.week = t.week AND a.task = t.task))
FROM holdfast.task t
JOIN holdfast.tool v ON v.tool = t.tool
-- By number from 0, the undo steps' behind them.
CROSS JOIN LATERAL (SELECT ('[0:127]=' || array_agg(holdfast.phase_name(v.doc, i) ORDER BY i)::text)::text[]
                        AS names FROM generate_series(0, 127) i) n
LEFT JOIN holdfast.principal p ON p.owner = t.owner
LEFT JOIN holdfast.work w ON w.task = t.task
CROSS JOIN LATERAL (SELECT CASE WHEN w.state IN ('unknown', 'paused') THEN NULL
                                WHEN w.due = 'infinity' THEN w.turn ELSE w.due END AS due) d
LEFT JOIN holdfast.step o ON o.week = t.week AND o.task = t.task AND o.place = 2147483647
WHERE t.week = $1::integer AND t.task = $2::bytea
