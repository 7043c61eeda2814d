-- What goes: functions that only releases before the last one called, or that have another name now.
-- Locks: none that matter. Binaries of version 9 and later go on.
DROP FUNCTION IF EXISTS catalog(bigint);
DROP FUNCTION IF EXISTS poll(integer, bigint[], bytea[]);
DROP FUNCTION IF EXISTS accept(bigint[], integer[], bytea[], text[], bytea[], text[], text[], integer[],
                               uuid[], bigint[], bytea[]);
DROP FUNCTION IF EXISTS phase_effect(text, integer);
