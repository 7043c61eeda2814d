-- PLANT_effect_before_hash
-- The effect is committed before the hash of its arguments: whoever repeats first fills it in.
DO $plant$
DECLARE
    body text := pg_get_functiondef('holdfast.accept_bounded'::regproc);
    planted text := replace(body, 'i.new_task, i.fingerprint, i.tool, at FROM input',
                            'i.new_task, decode(repeat(''00'', 32), ''hex''), i.tool, at FROM input');
    repeats text := pg_get_functiondef('holdfast.accept_repeats'::regproc);
    planted_repeats text := regexp_replace(repeats, E'\nBEGIN\n', E'\nBEGIN
    UPDATE effect e SET fingerprint = u.fingerprint
    FROM unnest(digests, fingerprints) WITH ORDINALITY u (digest, fingerprint, ord)
    WHERE u.ord = ANY (ords) AND e.digest = u.digest
      AND e.fingerprint = decode(repeat(''00'', 32), ''hex'');\n');
BEGIN
    IF planted = body OR planted_repeats = repeats THEN
        RAISE EXCEPTION 'nothing to plant in accept';
    END IF;
    EXECUTE planted;
    EXECUTE planted_repeats;
END $plant$;
