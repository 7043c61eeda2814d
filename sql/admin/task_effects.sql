-- The newest tasks of these effects, whoever owns them. $1 digests.
SELECT e.digest, holdfast.task_id(e.task),
       v.name || coalesce(' of ' || p.subject || ', tenant ' || p.tenant, ', no longer kept')
FROM holdfast.effect e
LEFT JOIN holdfast.tool v ON v.tool = e.tool
LEFT JOIN holdfast.task t ON t.week = holdfast.week_of_task(e.task) AND t.task = e.task
LEFT JOIN holdfast.principal p ON p.owner = t.owner
WHERE e.digest = ANY ($1::bytea[])
ORDER BY e.accepted, e.digest
