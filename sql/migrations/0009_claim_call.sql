-- The number of the last claim call that each incarnation's claims were given for. A table of its own:
-- beats write the row in `worker`, and may not wait for a claim's commit.
-- Locks: none that matter, the table is new.
CREATE TABLE claim_call (
    incarnation  uuid PRIMARY KEY,
    number       bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
