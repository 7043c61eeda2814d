-- What may have happened: intents before sending, and the settling of what nobody could tell (V7,
-- R2.5).

-- Promises "about to send" for an unsafe phase, durable when this has committed. 'held', or 'lost': fenced
-- out.
-- Locks the work row.
-- Twice: the same.
CREATE OR REPLACE FUNCTION intent_put(week integer, task bytea, token uuid, phase integer, name text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM work w WHERE w.task = intent_put.task AND w.token = intent_put.token
                            AND w.phase = intent_put.phase FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'lost';
    END IF;
    INSERT INTO intent (week, task, phase, token, name, at)
    VALUES (intent_put.week, intent_put.task, intent_put.phase, intent_put.token, intent_put.name,
            now_())
    ON CONFLICT DO NOTHING;
    RETURN 'held';
END $$;

-- Promises that the intents of these claims go, by ordinal, whose request provably never left.
-- Locks nothing more: the caller holds the work rows.
-- Twice: as once.
CREATE OR REPLACE FUNCTION intents_drop(tasks bytea[], tokens uuid[], ords integer[],
                                        phases integer[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    one_week integer;
BEGIN
    FOR one_week IN SELECT DISTINCT week_of_task(tasks[o]) FROM unnest(ords) o LOOP
        DELETE FROM intent i USING unnest(ords, phases) o (ord, phase)
        WHERE i.week = one_week AND i.task = tasks[o.ord] AND i.phase = o.phase
          AND i.token = tokens[o.ord];
    END LOOP;
END $$;

-- Promises that a task is stopped for good (rule 9): with nothing to undo its outcome is written, else a
-- worker takes it and runs the undo steps. True: a worker has to.
-- Locks nothing more: the caller holds the work row.
-- Twice: as once where a worker has to; not called where the task has ended.
CREATE OR REPLACE FUNCTION stop_task(week integer, task bytea, why text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    w record;
BEGIN
    SELECT x.phase, x.attempt, x.sent, v.undos INTO w
    FROM work x JOIN tool v ON v.tool = x.queue WHERE x.task = stop_task.task;
    IF w.sent IS NULL AND w.phase < 64
       AND NOT EXISTS (SELECT FROM step s
                       WHERE s.week = stop_task.week AND s.task = stop_task.task
                         AND s.kind = 'recovery_point' AND s.place / 65536 = ANY (w.undos)) THEN
        PERFORM end_task(stop_task.week, stop_task.task, 'cancelled', NULL,
                         why || '; ' || phases_done(stop_task.week, stop_task.task), w.attempt);
        RETURN false;
    END IF;
    UPDATE work x SET cancel = true, park = false, pause = NULL, state = 'ready', due = now_(),
        updated = now_()
    WHERE x.task = stop_task.task;
    RETURN true;
END $$;

-- Promises what a person says that became of an unknown task, who is named in the audit record. 'done': its
-- phase happened, `state` (msgpack) is what it gave; 'absent': it did not, it is sent anew; 'fail': the task
-- ends failed. Behind the first two it goes on, with no attempt and no crash counted, or is paused where it
-- was so. They give back to its deadline the time that it stood unknown, in which nobody could have been
-- faster: it has left what it had when it became so, nothing where it was late by then, and never more than
-- a new task. The time of an intent that goes stays told, by an event. Returns what was done, or why not:
-- 'settled', 'missing', 'not_unknown', 'too_early' (absent, asked before the effect must be visible, without
-- force).
-- Locks the work row; then the task row, by its update.
-- Twice: 'not_unknown', or 'missing' where that ended it.
CREATE OR REPLACE FUNCTION settle(week integer, task bytea, verdict text, by text, why text,
                                  state bytea, name text, visible_within_ms bigint, force boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := now_();
    w record;
    intended timestamptz;
    new_deadline timestamptz;
    next_phase integer;
    stays boolean;
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = settle.task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF w.state <> 'unknown' THEN
        RETURN 'not_unknown';
    END IF;
    IF verdict = 'absent' AND NOT force
       AND now < coalesce(w.sent, w.updated) + ms(visible_within_ms) THEN
        RETURN 'too_early';
    END IF;
    PERFORM audit_put('settle ' || verdict, settle.task, settle.by,
                      settle.why || CASE WHEN force THEN ' (forced)' ELSE '' END);
    PERFORM note(settle.week, settle.task, 'settled', w.phase, w.attempt,
                 verdict || ' by ' || settle.by || ': ' || settle.why);
    IF verdict = 'fail' THEN
        PERFORM end_task(settle.week, settle.task, 'failed',
            json_build_object('code', 1500, 'message', 'settled as failed: ' || settle.why, 'data',
                json_build_object('type', 'outcome_unknown', 'executed', 'maybe'))::text,
            'settled as failed by ' || settle.by || ': ' || settle.why, w.attempt);
        RETURN 'settled';
    ELSIF verdict = 'done' THEN
        INSERT INTO step (week, task, place, kind, name, state, answer, attempt, generation, hash, at)
        VALUES (settle.week, settle.task, w.phase * 65536 + 65535, 'recovery_point', settle.name,
                settle.state, 'settled by ' || settle.by, w.attempt,
                coalesce(w.generations[w.phase + 1], 0), sha256(settle.state), now);
    END IF;
    -- It goes, so that the next claim sends; when its request may have left stays told, as an event.
    WITH gone AS (DELETE FROM intent i
                  WHERE i.week = settle.week AND i.task = settle.task AND i.phase = w.phase
                  RETURNING i.at)
    SELECT min(g.at) INTO intended FROM gone g;
    IF intended IS NOT NULL THEN
        PERFORM note_of(settle.week, settle.task, 'intent', w.phase, w.attempt, NULL, intended);
    END IF;
    -- That it was accepted counts no more; see STEP_ACCEPTED in runtime/store.h.
    DELETE FROM step s WHERE s.week = settle.week AND s.task = settle.task
                         AND s.place = w.phase * 65536 + 65533 AND verdict = 'absent';
    -- What makes a task unknown leaves an event in the same commit. The bounds are for a clock that was set.
    new_deadline := greatest(w.deadline, (
        SELECT least(w.deadline + (now - e.at), now + ms(v.deadline_ms))
        FROM event e JOIN tool v ON v.tool = w.queue
        WHERE e.week = settle.week AND e.task = settle.task AND e.kind = 'unknown'
        ORDER BY e.place DESC LIMIT 1));
    UPDATE holdfast.task t SET deadline = new_deadline
    WHERE t.week = settle.week AND t.task = settle.task;
    next_phase := CASE WHEN verdict <> 'done' THEN w.phase WHEN w.phase < 64 THEN w.phase + 1
                       ELSE next_undo(settle.week, settle.task, w.queue, w.phase) END;
    stays := coalesce(w.pause = 'task', false) AND NOT w.cancel AND next_phase < 64;
    UPDATE work x SET state = CASE WHEN stays THEN 'paused' ELSE 'ready' END,
        pause = CASE WHEN stays THEN 'task' END,
        due = now, deadline = new_deadline, message = NULL, progress = NULL, phase = next_phase,
        attempt = 0, crashes = 0, updated = now,
        -- What follows a phase that happened may have followed it in a lost tail as well.
        first_try = CASE WHEN verdict = 'done' THEN w.tail_from END,
        sent = CASE WHEN verdict = 'done' THEN w.tail_to END,
        tail_below = CASE WHEN verdict = 'absent' THEN w.phase ELSE w.tail_below END
    WHERE x.task = settle.task;
    RETURN 'settled';
END $$;
