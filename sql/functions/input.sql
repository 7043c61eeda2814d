-- What a running task asks of its caller and what it is told (rule 8): whoever writes or reads the
-- inbox, or wakes a task by it, holds the task's work row.

-- Promises whether a question of the phase at hand stands open.
-- Locks nothing: the caller holds the work row, or will look again when it does.
-- Twice: the same, while that is held.
CREATE OR REPLACE FUNCTION is_asking(week integer, task bytea, phase integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN EXISTS (SELECT FROM inbox i WHERE i.week = is_asking.week AND i.task = is_asking.task
                                         AND i.phase = is_asking.phase AND i.how IS NULL);
END $$;

-- Promises a row of the inbox as a claim brings it: of another phase than the one at hand only that it is
-- there.
CREATE OR REPLACE FUNCTION inbox_entry(phase integer, at_hand integer, how text, request text,
                                       answer text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to(format('{"phase":%s,"how":%s,"request":%s,"answer":%s}', coalesce(phase, -1),
        coalesce(to_json(how)::text, 'null'),
        coalesce(CASE WHEN phase = at_hand THEN request END, 'null'),
        coalesce(CASE WHEN phase IS NULL OR phase = at_hand THEN answer END, 'null')), 'UTF8')
$$;

-- Promises that questions of these tasks whose time is over without an answer are closed as silence.
-- Locks inbox rows, task by task, of work rows that the caller holds.
-- Twice: as once.
CREATE OR REPLACE FUNCTION close_silent(tasks bytea[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    one bytea;
BEGIN
    FOREACH one IN ARRAY tasks LOOP
        UPDATE inbox i SET how = 'silence', answered = now_()
        WHERE i.week = week_of_task(one) AND i.task = one AND i.how IS NULL AND i.until <= now_();
    END LOOP;
END $$;

-- Promises that a phase asks and gives its claim back, in one commit. `questions`: a JSON array of {"key",
-- "request"}; one that was asked before stands as it is, one that was answered before gets its request and
-- stays answered. `wait_ms` (null: until the deadline) counts from the first asking of each. The task waits,
-- with nobody running it, or is ready at once where nothing is left open: all is answered, or its time is
-- over. A wish to stop or to park comes first, as in release. 'waiting'; 'ready', so that a worker is to be
-- told; or 'lost': fenced out, nothing was written.
-- Locks the work row, then its inbox, by key.
-- Twice: 'lost', which means the same to the caller: forget it.
CREATE OR REPLACE FUNCTION ask(week integer, task bytea, token uuid, phase integer, questions text,
                               wait_ms bigint, maybe_sent boolean, reason text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    place tid;
    opens boolean;
    is_ready boolean;
    next_due timestamptz;
BEGIN
    SELECT w.ctid INTO place FROM work w WHERE w.task = ask.task AND w.token = ask.token
                                           AND w.phase = ask.phase FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    INSERT INTO inbox AS i (week, task, key, phase, request, asked, until)
    SELECT ask.week, ask.task, q ->> 'key', ask.phase, (q -> 'request')::text, at, at + ms(wait_ms)
    FROM json_array_elements(questions::json) q ORDER BY q ->> 'key'
    ON CONFLICT (week, task, key) DO UPDATE SET phase = excluded.phase, request = excluded.request,
        asked = excluded.asked, until = excluded.until WHERE i.phase IS NULL;
    PERFORM close_silent(ARRAY[ask.task]);
    SELECT count(*) > 0, min(i.until) INTO opens, next_due FROM inbox i
    WHERE i.week = ask.week AND i.task = ask.task AND i.phase = ask.phase AND i.how IS NULL;

    IF NOT maybe_sent THEN
        PERFORM intents_drop(ARRAY[ask.task], ARRAY[ask.token], ARRAY[1], ARRAY[ask.phase]);
    END IF;
    UPDATE work w SET token = NULL, incarnation = NULL, progress = NULL, updated = at,
        message = CASE WHEN becomes_paused(w.cancel, w.park, w.pause, w.phase, 'ask') THEN NULL
                       ELSE reason END,
        pause = CASE WHEN becomes_paused(w.cancel, w.park, w.pause, w.phase, 'ask') THEN w.pause END,
        park = false, attempt = w.attempt - 1,
        sent = CASE WHEN maybe_sent THEN at ELSE w.sent END,
        state = CASE WHEN becomes_paused(w.cancel, w.park, w.pause, w.phase, 'ask') THEN 'paused'
                     WHEN w.cancel OR NOT opens THEN 'ready' WHEN w.park THEN 'parked'
                     ELSE 'waiting' END,
        due = CASE WHEN w.cancel OR NOT opens THEN at WHEN w.park THEN at + park_ttl(w.queue)
                   ELSE least(next_due, w.deadline) END
    WHERE w.ctid = place RETURNING w.state = 'ready' INTO is_ready;
    RETURN CASE WHEN is_ready THEN 'ready' ELSE 'waiting' END;
END $$;

-- Promises that answers to a task, a JSON object key -> answer, are kept: the first answer of a key stands;
-- unknown keys and a task that is over are passed by; one to a key that the tool declares and has not asked
-- is kept. Where nothing is left open the task is ready. `known`: there is such a task of this owner (V8);
-- `woken`: a worker is to be told; `taken`: how many were stored.
-- Locks nothing where a look without any lock finds nothing to take, so that junk costs no WAL and no commit
-- to wait for; else the work row, then its inbox.
-- Twice: the second changes nothing.
CREATE OR REPLACE FUNCTION answer(week integer, owner bigint, task bytea, answers text)
RETURNS TABLE (known boolean, woken boolean, taken integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    w record;
    early integer;
BEGIN
    woken := false;
    taken := 0;
    SELECT x.state, x.phase, v.inputs INTO w FROM work x JOIN tool v ON v.tool = x.queue
    WHERE x.task = answer.task AND x.owner = answer.owner;
    IF NOT FOUND THEN
        known := EXISTS (SELECT FROM task_views(answer.week, ARRAY[answer.task]) v
                         WHERE v.owner = answer.owner);
        RETURN NEXT;
        RETURN;
    END IF;
    known := true;
    -- What is asked or answered meanwhile is not missed: nobody can have seen a question that is not
    -- committed, and of a key's answers the first stands.
    IF NOT (w.state = 'waiting' AND NOT is_asking(answer.week, answer.task, w.phase)) AND NOT EXISTS (
            SELECT FROM json_each(answers::json) a
            LEFT JOIN inbox i ON i.week = answer.week AND i.task = answer.task AND i.key = a.key
            WHERE CASE WHEN i.key IS NULL THEN a.key = ANY (w.inputs) ELSE i.how IS NULL END) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT x.ctid AS tid, x.state, x.phase, v.inputs INTO w FROM work x JOIN tool v ON v.tool = x.queue
    WHERE x.task = answer.task AND x.owner = answer.owner FOR UPDATE OF x;
    IF NOT FOUND THEN -- over meanwhile
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE inbox i SET how = 'answer', answer = a.value::text, answered = at
    FROM json_each(answers::json) a
    WHERE i.week = answer.week AND i.task = answer.task AND i.key = a.key AND i.how IS NULL;
    GET DIAGNOSTICS taken = ROW_COUNT;
    INSERT INTO inbox (week, task, key, how, answer, answered)
    SELECT answer.week, answer.task, a.key, 'answer', a.value::text, at
    FROM json_each(answers::json) a WHERE a.key = ANY (w.inputs) ORDER BY a.key
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS early = ROW_COUNT;
    taken := taken + early;
    woken := w.state = 'waiting' AND NOT is_asking(answer.week, answer.task, w.phase);
    IF woken OR taken > 0 THEN
        UPDATE work x SET updated = at,
            state = CASE WHEN woken THEN 'ready' ELSE x.state END,
            due = CASE WHEN woken THEN at ELSE x.due END,
            message = CASE WHEN woken THEN NULL ELSE x.message END
        WHERE x.ctid = w.tid;
    END IF;
    RETURN NEXT;
END $$;

-- Promises what poll_task does for one task, with what it asks: a JSON object key -> request, in the order
-- of asking; null where nothing is left open.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION poll_asking(week integer, of_owner bigint, of_task bytea)
RETURNS TABLE (ord integer, owner bigint, task bytea, tool integer, state text, attempt integer,
               created_ms bigint, updated_ms bigint, ended_ms bigint, result_ttl_ms bigint,
               progress real, message text, result text, error text, effect_id text, requests text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.ord, p.owner, p.task, p.tool, p.state, p.attempt, p.created_ms, p.updated_ms, p.ended_ms,
           p.result_ttl_ms, p.progress, p.message, p.result, p.error, p.effect_id,
           (SELECT '{' || string_agg(to_json(i.key)::text || ':' || i.request, ','
                                          ORDER BY i.asked, i.key) || '}'
                 FROM work w JOIN inbox i ON i.week = poll_asking.week AND i.task = w.task
                                         AND i.phase = w.phase AND i.how IS NULL
                 WHERE w.task = p.task)
    FROM poll_task(poll_asking.week, ARRAY[of_owner], ARRAY[of_task]) p;
END $$;

-- Promises a backstop: tasks that wait although nothing is left open become ready. What it finds is a bug
-- somewhere else, and is counted as one (rule 8). A page of the waiting ones after (due, task); the next
-- page begins after what comes back, null at the end.
-- Locks work rows, in task order, skipping what others hold.
-- Twice: finds nothing more.
CREATE OR REPLACE FUNCTION wake_answered(after_due timestamptz, after_task bytea, most integer)
RETURNS TABLE (woken integer, next_due timestamptz, next_task bytea)
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    page bytea[];
    w record;
BEGIN
    woken := 0;
    SELECT array_agg(x.task ORDER BY x.due, x.task), max(x.due) INTO page, next_due
    FROM (SELECT y.task, y.due FROM work y
          WHERE y.state = 'waiting' AND y.due >= coalesce(after_due, '-infinity')
            AND (y.due, y.task) > (coalesce(after_due, '-infinity'), coalesce(after_task, ''))
          ORDER BY y.due, y.task LIMIT most) x;
    next_task := page[cardinality(page)];
    FOR w IN SELECT l.* FROM (SELECT * FROM unnest(page) u (task) ORDER BY u.task) d
             CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.task, x.week, x.phase, x.attempt
                                 FROM work x WHERE x.task = d.task AND x.state = 'waiting'
                                 OFFSET 0 FOR UPDATE SKIP LOCKED) l LOOP
        CONTINUE WHEN is_asking(w.week, w.task, w.phase);
        woken := woken + 1;
        PERFORM note(w.week, w.task, 'overlooked', w.phase, w.attempt,
                     'all was answered and nobody had told');
        UPDATE work x SET state = 'ready', due = now_(), message = NULL, updated = now_()
        WHERE x.ctid = w.tid;
    END LOOP;
    IF coalesce(cardinality(page), 0) < most THEN
        next_due := NULL;
        next_task := NULL;
    END IF;
    RETURN NEXT;
END $$;
