-- `holdfast task show` of an effect whose task was removed: what its row in effect still says.
-- $1 digest, $2 effect ID, which is stored nowhere.
SELECT json_build_object(
    'task_id', holdfast.task_id(e.task),
    'tool', v.name,
    'version', v.version,
    'effect_id', $2::text,
    'state', 'removed',
    'accepted', to_char(e.accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'tombstone_until', to_char(e.tombstone_until AT TIME ZONE 'UTC',
                               'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
FROM holdfast.effect e
LEFT JOIN holdfast.tool v ON v.tool = e.tool
WHERE e.digest = $1::bytea
