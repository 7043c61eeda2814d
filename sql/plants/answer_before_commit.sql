-- PLANT_answer_before_commit
-- A call is answered before its commit is on the disk: a crash of the store forgets it.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.accept_bounded'::regproc);
    planted text := regexp_replace(body, E'\nBEGIN\n',
        E'\nBEGIN\n    PERFORM set_config(''synchronous_commit'', ''off'', true);\n');
BEGIN
    IF planted = body THEN
        RAISE EXCEPTION 'nothing to plant in accept';
    END IF;
    EXECUTE planted;
END $plant$;
