-- The newest tasks of these effects, whoever owns them. $1 digests.
SELECT e.digest, 'tsk_' || translate(encode(e.task, 'base64'), '+/', '-_')
FROM holdfast.effect e
WHERE e.digest = ANY ($1::bytea[])
ORDER BY e.accepted, e.digest
