-- What the API offers beside tasks: the catalog with the packs in it, and artifacts of a task as
-- resources of its owner.

-- Promises the current tools and the packs (rows without the number of a tool), where they are others than
-- at `since`; then one closing row with nulls.
-- Locks nothing.
-- Twice: the closing row alone, while nothing is applied.
CREATE OR REPLACE FUNCTION shelf(since bigint)
RETURNS TABLE (number bigint, tool integer, name text, version text, doc text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
DECLARE
    latest bigint := hashtextextended(concat_ws(' ', 'shelf',
        (SELECT string_agg(t.tool::text, ',' ORDER BY t.tool) FROM holdfast.tool t WHERE t.current),
        (SELECT string_agg(p.name || ':' || p.version, ',' ORDER BY p.name) FROM pack p)), 0);
BEGIN
    IF latest <> since THEN
        RETURN QUERY SELECT latest, t.tool, t.name, t.version, t.doc
                     FROM holdfast.tool t WHERE t.current ORDER BY t.name;
        RETURN QUERY SELECT latest, NULL::integer, p.name, p.version, p.doc
                     FROM pack p ORDER BY p.name;
    END IF;
    RETURN QUERY SELECT latest, NULL::integer, NULL::text, NULL::text, NULL::text;
END $$;

-- Promises an artifact of the last phase that made one of that name and has its recovery point, so that its
-- bytes are final. No row: no such artifact, or the task is foreign, unknown or expired (V8). Content over
-- `most` bytes stays where it is: null.
-- Locks nothing.
-- Twice: the same bytes, until a later phase makes one of that name.
CREATE OR REPLACE FUNCTION artifact_of(week integer, owner bigint, task bytea, name text, most bigint)
RETURNS TABLE (media_type text, size bigint, content bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.media_type, octet_length(a.content)::bigint,
           CASE WHEN octet_length(a.content) <= artifact_of.most THEN a.content END
    FROM task_views(artifact_of.week, ARRAY[artifact_of.task]) v
    CROSS JOIN LATERAL (SELECT x.phase, x.media_type, x.content FROM artifact x
                        WHERE x.week = artifact_of.week AND x.task = v.task
                          AND x.name = artifact_of.name OFFSET 0) a
    CROSS JOIN LATERAL (SELECT FROM step x
                        WHERE x.week = artifact_of.week AND x.task = v.task
                          AND x.place = a.phase * 65536 + 65535
                          AND x.kind = 'recovery_point' OFFSET 0) s
    WHERE v.owner = artifact_of.owner
    ORDER BY a.phase DESC LIMIT 1;
END $$;
