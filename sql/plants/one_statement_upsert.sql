-- PLANT_one_statement_upsert
-- "Insert or fetch" in one statement: a rival's row, committed after the snapshot, is in neither half.
CREATE OR REPLACE FUNCTION accept_bounded(bounded boolean, owners bigint[], tools integer[],
    digests bytea[], effect_ids text[], fingerprints bytea[], arguments text[], inputs text[], asks integer[],
    traces text[], key_versions integer[], apis uuid[], numbers bigint[], randoms bytea[])
RETURNS TABLE (ord integer, outcome text, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    at_ms bigint := to_ms(at);
    head bytea := task_head(at_ms);
BEGIN
    RETURN QUERY
    WITH input AS MATERIALIZED (
        SELECT u.*, head || u.random AS new_task
        FROM unnest(owners, tools, digests, effect_ids, fingerprints, arguments, traces,
                    key_versions, apis, numbers, randoms) WITH ORDINALITY
             u (owner, tool, digest, effect_id, fingerprint, arguments, trace, key_version,
                api, number, random, ord)
    ), first AS (
        INSERT INTO effect (digest, task, fingerprint, tool, accepted)
        SELECT i.digest, i.new_task, i.fingerprint, i.tool, at FROM input i ORDER BY i.digest
        ON CONFLICT DO NOTHING RETURNING effect.task
    ), mine AS (
        SELECT i.*, v.deadline_ms, v.result_ttl_ms FROM first f JOIN input i ON i.new_task = f.task
        JOIN holdfast.tool v ON v.tool = i.tool
    ), accepted AS (
        INSERT INTO holdfast.task (week, task, owner, tool, effect_id, digest, fingerprint,
            arguments, accepted, deadline, trace, key_version, incarnation, result_ttl_ms)
        SELECT week_of(at_ms), m.new_task, m.owner, m.tool, m.effect_id, m.digest, m.fingerprint,
               m.arguments, at, at + ms(m.deadline_ms), m.trace, m.key_version,
               (SELECT incarnation FROM cluster), m.result_ttl_ms
        FROM mine m
    ), queued AS (
        INSERT INTO work (task, week, owner, queue, state, due, deadline, held, attached,
                          attached_no, updated)
        SELECT m.new_task, week_of(at_ms), m.owner, m.tool, 'ready', at, at + ms(m.deadline_ms),
               m.api IS NULL, m.api, m.number, at
        FROM mine m
    )
    SELECT m.ord::integer, 'new'::text, m.new_task, m.tool, 'ready'::text, 0, at_ms, at_ms,
           0::bigint, m.result_ttl_ms, NULL::real, NULL::text
    FROM mine m
    UNION ALL
    SELECT i.ord::integer, CASE WHEN e.fingerprint = i.fingerprint THEN 'same' ELSE 'conflict' END,
           v.task, v.tool, v.state, v.attempt, v.created_ms, v.updated_ms, v.ended_ms,
           v.result_ttl_ms, v.progress, v.message
    FROM input i JOIN effect e ON e.digest = i.digest
    CROSS JOIN LATERAL task_views(week_of_task(e.task), ARRAY[e.task]) v
    WHERE NOT EXISTS (SELECT FROM mine m WHERE m.ord = i.ord);
END $$;
