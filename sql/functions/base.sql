-- Small things that the other functions stand on. Time is the database's, through one function
-- that tests replace; everything stored or compared with stored time comes from here.

-- No SET clause: it would keep Postgres from inlining it.
CREATE OR REPLACE FUNCTION now_() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() $$;

CREATE OR REPLACE FUNCTION to_ms(at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT floor(extract(epoch FROM at AT TIME ZONE 'UTC') * 1000)::bigint $$;

CREATE OR REPLACE FUNCTION ms(n bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT n * interval '1 millisecond' $$;

-- Whole weeks since 1970: the partition of that time.
CREATE OR REPLACE FUNCTION week_of(ms bigint) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT (ms / 604800000)::integer $$;

-- The week in a task ID: bytes 3 to 8 are its time in ms.
CREATE OR REPLACE FUNCTION week_of_task(task bytea) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT (('x' || lpad(encode(substring(task FROM 3 FOR 6), 'hex'), 16, '0'))::bit(64)::bigint
            / 604800000)::integer
$$;

-- What is asked of whoever runs a task: 0 nothing, 1 park, 2 stop.
CREATE OR REPLACE FUNCTION wish(cancel boolean, park boolean) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN cancel THEN 2 WHEN park THEN 1 ELSE 0 END $$;

-- A claim that is given up leaves its task paused by an operator.
CREATE OR REPLACE FUNCTION becomes_paused(cancel boolean, park boolean, pause text, phase integer,
                                          how text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT park AND pause IS NOT NULL AND NOT cancel AND phase < 64 AND how <> 'unknown'
$$;

-- The fence (V4, rules 2 and 6): locks the work rows of these claims, in task order, and says which
-- of them still hold: ordinals, and where their rows lie. What is locked is then written by that
-- place: joined by task, a plan made from stale statistics walks the whole table (a plan test holds
-- this). FOR UPDATE serves updates and deletes alike; nothing refers to a work row.
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

-- Notes a fact about a task for people. The caller holds the task's work row, so places have no
-- gaps and no rivals.
CREATE OR REPLACE FUNCTION note(week integer, task bytea, kind text, phase integer,
                                attempt integer, body text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO event (week, task, place, kind, phase, attempt, text, at)
    SELECT note.week, note.task,
           coalesce((SELECT max(e.place) FROM event e
                     WHERE e.week = note.week AND e.task = note.task), 0) + 1,
           note.kind, note.phase, note.attempt, note.body, now_();
END $$;

-- Writes the outcome of a task and takes its work row away. The caller holds that row FOR UPDATE;
-- it is the one place, with finish, where a task becomes terminal (V6).
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

-- The names of the phases that are done, for messages.
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

-- The first statement of every new connection: one waiting commit (rule 13), so that nothing is
-- read here that a fail-over could still take back.
CREATE OR REPLACE FUNCTION barrier() RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT pg_logical_emit_message(true, 'holdfast', 'barrier');
    SELECT max(version) FROM schema_version;
$$;

-- A hint that there is work ('w') or a cancel ('c'). Apart from the durable commit, never waiting
-- for the disk; coalesced by the caller.
CREATE OR REPLACE FUNCTION wake_async(hint text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('holdfast_wake', wake_async.hint);
END $$;
