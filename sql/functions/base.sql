-- Small things that the other functions stand on. "Rule N" here and elsewhere is of sql/RULES.md.

-- Promises the database's time: all that is stored, or compared with what is stored, comes from here.
-- Tests replace it. No SET clause: it would keep Postgres from inlining it.
-- Locks nothing.
-- Twice: later.
CREATE OR REPLACE FUNCTION now_() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() $$;

-- Promises a time as ms since 1970, rounded down.
CREATE OR REPLACE FUNCTION to_ms(at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT floor(extract(epoch FROM at AT TIME ZONE 'UTC') * 1000)::bigint $$;

-- Promises so many milliseconds as an interval.
CREATE OR REPLACE FUNCTION ms(n bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT n * interval '1 millisecond' $$;

-- Promises the number of whole weeks since 1970 at that time: its partition.
CREATE OR REPLACE FUNCTION week_of(ms bigint) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT (ms / 604800000)::integer $$;

-- Promises the time in a task ID, bytes 3 to 8 of it, in ms.
CREATE OR REPLACE FUNCTION ms_of_task(task bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || lpad(encode(substring(task FROM 3 FOR 6), 'hex'), 16, '0'))::bit(64)::bigint
$$;

-- Promises a task ID as clients see it.
CREATE OR REPLACE FUNCTION task_id(task bytea) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT 'tsk_' || translate(encode(task, 'base64'), '+/', '-_') $$;

-- Promises the bytes of a task ID.
CREATE OR REPLACE FUNCTION task_of(task_id text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$ SELECT decode(translate(substr(task_id, 5), '-_', '+/'), 'base64') $$;

-- Promises the week in a task ID: the partition of that task.
CREATE OR REPLACE FUNCTION week_of_task(task bytea) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT (('x' || lpad(encode(substring(task FROM 3 FOR 6), 'hex'), 16, '0'))::bit(64)::bigint
            / 604800000)::integer
$$;

-- Promises the first 8 bytes of the ID of a task that is accepted then: version, cluster, time in ms.
-- Locks nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION task_head(at_ms bigint) RETURNS bytea
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    SELECT '\x01'::bytea || set_byte('\x00'::bytea, 0, c.number) || substring(int8send(at_ms) FROM 3)
    FROM cluster c
$$;

-- Promises the page to go on from behind these pages of a table, 0 at its end.
-- Locks nothing.
-- Twice: the same, but for what the table grew by.
CREATE OR REPLACE FUNCTION page_after(relation regclass, page bigint, pages integer) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN page + pages < pg_relation_size(relation)
                                    / current_setting('block_size')::bigint THEN page + pages ELSE 0 END
$$;

-- Promises the name of a phase or undo step (127 - p) of this tool.json; behind the last: null.
CREATE OR REPLACE FUNCTION phase_name(doc text, phase integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase < 64 THEN doc::json -> 'phases' -> phase ->> 'name'
                WHEN phase < 128 THEN 'undo:' || (doc::json -> 'phases' -> (127 - phase) ->> 'name') END
$$;

-- Promises what is asked of whoever runs a task: 0 nothing, 1 park, 2 stop.
CREATE OR REPLACE FUNCTION wish(cancel boolean, park boolean) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN cancel THEN 2 WHEN park THEN 1 ELSE 0 END $$;

-- Promises whether a claim that is given up leaves its task paused by an operator.
CREATE OR REPLACE FUNCTION becomes_paused(cancel boolean, park boolean, pause text, phase integer,
                                          how text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT park AND pause IS NOT NULL AND NOT cancel AND phase < 64 AND how <> 'unknown'
$$;

-- Promises which of these claims still hold (V4): their ordinals, and where their rows lie. What is locked
-- is then written by that place: joined by task, a plan made from stale statistics walks the whole table (a
-- plan test holds this). FOR UPDATE serves updates and deletes alike; nothing refers to a work row.
-- Locks work rows, in task order (rules 2 and 6), until the caller's commit.
-- Twice: the same, in one transaction.
CREATE OR REPLACE FUNCTION fence(tasks bytea[], tokens uuid[], OUT ords integer[], OUT tids tid[])
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    SELECT array_agg(u.ord::integer), array_agg(w.tid) INTO ords, tids
    FROM (SELECT * FROM unnest(fence.tasks, fence.tokens) WITH ORDINALITY c (task, token, ord)
          ORDER BY c.task) u
    CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM work x
                        WHERE x.task = u.task AND x.token = u.token OFFSET 0 FOR UPDATE) w;
END $$;

-- Promises one more event of a task, for people, in the next place of its stream, without a gap.
-- Locks nothing: the caller holds the work row, so that no rival wants the same place.
-- Twice: two events.
CREATE OR REPLACE FUNCTION note_of(week integer, task bytea, kind text, phase integer,
                                   attempt integer, body text, at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO event (week, task, place, kind, phase, attempt, text, at)
    SELECT note_of.week, note_of.task,
           coalesce((SELECT max(e.place) FROM event e
                     WHERE e.week = note_of.week AND e.task = note_of.task), 0) + 1,
           note_of.kind, note_of.phase, note_of.attempt, note_of.body, note_of.at;
END $$;

-- Promises the same, of now.
-- Locks nothing, as note_of.
-- Twice: two events.
CREATE OR REPLACE FUNCTION note(week integer, task bytea, kind text, phase integer,
                                attempt integer, body text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    SELECT note_of(week, task, kind, phase, attempt, body, now_())
$$;

-- Promises the outcome of a task, and that its work row is gone: the one place, with finish, where a task
-- becomes terminal (V6).
-- Locks nothing more: the caller holds the work row, FOR UPDATE.
-- Twice: an error, as the outcome's place is taken.
CREATE OR REPLACE FUNCTION end_task(week integer, task bytea, state text, error text,
                                    message text, attempt integer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
BEGIN
    INSERT INTO step (week, task, place, kind, name, error, message, attempt, hash, at)
    VALUES (end_task.week, end_task.task, 2147483647, 'outcome', end_task.state, end_task.error,
            end_task.message, end_task.attempt,
            sha256(convert_to(coalesce(end_task.error, ''), 'UTF8')), now_());
    DELETE FROM work w WHERE w.task = end_task.task;
END $$;

-- Promises the names of the phases that are done, for messages.
-- Locks nothing.
-- Twice: the same, while the caller holds the work row.
CREATE OR REPLACE FUNCTION phases_done(week integer, task bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT coalesce('done before: ' || string_agg(s.name, ', ' ORDER BY s.place),
                    'no phase was done')
    FROM step s WHERE s.week = phases_done.week AND s.task = phases_done.task
                  AND s.kind = 'recovery_point');
END $$;

-- Promises one waiting commit, as the first statement of every new connection (rule 13), so that nothing is
-- read over it that a fail-over could still take back; and the schema's version.
-- Locks nothing.
-- Twice: one more commit.
CREATE OR REPLACE FUNCTION barrier() RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT pg_logical_emit_message(true, 'holdfast', 'barrier');
    SELECT max(version) FROM schema_version;
$$;

-- Promises null where each of these key versions has the secret that every other process uses for it; those
-- that nobody had before are then this one's. Else why the process may not work here, and nothing is kept.
-- Locks key_mark against others that bring a new version, where there is one.
-- Twice: the same.
CREATE OR REPLACE FUNCTION keys_admit(versions integer[], marks bytea[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    fresh boolean := EXISTS (SELECT FROM unnest(keys_admit.versions) g (version)
                             WHERE NOT EXISTS (SELECT FROM key_mark k WHERE k.version = g.version));
    other integer;
BEGIN
    IF fresh THEN
        LOCK TABLE key_mark IN SHARE ROW EXCLUSIVE MODE;
    END IF;
    SELECT min(k.version) INTO other FROM unnest(keys_admit.versions, keys_admit.marks) g (version, mark)
    JOIN key_mark k ON k.version = g.version WHERE k.mark <> g.mark;
    IF other IS NOT NULL THEN
        RETURN format('keys file: version %s is not the secret that this store was started with '
                      '(every process takes the same keys file)', other);
    END IF;
    IF fresh THEN
        INSERT INTO key_mark (version, mark)
        SELECT g.version, g.mark FROM unnest(keys_admit.versions, keys_admit.marks) g (version, mark)
        WHERE NOT EXISTS (SELECT FROM key_mark k WHERE k.version = g.version);
    END IF;
    RETURN NULL;
END $$;

-- Promises nothing, it hints: that there is work, a wish or an end to be looked for. Apart from the durable
-- commit, never waiting for the disk; the caller coalesces.
-- Locks no row.
-- Twice: another look of whoever listens.
CREATE OR REPLACE FUNCTION wake_async(hint text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('holdfast_wake', wake_async.hint);
END $$;
