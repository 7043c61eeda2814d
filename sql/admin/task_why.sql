-- `holdfast task why`: one answer to "why does it not run", as JSON. $1 week, $2 task. Read only, by
-- an administrator. `act`: it does not go on before somebody does something. What is open the view
-- `waiting` tells of.
SELECT json_build_object('task_id', t.task_id, 'state', t.state, 'act', a.act, 'why', a.why)
FROM holdfast.tasks t
LEFT JOIN holdfast.waiting w ON w.week = t.week AND w.task = t.task
-- Of a failed one: whether at its result, or at a template that stands in its version and was filled with
-- what stands in its rows; whether for want of what an operator gives; what a cancel has left; and where
-- its version is not the current one, that. No type tells the templates apart, but a message does that
-- begins as worker/http_request.c has it; a program's arguments and states may be too long together.
CROSS JOIN LATERAL (SELECT
    EXISTS (SELECT FROM holdfast.step o
            WHERE o.week = t.week AND o.task = t.task AND o.place = 2147483647
              AND o.error::json #>> '{data,type}' = 'result') AS is_result,
    t.message ~ '^[^ ]+ (((url|json|headers|body_artifact): )?/(state|args|input)/|cannot start: arguments )'
        AS is_template,
    t.message ~ '^[^ ]+ (((url|json|headers|body_artifact): )?/conf/|host not allowed: |cannot start: '
              '|program or worker died, [^:]*: [^ ]+ could not be started here)'
        AS is_setting,
    CASE WHEN t.state = 'failed' THEN holdfast.left_standing(t.week, t.task) END AS standing,
    (SELECT format(' with its version %s; the current one, %s, wants a new effect ID',
                   left(t.version, 12), left(c.version, 12))
     FROM holdfast.tool c WHERE c.name = t.tool AND c.current AND c.version <> t.version) AS other) f
CROSS JOIN LATERAL (SELECT
    CASE WHEN w.task IS NOT NULL THEN w.needs_act
         ELSE t.state = 'failed' AND t.successor IS NULL END AS act,
    CASE WHEN w.task IS NOT NULL THEN w.why
         WHEN t.successor IS NOT NULL
             THEN format('it failed: %s; an operator retried it as %s', t.message, t.successor)
         WHEN f.standing IS NOT NULL THEN format('it was cancelled, and undoing what it had done failed: %s; '
             'still standing: %s. It is not retried, as that would go on; undo by hand what stands. A call '
             'with a new effect ID starts anew', t.message, f.standing)
         WHEN f.is_result THEN format('it failed: %s; its phases are done, but its result cannot be '
             'made of what they gave, and a retry would make it of the same: mend the tool, and call '
             'with a new effect ID, under which all phases run anew', t.message)
         WHEN t.state = 'failed' AND f.is_template THEN format('it failed: %s; a retry of that phase would be '
             'given the same: mend the tool or the arguments, and call with a new effect ID, under '
             'which all phases run anew', t.message)
         WHEN t.state = 'failed' AND f.is_setting THEN format('it failed: %s; mend the settings of the '
             'workers or the machine, then `holdfast retry %s` runs it on%s', t.message, t.task_id, f.other)
         WHEN t.state = 'failed' THEN format('it failed: %s; `holdfast retry %s` runs it on%s', t.message,
             t.task_id, f.other)
         ELSE format('it is %s since %s%s', t.state,
                     to_char(t.ended AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                     CASE WHEN t.message <> '' THEN ': ' || t.message ELSE '' END) END AS why) a
WHERE t.week = $1::integer AND t.task = $2::bytea
