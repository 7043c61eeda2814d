-- The worker's side: beat, claim, step, finish, release, artifacts. Every write names its claim
-- (task, token); under another token it changes nothing (V4). The fence is a lock on the work
-- row by token, in task order (rules 2 and 6): fence() in base.sql.

-- Promises one beat: the counter goes up, progress is taken along. Not alive: the store has declared this
-- incarnation dead. The rows are the claims that are asked to stop; one row at least.
-- Locks the incarnation's row in worker; then work rows, in task order, skipping what others hold.
-- Twice: one more beat.
CREATE OR REPLACE FUNCTION beat_async(incarnation uuid, fresh boolean, role text, capacity integer,
    running integer, tasks bytea[], tokens uuid[], progresses real[], messages text[])
RETURNS TABLE (alive boolean, task bytea, token uuid, wish integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
-- A connection keeps the plan that it made when there was no work; that must not be a walk.
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    lives boolean;
    ords integer[];
    tids tid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF fresh THEN
        INSERT INTO worker AS w (incarnation, role, capacity, running, started, seen)
        VALUES (beat_async.incarnation, beat_async.role, beat_async.capacity, beat_async.running,
                now_(), now_())
        ON CONFLICT (incarnation) DO UPDATE SET beat = w.beat + 1;
        lives := true;
    ELSE
        UPDATE worker w SET beat = w.beat + 1, capacity = beat_async.capacity,
               running = beat_async.running, seen = now_()
        WHERE w.incarnation = beat_async.incarnation;
        lives := FOUND;
    END IF;
    IF lives AND cardinality(tasks) > 0 THEN
        SELECT array_agg(u.ord::integer), array_agg(w.tid) INTO ords, tids
        FROM (SELECT * FROM unnest(tasks, tokens) WITH ORDINALITY c (task, token, ord)
              ORDER BY c.task) u
        CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM work x
                            WHERE x.task = u.task AND x.token = u.token
                            OFFSET 0 FOR UPDATE SKIP LOCKED) w;
        UPDATE work w SET progress = progresses[l.ord], message = messages[l.ord], updated = now_()
        FROM unnest(ords, tids) l (ord, tid) WHERE w.ctid = l.tid;
    END IF;
    RETURN QUERY SELECT lives, w.task, w.token, coalesce(wish(w.cancel, w.park), 0)
                 FROM (SELECT 1) one
                 LEFT JOIN work w ON w.incarnation = beat_async.incarnation
                                 AND (w.cancel OR w.park) AND lives;
END $$;

-- Promises that an incarnation is gone, once it holds nothing.
-- Locks claim_call, then worker, as a claim does; then gates, as limit_leave.
-- Twice: as once.
CREATE OR REPLACE FUNCTION leave(incarnation uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    DELETE FROM claim_call c WHERE c.incarnation = leave.incarnation;
    DELETE FROM worker w WHERE w.incarnation = leave.incarnation;
    SELECT limit_leave(leave.incarnation)
$$;

-- Promises up to `most` due tasks of these queues. First each queue gives an equal share, in their order,
-- then each what is left of `most`: none takes all, and a caller that puts what gave last behind the others
-- starves none. Limits of tools are kept to, see limits.sql. What is paused is not claimed.
-- `call` is new for each claim: a random half and a number that rises. The tokens begin with its first half,
-- so that the same call again gets what it holds already. No claim is left behind that nobody knows of (rule
-- 11, V9): a call whose number was seen takes nothing new, as when a flight that was given up for lost
-- arrives behind the one that was sent in its place. (A negative number is of the release before.)
-- A waiting commit: that a phase may have been sent is durable before anything is sent (rule 4).
-- Among the steps, with kinds of their own, are the intents of the phase at hand ('intent'), what the caller
-- answered before its call was accepted ('inputs'), what it can be asked ('asks'), what it was asked
-- ('inbox'), the generations of keys that are not 0 ('generation'), what a restore may have lost of it
-- ('tail', see tail_of), and that this is a copy ('copy').
-- Locks work rows that come due, skipping what others hold, and the inbox of those that waited; then
-- claim_call and worker of this incarnation; then gates, by name; then work rows, skipping; then as
-- pause_tenants. Steps are read after (rule 1).
-- Twice: the same call gets the same claims, as after a lost answer to its COMMIT.
CREATE OR REPLACE FUNCTION claim(incarnation uuid, queues integer[], most integer, call uuid)
RETURNS TABLE (task bytea, token uuid, tool integer, phase integer, attempt integer,
    crashes integer, cancel boolean, now_ms bigint, deadline_ms bigint, first_try_ms bigint,
    sent_ms bigint, owner bigint, issuer text, subject text, tenant text, effect_id text,
    trace text, arguments text, key_version integer, cluster uuid, places integer[], kinds text[],
    names text[], states bytea[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    mark bytea := substring(uuid_send(claim.call) FROM 1 FOR 8);
    number bigint := ('x' || encode(substring(uuid_send(claim.call) FROM 9), 'hex'))::bit(64)::bigint;
    seen boolean := false;
    picked tid[] := '{}';
    got tid[];
    due_tids tid[];
    kept tid[];
    pauses boolean;
    claimed bytea[];
    later text;
    limited text[];     -- by queue: the tool's name, where it has a gate
    gates text[];       -- those that this claim went through
    turn integer[];
    again integer[];
    waiting integer;
    share integer;
    here integer;
    one_week integer;
    c cluster;
BEGIN
    SELECT x.* INTO c FROM cluster x;
    PERFORM stand_still(c.held);
    FOREACH later IN ARRAY ARRAY['scheduled', 'unverified', 'waiting'] LOOP
        WITH due AS (
            UPDATE work w SET state = 'ready' WHERE w.ctid = ANY (ARRAY(
                SELECT x.ctid FROM work x WHERE x.state = later AND x.due <= at
                ORDER BY x.due LIMIT 64 FOR UPDATE SKIP LOCKED)) RETURNING w.task
        ) SELECT array_agg(d.task) INTO claimed FROM due d;
        IF later = 'waiting' AND claimed IS NOT NULL THEN
            PERFORM close_silent(claimed);
        END IF;
    END LOOP;
    PERFORM 1 FROM worker w WHERE w.incarnation = claim.incarnation;
    IF NOT FOUND THEN
        RETURN; -- declared dead: nothing is given to it
    END IF;
    IF number >= 0 THEN
        INSERT INTO claim_call AS c (incarnation, number) VALUES (claim.incarnation, number)
        ON CONFLICT ON CONSTRAINT claim_call_pkey DO UPDATE SET number = excluded.number
            WHERE c.number < excluded.number;
        seen := NOT FOUND;
    END IF;
    UPDATE worker w SET serves = queues
    WHERE w.incarnation = claim.incarnation AND w.serves IS DISTINCT FROM queues;
    pauses := EXISTS (SELECT FROM pause p);
    IF pauses THEN
        queues := queues_open(queues);
    END IF;

    SELECT array_agg(w.task) INTO claimed FROM work w
    WHERE w.incarnation = claim.incarnation AND substring(uuid_send(w.token) FROM 1 FOR 8) = mark;

    IF NOT seen AND claimed IS NULL THEN
        IF EXISTS (SELECT FROM tool_limit l WHERE l.gated) THEN
            limited := ARRAY(SELECT (SELECT l.name FROM tool t JOIN tool_limit l ON l.name = t.name
                                     WHERE t.tool = q.queue AND l.gated)
                             FROM unnest(queues) WITH ORDINALITY q (queue, ord) ORDER BY q.ord);
            gates := limit_gates(claim.incarnation, queues, at);
            PERFORM limit_enter(gates, claim.incarnation);
        END IF;
        turn := ARRAY(SELECT generate_subscripts(queues, 1));
        WHILE cardinality(turn) > 0 AND cardinality(picked) < most LOOP
            again := '{}';
            waiting := cardinality(turn);
            FOREACH here IN ARRAY turn LOOP
                share := (most - cardinality(picked) + waiting - 1) / waiting;
                EXIT WHEN share = 0;
                waiting := waiting - 1;
                got := '{}';
                IF limited[here] = ANY (gates) THEN
                    got := limit_pick(limited[here], queues[here], share, at, pauses, picked);
                ELSIF limited[here] IS NULL THEN
                    -- Again only where some were of a paused tenant and went out of the way.
                    FOR round IN 1..8 LOOP
                        EXIT WHEN cardinality(got) >= share;
                        due_tids := ARRAY(
                            SELECT x.ctid FROM work x
                            WHERE x.state = 'ready' AND x.queue = queues[here] AND x.due <= at
                              AND x.ctid <> ALL (picked || got)
                            ORDER BY x.due LIMIT share - cardinality(got) FOR UPDATE SKIP LOCKED);
                        kept := CASE WHEN pauses THEN pause_tenants(due_tids) ELSE due_tids END;
                        got := got || kept;
                        EXIT WHEN cardinality(kept) = cardinality(due_tids);
                    END LOOP;
                END IF;
                got := CASE WHEN c.copy THEN put_off_foreign(got) ELSE got END;
                picked := picked || got;
                IF cardinality(got) = share THEN
                    again := again || here;
                END IF;
            END LOOP;
            turn := again;
        END LOOP;
    END IF;
    WITH taken AS (
        UPDATE work w SET state = 'running',
               token = encode(mark || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid,
               incarnation = claim.incarnation, attempt = w.attempt + 1,
               first_try = coalesce(w.first_try, at), progress = NULL, message = NULL, updated = at,
               due = CASE w.due WHEN 'infinity' THEN w.turn ELSE w.due END
        WHERE w.ctid = ANY (picked) RETURNING w.task
    ) SELECT coalesce(claimed, array_agg(t.task)) INTO claimed FROM taken t;
    IF cardinality(gates) > 0 AND cardinality(picked) > 0 THEN
        PERFORM limit_count(l.name, claim.incarnation) FROM tool_limit l
        WHERE l.name = ANY (gates) AND l.gated;
    END IF;

    FOR one_week IN SELECT DISTINCT week_of_task(t) FROM unnest(claimed) t LOOP
        RETURN QUERY
        SELECT w.task, w.token, w.queue, w.phase, w.attempt, w.crashes, w.cancel, to_ms(at),
               to_ms(w.deadline), to_ms(w.first_try), coalesce(to_ms(w.sent), 0), w.owner,
               p.issuer, p.subject, p.tenant, t.effect_id, t.trace, t.arguments,
               t.key_version::integer, t.incarnation, s.places, s.kinds, s.names, s.states
        FROM unnest(claimed) u (task)
        CROSS JOIN LATERAL (SELECT x.* FROM work x WHERE x.task = u.task AND x.week = one_week
                            OFFSET 0) w
        CROSS JOIN LATERAL (SELECT x.* FROM holdfast.task x
                            WHERE x.week = one_week AND x.task = w.task OFFSET 0) t
        JOIN principal p ON p.owner = w.owner
        CROSS JOIN LATERAL (SELECT array_agg(x.place ORDER BY x.place) AS places,
                                   array_agg(x.kind ORDER BY x.place) AS kinds,
                                   array_agg(x.name ORDER BY x.place) AS names,
                                   array_agg(x.state ORDER BY x.place) AS states
                            FROM (SELECT x.place, x.kind, x.name, x.state FROM step x
                                  WHERE x.week = one_week AND x.task = w.task
                                  UNION ALL
                                  SELECT i.phase * 65536 + 65534, 'intent', i.name, NULL
                                  FROM intent i
                                  WHERE i.week = one_week AND i.task = w.task
                                    AND i.phase = w.phase
                                  UNION ALL
                                  SELECT 0, 'inputs', '', convert_to(t.inputs, 'UTF8')
                                  WHERE t.inputs IS NOT NULL
                                  UNION ALL
                                  SELECT (g.ord::integer - 1) * 65536, 'generation', g.n::text, NULL
                                  FROM unnest(t.generations) WITH ORDINALITY g (n, ord)
                                  WHERE g.n > 0
                                  UNION ALL
                                  SELECT 0, 'asks', t.asks::text, NULL WHERE t.asks <> 0
                                  UNION ALL
                                  SELECT 0, 'copy', '', NULL WHERE c.copy
                                  UNION ALL
                                  SELECT 0, 'tail', tail.text, NULL
                                  FROM tail_of(w.tail_from, w.tail_to, w.tail_below, w.phase,
                                               t.accepted, t.result_ttl_ms, c.tail_from,
                                               c.tail_to) tail (text)
                                  WHERE tail.text IS NOT NULL
                                  UNION ALL
                                  SELECT 0, 'inbox', i.key,
                                         inbox_entry(i.phase, w.phase, i.how, i.request, i.answer)
                                  FROM inbox i
                                  WHERE i.week = one_week AND i.task = w.task) x) s;
    END LOOP;
END $$;

-- Promises the undo step that follows `after` (63: the first), as a phase: undoing phase p is phase 127 - p.
-- 128 where nothing is left to undo.
-- Locks nothing: the caller holds the work row.
-- Twice: the same, while that is held.
CREATE OR REPLACE FUNCTION next_undo(week integer, task bytea, queue integer, after integer)
RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT coalesce(127 - max(u.phase), 128)
            FROM tool v CROSS JOIN unnest(v.undos) u (phase)
            WHERE v.tool = next_undo.queue AND 127 - u.phase > next_undo.after
              AND EXISTS (SELECT FROM step s
                          WHERE s.week = next_undo.week AND s.task = next_undo.task
                            AND s.place = u.phase * 65536 + 65535));
END $$;

-- Promises recovery points and checkpoints of one week, each task once in a batch. A recovery point moves
-- the task on and says in the same commit that the next phase may have been sent (rule 4). 'held': it is
-- ours. 'adopted': another claim defined the place first, its state comes back. 'lost': fenced out, nothing
-- was written.
-- Locks work rows, in task order.
-- Twice: 'held', while the claim is.
CREATE OR REPLACE FUNCTION step(week integer, tasks bytea[], tokens uuid[], kinds text[],
    places integer[], phases integer[], names text[], states bytea[], derived_keys text[],
    answers text[], attempts integer[], took_ms bigint[])
RETURNS TABLE (ord integer, fence text, wish integer, state bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    locked integer[];
    tids tid[];
BEGIN
    SELECT f.ords, f.tids INTO locked, tids FROM fence(tasks, tokens) f;

    PERFORM write_steps(step.week, locked, tasks, tokens, kinds, places, names, states,
                        derived_keys, answers, attempts, took_ms);

    UPDATE work w SET attempt = 1,
           phase = CASE WHEN w.phase < 64 THEN w.phase + 1
                        ELSE next_undo(w.week, w.task, w.queue, w.phase) END,
           first_try = coalesce(CASE WHEN in_tail(w.phase + 1, w.tail_below) THEN w.tail_from END, at),
           sent = CASE WHEN in_tail(w.phase + 1, w.tail_below) THEN w.tail_to END,
           progress = NULL, message = NULL, updated = at
    FROM unnest(locked, tids) l (ord, tid)
    WHERE w.ctid = l.tid AND kinds[l.ord] = 'recovery_point' AND w.phase = phases[l.ord];

    RETURN QUERY
    SELECT u.ord::integer,
           CASE WHEN NOT u.ord = ANY (coalesce(locked, '{}')) THEN 'lost'
                WHEN s.token = u.token THEN 'held' ELSE 'adopted' END,
           coalesce(wish(w.cancel, w.park), 0),
           CASE WHEN s.token IS DISTINCT FROM u.token THEN s.state END
    FROM unnest(tasks, tokens, places) WITH ORDINALITY u (task, token, place, ord)
    LEFT JOIN LATERAL (SELECT x.token, x.state FROM holdfast.step x
                       WHERE x.week = step.week AND x.task = u.task AND x.place = u.place
                       OFFSET 0) s ON true
    LEFT JOIN LATERAL (SELECT x.cancel, x.park FROM work x WHERE x.task = u.task AND x.token = u.token
                       OFFSET 0) w ON true;
END $$;

-- Promises the insert that step and finish share. Who committed a place first keeps it (V3).
-- Locks steps by their insert, in the order of task and place; the caller holds the work rows.
-- Twice: as once.
CREATE OR REPLACE FUNCTION write_steps(week integer, ords integer[], tasks bytea[], tokens uuid[],
    kinds text[], places integer[], names text[], states bytea[], derived_keys text[],
    answers text[], attempts integer[], took_ms bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO step (week, task, place, kind, name, state, derived_key, answer, attempt,
                      generation, token, hash, started, at)
    SELECT write_steps.week, u.task, u.place, u.kind, u.name, u.state, u.derived_key, u.answer,
           u.attempt,
           coalesce((SELECT w.generations[u.place / 65536 + 1] FROM work w WHERE w.task = u.task), 0),
           u.token, sha256(coalesce(u.state, '')), now_() - ms(u.took_ms), now_()
    FROM unnest(tasks, tokens, kinds, places, names, states, derived_keys, answers, attempts,
                took_ms) WITH ORDINALITY
         u (task, token, kind, place, name, state, derived_key, answer, attempt, took_ms, ord)
    WHERE u.ord = ANY (ords)
    ORDER BY u.task, u.place
    ON CONFLICT DO NOTHING;
END $$;

-- Promises outcomes of one week, with the last recovery point where there is one (last_places not null).
-- 'held': the outcome is ours. 'lost': fenced out, or over by another's hand.
-- Locks work rows, in task order.
-- Twice: 'held'.
CREATE OR REPLACE FUNCTION finish(week integer, tasks bytea[], tokens uuid[], outcomes text[],
    results text[], errors text[], messages text[], attempts integer[], last_places integer[],
    last_names text[], last_states bytea[], last_keys text[], last_answers text[],
    last_took_ms bigint[])
RETURNS TABLE (ord integer, fence text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    locked integer[];
    tids tid[];
BEGIN
    SELECT f.ords, f.tids INTO locked, tids FROM fence(tasks, tokens) f;

    PERFORM write_steps(finish.week,
        (SELECT array_agg(h) FROM unnest(locked) h WHERE last_places[h] IS NOT NULL), tasks, tokens,
        array_fill('recovery_point'::text, ARRAY[cardinality(tasks)]), last_places, last_names,
        last_states, last_keys, last_answers, attempts, last_took_ms);

    INSERT INTO step (week, task, place, kind, name, result, error, message, attempt, token, hash, at)
    SELECT finish.week, u.task, 2147483647, 'outcome', u.outcome, u.result, u.error,
           -- What hung in the air when the undo steps began is still to be told at their end (V7).
           u.message || coalesce(CASE WHEN u.outcome <> 'completed' THEN
               (SELECT substring(e.text FROM '; [^;]+ may have taken effect$') FROM event e
                WHERE e.week = finish.week AND e.task = u.task AND e.kind = 'undo'
                ORDER BY e.place DESC LIMIT 1) END, ''),
           u.attempt, u.token,
           sha256(convert_to(coalesce(u.result, '') || coalesce(u.error, ''), 'UTF8')), now_()
    FROM unnest(tasks, tokens, outcomes, results, errors, messages, attempts) WITH ORDINALITY
         u (task, token, outcome, result, error, message, attempt, ord)
    WHERE u.ord = ANY (locked) ORDER BY u.task;

    DELETE FROM work w WHERE w.ctid = ANY (tids);

    RETURN QUERY
    SELECT u.ord::integer, CASE WHEN s.token = u.token THEN 'held' ELSE 'lost' END
    FROM unnest(tasks, tokens) WITH ORDINALITY u (task, token, ord)
    LEFT JOIN LATERAL (SELECT x.token FROM step x
                       WHERE x.week = finish.week AND x.task = u.task AND x.place = 2147483647
                       OFFSET 0) s ON true;
END $$;

-- Promises that a claim is given up. 'retry': the attempt is spent; 'again', 'back': it is not; 'crash': one
-- crash more instead; 'unknown': nobody can tell whether it happened (V7); 'unverified': accepted
-- downstream, not yet seen, looked for again when due; 'undo': nothing is left open, the undo steps begin.
-- An intent of what never left goes. A task that is asked to stop becomes due at once; one that is to be
-- parked or paused is so now.
-- Locks work rows, in task order.
-- Twice: 'lost', which means the same to the caller: forget it.
CREATE OR REPLACE FUNCTION release(tasks bytea[], tokens uuid[], hows text[], delays_ms bigint[],
                                   maybe_sents boolean[], reasons text[])
RETURNS TABLE (ord integer, fence text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := now_();
    locked integer[];
    tids tid[];
BEGIN
    SELECT f.ords, f.tids INTO locked, tids FROM fence(tasks, tokens) f;

    PERFORM note(w.week, w.task, u.how, w.phase, w.attempt, u.reason)
    FROM unnest(hows, reasons) WITH ORDINALITY u (how, reason, ord)
    JOIN unnest(locked, tids) l (ord, tid) ON l.ord = u.ord
    JOIN work w ON w.ctid = l.tid
    WHERE u.how IN ('retry', 'crash', 'unknown', 'undo');

    PERFORM intents_drop(tasks, tokens, never.ords, never.phases)
    FROM (SELECT array_agg(l.ord) AS ords, array_agg(w.phase) AS phases
          FROM unnest(locked, tids) l (ord, tid) JOIN work w ON w.ctid = l.tid
          WHERE NOT maybe_sents[l.ord] AND hows[l.ord] <> 'unknown') never;

    UPDATE work w SET token = NULL, incarnation = NULL, progress = NULL, updated = at,
           message = CASE WHEN becomes_paused(w.cancel, w.park, w.pause, w.phase, u.how) THEN NULL
                          ELSE u.reason END,
           -- Also of one that becomes unknown: settled, it is paused.
           pause = CASE WHEN w.park AND NOT w.cancel AND w.phase < 64 THEN w.pause END,
           state = CASE WHEN u.how = 'unknown' THEN 'unknown'
                        -- Undo steps keep to their waits: nobody can ask more of them.
                        WHEN w.cancel AND w.phase < 64 THEN 'ready'
                        WHEN w.park AND w.phase < 64
                            THEN CASE WHEN w.pause IS NULL THEN 'parked' ELSE 'paused' END
                        WHEN u.how = 'unverified' THEN 'unverified'
                        WHEN u.delay_ms > 0 THEN 'scheduled' ELSE 'ready' END,
           due = CASE WHEN w.phase >= 64 THEN at + ms(u.delay_ms) WHEN w.cancel THEN at
                      WHEN w.park THEN at + park_ttl(w.queue) ELSE at + ms(u.delay_ms) END,
           park = false,
           phase = CASE u.how WHEN 'undo' THEN next_undo(w.week, w.task, w.queue, 63)
                              ELSE w.phase END,
           attempt = CASE WHEN u.how IN ('retry', 'unknown') THEN w.attempt WHEN u.how = 'undo' THEN 0
                          ELSE w.attempt - 1 END,
           -- Crashes on the way there do not count against the way back.
           crashes = CASE u.how WHEN 'crash' THEN w.crashes + 1 WHEN 'undo' THEN 0 ELSE w.crashes END,
           sent = CASE WHEN u.how = 'undo' THEN NULL WHEN u.maybe_sent THEN at ELSE w.sent END,
           -- A first attempt that was handed back unsent leaves the next one provably the first.
           first_try = CASE WHEN u.how = 'undo' THEN NULL
                            WHEN u.how = 'back' AND NOT u.maybe_sent AND w.attempt = 1
                                 AND w.crashes = 0 AND w.sent IS NULL THEN NULL
                            ELSE w.first_try END
    FROM unnest(hows, delays_ms, maybe_sents, reasons) WITH ORDINALITY
         u (how, delay_ms, maybe_sent, reason, ord)
    JOIN unnest(locked, tids) l (ord, tid) ON l.ord = u.ord
    WHERE w.ctid = l.tid;

    RETURN QUERY SELECT i, CASE WHEN i = ANY (coalesce(locked, '{}')) THEN 'held' ELSE 'lost' END
                 FROM generate_subscripts(tasks, 1) i;
END $$;

-- Promises an artifact of a phase that runs under this claim; 'lost': fenced out. A later attempt may write
-- it anew, as nothing refers to it before the recovery point stands.
-- Locks the work row.
-- Twice: as once.
CREATE OR REPLACE FUNCTION artifact_put(week integer, task bytea, token uuid, phase integer,
                                        name text, media_type text, content bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM work w WHERE w.task = artifact_put.task AND w.token = artifact_put.token
                            AND w.phase = artifact_put.phase FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    INSERT INTO artifact AS a (week, task, phase, name, media_type, sha256, content, at)
    VALUES (artifact_put.week, artifact_put.task, artifact_put.phase, artifact_put.name,
            artifact_put.media_type, sha256(artifact_put.content), artifact_put.content, now_())
    ON CONFLICT (week, task, phase, name) DO UPDATE
        SET media_type = excluded.media_type, sha256 = excluded.sha256,
            content = excluded.content, at = excluded.at;
    RETURN 'held';
END $$;

-- Promises the artifact of that name of the last phase, up to this one, that made one.
-- Locks nothing.
-- Twice: the same, but where its own phase writes it anew.
CREATE OR REPLACE FUNCTION artifact_get(week integer, task bytea, phase integer, name text)
RETURNS TABLE (media_type text, content bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT a.media_type, a.content FROM artifact a
    WHERE a.week = artifact_get.week AND a.task = artifact_get.task
      AND a.phase <= artifact_get.phase AND a.name = artifact_get.name
    ORDER BY a.phase DESC LIMIT 1;
END $$;

-- Promises a version of a tool with its files, one row a file.
-- Locks nothing.
-- Twice: the same for ever.
CREATE OR REPLACE FUNCTION tool_files(tool integer)
RETURNS TABLE (name text, version text, doc text, path text, executable boolean, content bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT t.name, t.version, t.doc, f.path, f.mode & 73 <> 0, f.content
    FROM holdfast.tool t JOIN tool_file f ON f.tool = t.tool
    WHERE t.tool = tool_files.tool ORDER BY f.path
$$;

-- Promises the versions that a worker should serve: the current ones, and those of which tasks wait.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION versions() RETURNS SETOF integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
    SELECT t.tool FROM holdfast.tool t
    WHERE t.current OR EXISTS (SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'ready')
                    OR EXISTS (SELECT FROM work w WHERE w.queue = t.tool AND w.state = 'scheduled')
    ORDER BY t.tool
$$;

-- Promises the cheap look before a sql phase (rule 7): 'held', 'done' (the recovery point is ours, its
-- COMMIT's answer was lost), 'adopted' (another's), 'lost'.
-- Locks nothing.
-- Twice: as it is by then.
CREATE OR REPLACE FUNCTION sql_check(week integer, task bytea, token uuid, place integer)
RETURNS TABLE (fence text, wish integer, state bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT CASE WHEN s.token = sql_check.token THEN 'done'
                WHEN w.task IS NULL THEN 'lost'
                WHEN s.place IS NOT NULL THEN 'adopted' ELSE 'held' END,
           coalesce(wish(w.cancel, w.park), 0), s.state
    FROM (SELECT 1) one
    LEFT JOIN work w ON w.task = sql_check.task AND w.token = sql_check.token
    LEFT JOIN step s ON s.week = sql_check.week AND s.task = sql_check.task
                    AND s.place = sql_check.place;
END $$;

-- Promises the raising fence, last before COMMIT: a stale claim takes the tool's changes back with it, and
-- so does a recovery point that stands, though it be our own: a flight whose connection was lost may still
-- arrive, when the phase has been run again under the same claim.
-- Locks the work row, before it looks.
-- Twice: an error, and the caller's transaction is undone.
CREATE OR REPLACE FUNCTION sql_fence(week integer, task bytea, token uuid, place integer,
    phase integer, name text, state bytea, attempt integer, took_ms bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer record;
BEGIN
    PERFORM 1 FROM work w WHERE w.task = sql_fence.task AND w.token = sql_fence.token
    FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM step s WHERE s.week = sql_fence.week AND s.task = sql_fence.task
                                    AND s.place = sql_fence.place) THEN
        RAISE EXCEPTION 'the recovery point stands already' USING ERRCODE = 'HF002';
    END IF;
    SELECT * INTO answer FROM step(sql_fence.week, ARRAY[sql_fence.task], ARRAY[sql_fence.token],
        ARRAY['recovery_point'], ARRAY[sql_fence.place], ARRAY[sql_fence.phase],
        ARRAY[sql_fence.name], ARRAY[sql_fence.state], ARRAY[NULL::text], ARRAY[NULL::text],
        ARRAY[sql_fence.attempt], ARRAY[sql_fence.took_ms]);
    IF answer.fence = 'lost' THEN
        RAISE EXCEPTION 'the claim is lost' USING ERRCODE = 'HF001';
    ELSIF answer.fence = 'adopted' THEN
        RAISE EXCEPTION 'the recovery point stands already' USING ERRCODE = 'HF002';
    END IF;
    RETURN answer.wish;
END $$;
