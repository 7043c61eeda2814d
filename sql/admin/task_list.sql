-- `holdfast task list`: a JSON object a task, newest first. $1 state, $2 tool, $3 tenant, each may be
-- null; accepted since $4 (a time) or $5 ms ago, and at least $6 ms ago; $7 limit. A task ID rises with
-- its time, so that the primary key gives the order; the week spares the partitions before.
SELECT json_build_object(
    'task_id', holdfast.task_id(t.task),
    'state', t.state,
    'is_error', coalesce(t.result::json ->> 'isError', '') = 'true',
    'accepted', to_char(t.accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'tool', v.name,
    'subject', p.subject,
    'tenant', p.tenant,
    'effect_id', t.effect_id)
FROM (
    SELECT k.week, k.task, k.tool, k.owner, k.accepted, k.effect_id,
           coalesce(o.name, w.state, 'lost') AS state, o.result
    FROM holdfast.task k
    LEFT JOIN holdfast.work w ON w.task = k.task
    LEFT JOIN holdfast.step o ON o.week = k.week AND o.task = k.task AND o.place = 2147483647) t
LEFT JOIN holdfast.tool v ON v.tool = t.tool
LEFT JOIN holdfast.principal p ON p.owner = t.owner
WHERE ($1::text IS NULL OR t.state = $1)
  AND ($2::text IS NULL OR v.name = $2)
  AND ($3::text IS NULL OR p.tenant = $3)
  AND t.week >= (SELECT coalesce(holdfast.week_of(holdfast.to_ms(
                     coalesce($4::timestamptz, holdfast.now_() - holdfast.ms($5::bigint)))), 0))
  AND t.accepted >= (SELECT coalesce($4::timestamptz, holdfast.now_() - holdfast.ms($5::bigint),
                                     '-infinity'))
  AND t.accepted <= (SELECT coalesce(holdfast.now_() - holdfast.ms($6::bigint), 'infinity'))
ORDER BY t.week DESC, t.task DESC
LIMIT $7::bigint
