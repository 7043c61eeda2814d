-- Acceptance (R1.3, R1.4, V1, V2) and what a caller may see afterwards.

-- Promises the owner number of a principal, for ever the same.
-- Locks the principal's row by its insert, where there is none yet.
-- Twice: the same number.
CREATE OR REPLACE FUNCTION principal_owner(issuer text, subject text, tenant text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
DECLARE
    found_owner bigint;
BEGIN
    LOOP
        SELECT p.owner INTO found_owner FROM principal p
        WHERE p.issuer = principal_owner.issuer AND p.subject = principal_owner.subject
          AND p.tenant = principal_owner.tenant;
        EXIT WHEN FOUND;
        INSERT INTO principal (issuer, subject, tenant)
        VALUES (principal_owner.issuer, principal_owner.subject, principal_owner.tenant)
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN found_owner;
END $$;

-- Promises what may be told of the tasks of one week, from one snapshot. A task is gone from the answer once
-- its retention is over, swept or not. What waits for a paused tool or tenant is called paused. The message
-- of a ready task is null, but where it is set aside for a limit. The successor is the task that an operator
-- made of a failed one, also in the view of that itself.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION task_views(week integer, tasks bytea[])
RETURNS TABLE (task bytea, owner bigint, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text, result text, error text, effect_id text,
               successor bytea)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    -- plpgsql, so that the plan is made for this week: an SQL function's plan locks every partition.
    RETURN QUERY
    SELECT t.task, t.owner, t.tool,
           CASE WHEN h.word IS NOT NULL THEN 'paused' ELSE coalesce(w.state, o.name) END,
           coalesce(w.attempt, o.attempt),
           to_ms(t.accepted), to_ms(coalesce(w.updated, o.at)), coalesce(to_ms(o.at), 0),
           t.result_ttl_ms, w.progress,
           coalesce(h.word, CASE w.state WHEN 'ready' THEN n.word ELSE w.message END, o.message), o.result, o.error,
           t.effect_id,
           coalesce(t.successor, CASE WHEN t.retry_of IS NOT NULL THEN t.task END)
    FROM (SELECT DISTINCT x FROM unnest(task_views.tasks) x) u (task)
    CROSS JOIN LATERAL (SELECT x.* FROM holdfast.task x
                        WHERE x.week = task_views.week AND x.task = u.task OFFSET 0) t
    LEFT JOIN LATERAL (SELECT x.state, x.attempt, x.updated, x.progress, x.message, x.queue, x.due
                       FROM work x WHERE x.task = u.task OFFSET 0) w ON true
    LEFT JOIN LATERAL (SELECT pause_word(w.queue, t.owner) AS word
                       WHERE w.state IN ('ready', 'scheduled') OFFSET 0) h ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN w.due = 'infinity' THEN 'waits for its turn: as many as may '
                                    || 'run at once do' END AS word) n
    LEFT JOIN LATERAL (SELECT x.name, x.attempt, x.at, x.message, x.result, x.error FROM step x
                       WHERE x.week = task_views.week AND x.task = u.task
                         AND x.place = 2147483647 OFFSET 0) o ON true
    WHERE coalesce(w.state, o.name) IS NOT NULL
      AND (o.at IS NULL OR o.at + ms(t.result_ttl_ms) > now_());
END $$;

-- Promises the tasks of these owners, by ordinal; what is foreign, unknown or expired is not in the answer
-- (V8). The owner comes back so that the process can compare once more before it tells.
-- Locks nothing.
-- Twice: as it is by then; an outcome is the same for ever.
CREATE OR REPLACE FUNCTION poll_task(week integer, owners bigint[], tasks bytea[])
RETURNS TABLE (ord integer, owner bigint, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text, result text, error text, effect_id text,
               successor bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT u.ord::integer, v.owner, v.task, v.tool, v.state, v.attempt, v.created_ms, v.updated_ms,
           v.ended_ms, v.result_ttl_ms, v.progress, v.message, v.result, v.error, v.effect_id,
           v.successor
    FROM unnest(poll_task.owners, poll_task.tasks) WITH ORDINALITY u (owner, task, ord)
    JOIN task_views(poll_task.week, poll_task.tasks) v ON v.task = u.task AND v.owner = u.owner
$$;

-- Promises the effect ID that calls without any are accepted under (R1.9): `fresh` for the first of its
-- digest, which is made of owner, tool and fingerprint, and that same one for each later call of the digest
-- within `window_ms` of the first, however many there are. After that the next one is a first call again; of
-- several at once that find it so, one is: the row's lock decides, and the next statement sees what the
-- winner wrote. There are no buckets of time, so no edge between two of them. Durable before the call is
-- accepted, so that no crash in between makes two. Rows go after a day, see sweep_windows.
-- Locks nothing for who joins a window; else its one row.
-- Twice: with the same `fresh` as once.
CREATE OR REPLACE FUNCTION intent_window(digest bytea, fresh text, window_ms bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    chosen text;
BEGIN
    SELECT w.effect_id INTO chosen FROM holdfast.intent_window w
    WHERE w.digest = intent_window.digest AND w.opened + ms(window_ms) > now_()
      AND w.opened <= now_() + interval '1 minute';
    WHILE chosen IS NULL LOOP -- again where it was swept in between
        INSERT INTO holdfast.intent_window AS w (digest, effect_id, opened)
        VALUES (intent_window.digest, fresh, now_())
        ON CONFLICT (digest) DO UPDATE SET effect_id = excluded.effect_id, opened = excluded.opened
            WHERE w.opened + ms(window_ms) <= now_()
               OR w.opened > now_() + interval '1 minute' -- left by a clock that leapt
        RETURNING w.effect_id INTO chosen;
        IF chosen IS NULL THEN
            SELECT w.effect_id INTO chosen FROM holdfast.intent_window w
            WHERE w.digest = intent_window.digest;
        END IF;
    END LOOP;
    RETURN chosen;
END $$;

-- Promises the newest task of an effect, which may be gone already; null: there was none. The owner is part
-- of the digest (V8).
-- Locks nothing.
-- Twice: the same, or its successor.
CREATE OR REPLACE FUNCTION find(digest bytea) RETURNS bytea
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT (SELECT e.task FROM effect e WHERE e.digest = find.digest)
$$;

-- Promises one commit for a batch of calls, whose digests are all different (V1, V2). Outcomes: 'new';
-- 'same' (a repeat, the view is of the first task); 'conflict' (other arguments; null view); 'expired' (a
-- tombstone; null view); 'full' (it would be new, and its tool's backlog is full: nothing was stored; null
-- view), where `bounded`. A null api is a client that declares Tasks: its task is held, for good. A plain
-- call names itself by its API's incarnation and its own number, and is attached where the task is open and
-- not held.
-- Locks effects by their insert, in digest order; then tombstones past their time, in digest order, and what
-- takes their places; then the work rows of repeats that are to be held or joined, in task order. A repeat of a finished or held task
-- locks and writes nothing.
-- Twice: the second answers 'same' with the first one's task; equal randoms tell a caller whose answer was
-- lost that it was its own.
CREATE OR REPLACE FUNCTION accept_bounded(bounded boolean, owners bigint[], tools integer[],
    digests bytea[], effect_ids text[], fingerprints bytea[], arguments text[], inputs text[],
    asks integer[],
    traces text[], key_versions integer[], apis uuid[], numbers bigint[], randoms bytea[])
RETURNS TABLE (ord integer, outcome text, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
-- Planned once: 16 partitions of effect cost more to plan for than to look into. Without
-- sequential scans the plan cannot be one for empty tables; their price must not wake the JIT.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    at_ms bigint := to_ms(at);
    head bytea := task_head(at_ms);
    todo integer[];     -- to be inserted
    known integer[];    -- repeats
    past bytea[];       -- tombstones past their time
    won integer[];
    refused integer[];
    round integer := 0;
BEGIN
    PERFORM stand_still((SELECT c.held FROM cluster c));
    -- Without its week nothing can be kept: a passing trouble, maintenance makes weeks ahead.
    IF NOT EXISTS (SELECT FROM week k WHERE k.week = week_of(at_ms)) THEN
        RAISE EXCEPTION 'the partitions of this week are missing; is `holdfast maintain` running?'
            USING ERRCODE = '55000';
    END IF;
    -- Looked for first: a repeat then tries no insert, which would cost it five times as much.
    SELECT array_agg(u.ord::integer) FILTER (WHERE e.digest IS NULL),
           array_agg(u.ord::integer) FILTER (WHERE e.digest IS NOT NULL) INTO todo, known
    FROM unnest(digests) WITH ORDINALITY u (digest, ord)
    LEFT JOIN LATERAL (SELECT x.digest FROM effect x WHERE x.digest = u.digest OFFSET 0) e ON true;

    LOOP
        IF bounded AND todo IS NOT NULL THEN
            refused := limit_refuses(todo, tools);
            IF cardinality(refused) > 0 THEN
                RETURN QUERY
                SELECT i, 'full'::text, NULL::bytea, NULL::integer, NULL::text, NULL::integer,
                       NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::real, NULL::text
                FROM unnest(refused) i;
                todo := ARRAY(SELECT i FROM unnest(todo) i WHERE i <> ALL (refused));
            END IF;
        END IF;
        IF todo IS NOT NULL THEN
            WITH input AS MATERIALIZED (
                SELECT u.*, head || u.random AS new_task
                FROM unnest(owners, tools, digests, effect_ids, fingerprints, arguments, inputs,
                            asks, traces, key_versions, apis, numbers, randoms) WITH ORDINALITY
                     u (owner, tool, digest, effect_id, fingerprint, arguments, inputs, asks, trace,
                        key_version, api, number, random, ord)
                WHERE u.ord = ANY (todo)
            ), first AS (
                INSERT INTO effect (digest, task, fingerprint, tool, accepted)
                SELECT i.digest, i.new_task, i.fingerprint, i.tool, at FROM input i ORDER BY i.digest
                ON CONFLICT DO NOTHING RETURNING effect.task
            ), mine AS (
                SELECT i.*, v.deadline_ms, v.result_ttl_ms
                FROM first f JOIN input i ON i.new_task = f.task JOIN holdfast.tool v ON v.tool = i.tool
            ), accepted AS (
                INSERT INTO holdfast.task (week, task, owner, tool, effect_id, digest, fingerprint,
                    arguments, inputs, asks, accepted, deadline, trace, key_version, incarnation,
                    result_ttl_ms)
                SELECT week_of(at_ms), m.new_task, m.owner, m.tool, m.effect_id, m.digest,
                       m.fingerprint, m.arguments, m.inputs, m.asks, at, at + ms(m.deadline_ms),
                       m.trace, m.key_version, (SELECT incarnation FROM cluster), m.result_ttl_ms
                FROM mine m
            ), queued AS (
                INSERT INTO work (task, week, owner, queue, state, due, deadline, held, attached,
                                  attached_no, updated)
                SELECT m.new_task, week_of(at_ms), m.owner, m.tool, 'ready', at,
                       at + ms(m.deadline_ms), m.api IS NULL, m.api, m.number, at
                FROM mine m
            )
            SELECT coalesce(array_agg(m.ord::integer), '{}') INTO won FROM mine m;

            RETURN QUERY
            SELECT u.ord::integer, 'new'::text, head || u.random, u.tool, 'ready'::text, 0, at_ms,
                   at_ms, 0::bigint, v.result_ttl_ms, NULL::real, NULL::text
            FROM unnest(tools, randoms) WITH ORDINALITY u (tool, random, ord)
            JOIN holdfast.tool v ON v.tool = u.tool WHERE u.ord = ANY (won);
        END IF;

        known := known || ARRAY(SELECT i FROM unnest(todo) i WHERE i <> ALL (won));

        -- A tombstone past its time goes under its own lock, and the call is accepted as new; as is one
        -- whose tombstone the sweep took since the look above.
        EXIT WHEN cardinality(known) = 0 OR NOT EXISTS (
            SELECT FROM unnest(digests) WITH ORDINALITY u (digest, ord)
            LEFT JOIN LATERAL (SELECT x.digest, x.tombstone_until FROM effect x
                               WHERE x.digest = u.digest OFFSET 0) e ON true
            WHERE u.ord = ANY (known) AND (e.digest IS NULL OR e.tombstone_until < at));
        past := ARRAY(SELECT l.digest FROM (SELECT unnest(digests) AS digest ORDER BY 1) d
                      CROSS JOIN LATERAL (SELECT x.digest FROM effect x
                                          WHERE x.digest = d.digest AND x.tombstone_until < at
                                          OFFSET 0 FOR UPDATE) l);
        DELETE FROM effect e WHERE e.digest = ANY (past) AND e.tombstone_until < at;
        SELECT array_agg(u.ord::integer) INTO todo
        FROM unnest(digests) WITH ORDINALITY u (digest, ord)
        LEFT JOIN LATERAL (SELECT x.digest FROM effect x WHERE x.digest = u.digest OFFSET 0) e ON true
        WHERE u.ord = ANY (known) AND e.digest IS NULL;
        known := ARRAY(SELECT i FROM unnest(known) i WHERE i <> ALL (coalesce(todo, '{}')));

        round := round + 1;
        IF round = 4 THEN
            RAISE EXCEPTION 'effects came and went' USING ERRCODE = '40001';
        END IF;
    END LOOP;
    -- Behind all of the effects, for work rows come after them (rule 6).
    IF cardinality(known) > 0 THEN
        RETURN QUERY SELECT * FROM accept_repeats(known, owners, digests, fingerprints, apis, numbers);
    END IF;
END $$;

-- Promises what accept_bounded does without a bound, as binaries of version 9 call it; goes with the next
-- release.
-- Locks as that.
-- Twice: as that.
CREATE OR REPLACE FUNCTION accept_call(owners bigint[], tools integer[], digests bytea[],
    effect_ids text[], fingerprints bytea[], arguments text[], inputs text[], asks integer[],
    traces text[], key_versions integer[], apis uuid[], numbers bigint[], randoms bytea[])
RETURNS TABLE (ord integer, outcome text, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT * FROM accept_bounded(false, owners, tools, digests, effect_ids, fingerprints, arguments,
        inputs, asks, traces, key_versions, apis, numbers, randoms)
$$;

-- Promises the answers to the repeats of a batch: locked first what is to be written, read after (rule 1).
-- Locks as join_task, where a task is open and not held; else nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION accept_repeats(ords integer[], owners bigint[], digests bytea[],
                                          fingerprints bytea[], apis uuid[], numbers bigint[])
RETURNS TABLE (ord integer, outcome text, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    same_ords integer[];
    same_tasks bytea[];
    one_week integer;
    seen integer[] := '{}';
BEGIN
    SELECT array_agg(u.ord::integer), array_agg(e.task) INTO same_ords, same_tasks
    FROM unnest(digests, fingerprints) WITH ORDINALITY u (digest, fingerprint, ord)
    CROSS JOIN LATERAL (SELECT x.task, x.fingerprint FROM effect x
                        WHERE x.digest = u.digest OFFSET 0) e
    WHERE u.ord = ANY (ords) AND e.fingerprint = u.fingerprint;

    IF EXISTS (SELECT FROM unnest(same_tasks) u (task) CROSS JOIN LATERAL (
                   SELECT FROM work x WHERE x.task = u.task AND NOT x.held OFFSET 0) w) THEN
        PERFORM join_task(same_tasks, ARRAY(SELECT apis[o] FROM unnest(same_ords) o),
                          ARRAY(SELECT numbers[o] FROM unnest(same_ords) o));
    END IF;

    FOR one_week IN SELECT DISTINCT week_of_task(t) FROM unnest(same_tasks) t LOOP
        FOR ord, task, tool, state, attempt, created_ms, updated_ms, ended_ms, result_ttl_ms,
            progress, message IN
            SELECT s.ord, v.task, v.tool, v.state, v.attempt, v.created_ms, v.updated_ms, v.ended_ms,
                   v.result_ttl_ms, v.progress, v.message
            FROM unnest(same_ords, same_tasks) s (ord, task)
            JOIN task_views(one_week, same_tasks) v ON v.task = s.task AND v.owner = owners[s.ord] LOOP
            outcome := 'same';
            seen := seen || ord;
            RETURN NEXT;
        END LOOP;
    END LOOP;

    -- What no view was found for is a conflict or a tombstone.
    RETURN QUERY
    SELECT i, CASE WHEN i = ANY (same_ords) THEN 'expired' ELSE 'conflict' END, NULL::bytea,
           NULL::integer, NULL::text, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint,
           NULL::bigint, NULL::real, NULL::text
    FROM unnest(ords) i WHERE i <> ALL (seen);
END $$;

-- Promises that tasks are joined: by a client that declares Tasks (null api) they are held for good, by a
-- plain call attached where nobody holds them; a parked one is taken up again (R3.2). Locked first, written
-- in a second statement: one that waited for its lock would not see the row that it got (rule 1).
-- Locks work rows, in task order.
-- Twice: as once.
CREATE OR REPLACE FUNCTION join_task(tasks bytea[], apis uuid[], numbers bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    ords integer[];
    tids tid[];
BEGIN
    SELECT array_agg(u.ord::integer), array_agg(w.tid) INTO ords, tids
    FROM (SELECT * FROM unnest(tasks) WITH ORDINALITY c (task, ord) ORDER BY c.task) u
    CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM work x WHERE x.task = u.task AND NOT x.held
                        OFFSET 0 FOR UPDATE) w;
    IF tids IS NULL THEN
        RETURN;
    END IF;
    UPDATE work w SET held = apis[l.ord] IS NULL, attached = apis[l.ord],
        attached_no = numbers[l.ord], park = w.park AND w.pause IS NOT NULL,
        updated = CASE w.state WHEN 'parked' THEN now_() ELSE w.updated END,
        message = CASE w.state WHEN 'parked' THEN NULL ELSE w.message END,
        due = CASE w.state WHEN 'parked' THEN now_() ELSE w.due END,
        state = CASE w.state WHEN 'parked' THEN 'ready' ELSE w.state END
    FROM unnest(ords, tids) l (ord, tid) WHERE w.ctid = l.tid;
END $$;

-- Promises that a plain call joins the task of its owner again, because it still waits for it; returns how
-- many of these are open and their owner's.
-- Locks work rows, in task order.
-- Twice: as once.
CREATE OR REPLACE FUNCTION attach(owners bigint[], tasks bytea[], apis uuid[], numbers bigint[])
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
DECLARE
    mine integer[] := ARRAY(SELECT u.ord::integer FROM unnest(attach.owners, attach.tasks)
                            WITH ORDINALITY u (owner, task, ord)
                            CROSS JOIN LATERAL (SELECT FROM work x WHERE x.task = u.task
                                                AND x.owner = u.owner OFFSET 0) w);
BEGIN
    PERFORM join_task(ARRAY(SELECT attach.tasks[i] FROM unnest(mine) i),
                      ARRAY(SELECT attach.apis[i] FROM unnest(mine) i),
                      ARRAY(SELECT attach.numbers[i] FROM unnest(mine) i));
    RETURN cardinality(mine);
END $$;

-- Promises that plain calls leave their tasks. With park: hung up, so work stops (R3.2), at once where
-- nobody runs it, else by a wish to its worker; without: answered, so work goes on. Only where the
-- attachment is still theirs and no client that declares Tasks holds the task. By ordinal: was it theirs,
-- the number of the phase it stands at, from 1, and whether a worker is to be woken.
-- Locks work rows, in task order.
-- Twice: not theirs, and nothing changes.
CREATE OR REPLACE FUNCTION detach(tasks bytea[], apis uuid[], numbers bigint[], parks boolean[])
RETURNS TABLE (ord integer, ours boolean, phase integer, running boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    u record;
    w record;
    stops boolean;
BEGIN
    FOR u IN SELECT * FROM unnest(tasks, apis, numbers, parks)
                 WITH ORDINALITY c (task, api, number, park, ord) ORDER BY c.task LOOP
        SELECT x.ctid AS tid, x.week, x.task, x.phase, x.attempt, x.state, x.cancel
        INTO w FROM work x
        WHERE x.task = u.task AND x.attached = u.api AND x.attached_no = u.number AND NOT x.held
        FOR UPDATE;
        ord := u.ord;
        ours := FOUND;
        phase := coalesce(w.phase, 0) + 1;
        running := ours AND u.park AND w.state = 'running';
        stops := ours AND u.park AND NOT w.cancel
                 AND w.state IN ('ready', 'scheduled', 'waiting', 'unverified');
        IF ours THEN
            UPDATE work x SET attached = NULL, attached_no = NULL,
                park = running OR (x.park AND x.pause IS NOT NULL),
                updated = CASE WHEN u.park THEN now_() ELSE x.updated END,
                message = CASE WHEN stops THEN 'parked: its client hung up' ELSE x.message END,
                due = CASE WHEN stops THEN now_() + park_ttl(x.queue) ELSE x.due END,
                state = CASE WHEN stops THEN 'parked' ELSE x.state END
            WHERE x.ctid = w.tid;
        END IF;
        IF ours AND u.park THEN
            PERFORM note(w.week, w.task, 'hung_up', w.phase, w.attempt, NULL);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Promises how long a task of that version may stay parked.
-- Locks nothing.
-- Twice: the same.
CREATE OR REPLACE FUNCTION park_ttl(queue integer) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = holdfast, pg_temp AS $$
    SELECT ms(t.park_ttl_ms) FROM tool t WHERE t.tool = park_ttl.queue
$$;

-- Promises the wish to stop (rule 9). Gone: nothing to do; running or unknown: flagged, and the owner is to
-- be woken; something of its phase may have been sent (V7) or a done phase can be undone: due at once, for a
-- worker; else the outcome is written here. By ordinal: was it there for this owner?
-- Locks work rows, in task order.
-- Twice: as once, any number of times.
CREATE OR REPLACE FUNCTION cancel(week integer, owners bigint[], tasks bytea[])
RETURNS TABLE (ord integer, found boolean, flagged boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    w record;
    flagged_tasks bytea[] := '{}';
BEGIN
    FOR w IN SELECT l.* FROM (SELECT * FROM unnest(owners, tasks) u (owner, task) ORDER BY u.task) d
             CROSS JOIN LATERAL (
                 SELECT x.ctid AS tid, x.task, x.week, x.state, x.phase, x.attempt, x.cancel
                 FROM work x WHERE x.task = d.task AND x.owner = d.owner
                 OFFSET 0 FOR UPDATE) l LOOP
        IF w.state IN ('running', 'unknown') THEN
            flagged_tasks := flagged_tasks || w.task;
            IF NOT w.cancel THEN
                UPDATE work x SET cancel = true, updated = now_() WHERE x.ctid = w.tid;
                PERFORM note(w.week, w.task, 'cancel_asked', w.phase, w.attempt, NULL);
            END IF;
        ELSIF NOT w.cancel AND stop_task(w.week, w.task, 'cancelled') THEN
            PERFORM note(w.week, w.task, 'cancel_asked', w.phase, w.attempt, NULL);
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT u.ord::integer, v.task IS NOT NULL, u.task = ANY (flagged_tasks)
    FROM unnest(owners, tasks) WITH ORDINALITY u (owner, task, ord)
    LEFT JOIN task_views(cancel.week, tasks) v ON v.task = u.task AND v.owner = u.owner;
END $$;
