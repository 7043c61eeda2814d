-- `holdfast task why`: one answer to "why does it not run", as JSON. $1 week, $2 task. Read only, by
-- an administrator. `act`: it does not go on before somebody does something. What is open the view
-- `waiting` tells of.
SELECT json_build_object('task_id', t.task_id, 'state', t.state, 'act', a.act, 'why', a.why)
FROM holdfast.tasks t
LEFT JOIN holdfast.waiting w ON w.week = t.week AND w.task = t.task
CROSS JOIN LATERAL (SELECT
    CASE WHEN w.task IS NOT NULL THEN w.needs_act
         ELSE t.state = 'failed' AND t.successor IS NULL END AS act,
    CASE WHEN w.task IS NOT NULL THEN w.why
         WHEN t.successor IS NOT NULL
             THEN format('it failed: %s; an operator retried it as %s', t.message, t.successor)
         WHEN t.state = 'failed' THEN format('it failed: %s; `holdfast retry` runs it on', t.message)
         ELSE format('it is %s since %s%s', t.state,
                     to_char(t.ended AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                     CASE WHEN t.message <> '' THEN ': ' || t.message ELSE '' END) END AS why) a
WHERE t.week = $1::integer AND t.task = $2::bytea
