-- PLANT_cancel_ignores_claim
-- A cancel writes the outcome although a worker holds the task.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.cancel'::regproc);
    planted text := replace(body, 'IF w.state IN (''running'',', 'IF w.state IN (');
BEGIN
    IF planted = body THEN
        RAISE EXCEPTION 'nothing to plant in cancel';
    END IF;
    EXECUTE planted;
END $plant$;
