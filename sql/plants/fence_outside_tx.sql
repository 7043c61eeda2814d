-- PLANT_fence_outside_tx
-- The fence is a look, not a lock: what it saw may be over when the write comes.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.fence'::regproc);
    planted text := replace(body, 'OFFSET 0 FOR UPDATE) w;', E'OFFSET 0) w;\n    PERFORM pg_sleep(0.15 * random());');
BEGIN
    IF planted = body THEN
        RAISE EXCEPTION 'nothing to plant in fence';
    END IF;
    EXECUTE planted;
END $plant$;
