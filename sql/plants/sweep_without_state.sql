-- PLANT_sweep_without_state
-- The sweep removes by age alone, whether a task has ended or not.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.sweep'::regproc);
    planted text := replace(replace(body, 'FROM step s
        JOIN holdfast.task t ON t.week = sweep.week AND t.task = s.task', 'FROM holdfast.task t'),
        'WHERE s.week = sweep.week AND s.place = 2147483647
          AND s.at + ms(t.result_ttl_ms) < now_() LIMIT most',
        'WHERE t.week = sweep.week AND t.accepted + ms(t.result_ttl_ms) < now_() LIMIT most');
BEGIN
    IF planted = body THEN
        RAISE EXCEPTION 'nothing to plant in sweep';
    END IF;
    EXECUTE planted;
END $plant$;
