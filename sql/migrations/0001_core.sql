-- The tables. History is append-only and partitioned by week; churn lives in `work` alone.
-- Locks: none that matter, the schema is new. All access goes through functions, see functions/.
-- A week is the number of whole weeks since 1970 of a task's own database time, so a task ID
-- names its partition.

CREATE TABLE cluster (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    number       smallint NOT NULL DEFAULT 1,               -- byte 1 of every task ID
    incarnation  uuid NOT NULL DEFAULT gen_random_uuid()    -- changes only on restore --copy
);
INSERT INTO cluster DEFAULT VALUES;

CREATE TABLE principal (
    owner    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    issuer   text NOT NULL,
    subject  text NOT NULL,
    tenant   text NOT NULL,
    epoch    integer NOT NULL DEFAULT 0,
    UNIQUE (issuer, subject, tenant)
);

-- One row a version; a running task stays with its version. The number is also its queue.
CREATE TABLE tool (
    tool              integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL,
    version           text NOT NULL CHECK (version ~ '^[0-9a-f]{64}$'),
    doc               text NOT NULL,                        -- tool.json as applied
    result_ttl_ms     bigint NOT NULL CHECK (result_ttl_ms > 0),
    tombstone_ttl_ms  bigint NOT NULL CHECK (tombstone_ttl_ms >= 0),
    deadline_ms       bigint NOT NULL CHECK (deadline_ms > 0),
    park_ttl_ms       bigint NOT NULL DEFAULT 86400000 CHECK (park_ttl_ms > 0),
    phases            integer NOT NULL CHECK (phases > 0),
    crash_limit       integer NOT NULL CHECK (crash_limit > 0),
    current           boolean NOT NULL DEFAULT true,        -- the version that new calls get
    applied           timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (name, version)
);
CREATE UNIQUE INDEX tool_current ON tool (name) WHERE current;

CREATE TABLE tool_file (
    tool     integer NOT NULL REFERENCES tool,
    path     text NOT NULL,
    mode     integer NOT NULL,
    content  bytea NOT NULL,
    PRIMARY KEY (tool, path)
);

-- The uniqueness authority (V1), and later the tombstone.
CREATE TABLE effect (
    digest           bytea NOT NULL CHECK (octet_length(digest) = 16),
    task             bytea NOT NULL CHECK (octet_length(task) = 24),
    fingerprint      bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    tool             integer NOT NULL,
    accepted         timestamptz NOT NULL,
    tombstone_until  timestamptz,                           -- set when the task is removed
    PRIMARY KEY (digest)
) PARTITION BY HASH (digest);

CREATE TABLE week (
    week   integer PRIMARY KEY,
    state  text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closing'))
);

CREATE TABLE task (
    week         integer NOT NULL,
    task         bytea NOT NULL CHECK (octet_length(task) = 24),
    owner        bigint NOT NULL,
    tool         integer NOT NULL,
    effect_id    text NOT NULL,
    digest       bytea NOT NULL,
    fingerprint  bytea NOT NULL,
    arguments    text NOT NULL,                             -- the client's own bytes
    accepted     timestamptz NOT NULL,
    deadline     timestamptz NOT NULL,
    trace        text,
    key_version  smallint NOT NULL,
    incarnation  uuid NOT NULL,                             -- the cluster's, for derived keys
    result_ttl_ms  bigint NOT NULL,                         -- the version's at acceptance
    retry_of     bytea,
    PRIMARY KEY (week, task)
) PARTITION BY RANGE (week);
ALTER TABLE task ALTER COLUMN arguments SET STORAGE EXTENDED;

-- Recovery points, checkpoints and the outcome. Who commits a place first defines it (V3).
-- Phase p (from 0) has checkpoints at p * 65536 + 1 …, its recovery point at p * 65536 + 65535;
-- the outcome is at 2147483647.
CREATE TABLE step (
    week         integer NOT NULL,
    task         bytea NOT NULL,
    place        integer NOT NULL CHECK (place > 0),
    kind         text NOT NULL CHECK (kind IN ('recovery_point', 'checkpoint', 'outcome')),
    name         text NOT NULL,          -- of the phase or checkpoint; the outcome's state
    state        bytea,                  -- msgpack; null in an outcome
    result       text,                   -- outcome completed: the stored result, JSON
    error        text,                   -- outcome failed: JSON-RPC error object, JSON
    message      text,                   -- outcome: what to tell a person
    derived_key  text,
    answer       text,                   -- of downstream or the tool, for a person
    attempt      integer NOT NULL,
    generation   integer NOT NULL DEFAULT 0,
    token        uuid,                   -- the claim that wrote it; null: written by the store
    hash         bytea NOT NULL,         -- SHA-256 of state, result and error
    started      timestamptz,
    at           timestamptz NOT NULL,
    PRIMARY KEY (week, task, place)
) PARTITION BY RANGE (week);

-- What happened to a task beside its steps: attempts that failed, crashes, cancels. For people.
CREATE TABLE event (
    week     integer NOT NULL,
    task     bytea NOT NULL,
    place    integer NOT NULL CHECK (place > 0),            -- without gaps, in order
    kind     text NOT NULL,                                 -- 'retry', 'crash', 'cancel_asked', …
    phase    integer NOT NULL,
    attempt  integer NOT NULL,
    text     text,
    at       timestamptz NOT NULL,
    PRIMARY KEY (week, task, place)
) PARTITION BY RANGE (week);

-- Bytes too large for a state; belongs to the phase that made it.
CREATE TABLE artifact (
    week        integer NOT NULL,
    task        bytea NOT NULL,
    phase       integer NOT NULL,
    name        text NOT NULL,
    media_type  text NOT NULL,
    sha256      bytea NOT NULL,
    content     bytea NOT NULL,
    at          timestamptz NOT NULL,
    PRIMARY KEY (week, task, phase, name)
) PARTITION BY RANGE (week);
ALTER TABLE artifact ALTER COLUMN content SET STORAGE EXTERNAL;

-- The only table that churns. A row exists while the task is not terminal. What a phase changes
-- (phase, attempt, crashes, first_try, sent, progress, message) stands in no index and no
-- predicate, so that those updates are HOT.
CREATE TABLE work (
    task         bytea PRIMARY KEY CHECK (octet_length(task) = 24),
    week         integer NOT NULL,
    owner        bigint NOT NULL,
    queue        integer NOT NULL,                          -- the tool's version
    state        text NOT NULL CHECK (state IN ('ready', 'scheduled', 'running', 'waiting',
                     'paused', 'parked', 'unverified', 'unknown')),
    due          timestamptz NOT NULL,
    deadline     timestamptz NOT NULL,
    token        uuid,                                      -- the claim
    incarnation  uuid,                                      -- the worker's that holds it
    phase        integer NOT NULL DEFAULT 0,                -- the next to run
    attempt      integer NOT NULL DEFAULT 0,                -- of that phase, as counted at claims
    crashes      integer NOT NULL DEFAULT 0,                -- of the task
    first_try    timestamptz,                               -- of that phase
    sent         timestamptz,                               -- last possible send of that phase
    cancel       boolean NOT NULL DEFAULT false,            -- wishes to whoever runs it
    park         boolean NOT NULL DEFAULT false,
    held         boolean NOT NULL DEFAULT false,            -- a task client has the handle
    attached     uuid,                                      -- the last plain call that joined:
    attached_no  bigint,                                    -- API incarnation and its number
    progress     real,
    message      text,
    updated      timestamptz NOT NULL,
    CHECK ((state = 'running') = (token IS NOT NULL)),
    CHECK ((token IS NULL) = (incarnation IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_ready ON work (queue, due) WHERE state = 'ready';
CREATE INDEX work_incarnation ON work (incarnation) WHERE incarnation IS NOT NULL;
CREATE INDEX work_later ON work (state, due) WHERE state IN ('scheduled', 'parked');
CREATE INDEX work_attached ON work (attached) WHERE attached IS NOT NULL;
CREATE INDEX work_deadline ON work (deadline);

-- One row a process incarnation. `beat` is a counter: death is a counter that stands still
-- between two looks on the reaper's own clock; no stored time is compared.
CREATE TABLE worker (
    incarnation  uuid PRIMARY KEY,
    role         text NOT NULL CHECK (role IN ('api', 'worker', 'maintain')),
    beat         bigint NOT NULL DEFAULT 1,
    capacity     integer NOT NULL DEFAULT 0,
    running      integer NOT NULL DEFAULT 0,
    started      timestamptz NOT NULL,
    seen         timestamptz NOT NULL                       -- for people only
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The one maintenance lease.
CREATE TABLE lease (
    name         text PRIMARY KEY,
    incarnation  uuid NOT NULL,
    until        timestamptz NOT NULL
);

CREATE TABLE audit (
    at      timestamptz NOT NULL,
    act     text NOT NULL,
    task    bytea,
    by      text NOT NULL,
    detail  text NOT NULL
);

DO $$
BEGIN
    FOR i IN 0..15 LOOP
        EXECUTE format('CREATE TABLE effect_%s PARTITION OF effect FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
    END LOOP;
END $$;
