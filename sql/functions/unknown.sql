-- What may have happened and nobody could tell: the settling of unknown outcomes (V7, R2.5).

-- A person says what became of an unknown task, and is named in the audit record. 'done': its phase
-- happened, `state` (msgpack) is what it gave; 'absent': it did not, it is sent anew; 'fail': the
-- task ends failed. Returns what was done, or why not: 'settled', 'missing', 'not_unknown',
-- 'too_early' (absent, asked before the effect must be visible, without force).
-- Locks: the work row. Twice: 'not_unknown'.
CREATE OR REPLACE FUNCTION settle(week integer, task bytea, verdict text, by text, why text,
                                  state bytea, name text, visible_within_ms bigint, force boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = holdfast, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    w record;
BEGIN
    SELECT x.* INTO w FROM work x WHERE x.task = settle.task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF w.state <> 'unknown' THEN
        RETURN 'not_unknown';
    END IF;
    IF verdict = 'absent' AND NOT force
       AND now_() < coalesce(w.sent, w.updated) + ms(visible_within_ms) THEN
        RETURN 'too_early';
    END IF;
    INSERT INTO audit (at, act, task, by, detail)
    VALUES (now_(), 'settle ' || verdict, settle.task, settle.by,
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
        INSERT INTO step (week, task, place, kind, name, state, answer, attempt, hash, at)
        VALUES (settle.week, settle.task, w.phase * 65536 + 65535, 'recovery_point', settle.name,
                settle.state, 'settled by ' || settle.by, w.attempt, sha256(settle.state), now_());
    END IF;
    UPDATE work x SET state = 'ready', due = now_(), message = NULL, progress = NULL,
        phase = w.phase + CASE verdict WHEN 'done' THEN 1 ELSE 0 END,
        attempt = 0, first_try = NULL, sent = NULL, updated = now_()
    WHERE x.task = settle.task;
    RETURN 'settled';
END $$;
