-- PLANT_no_fence
-- Writes are not fenced: the claim's token is not compared.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.fence'::regproc);
    planted text := replace(body, 'x.task = u.task AND x.token = u.token', 'x.task = u.task');
BEGIN
    IF planted = body THEN
        RAISE EXCEPTION 'nothing to plant in fence';
    END IF;
    EXECUTE planted;
END $plant$;
