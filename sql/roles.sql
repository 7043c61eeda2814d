-- The roles, before anything else. Safe to run again, and by two sessions at once (the migration
-- lock is held). holdfast_owner owns the schema and logs in never; the API and worker roles may
-- execute their functions and touch no table; holdfast_sql runs the SQL of tools. People who may read the
-- views are made members of holdfast_reader.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['holdfast_owner', 'holdfast_api', 'holdfast_worker',
                                'holdfast_sql', 'holdfast_maintain', 'holdfast_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I %s', role,
                           CASE WHEN role IN ('holdfast_owner', 'holdfast_reader') THEN 'NOLOGIN'
                                ELSE 'LOGIN' END);
        END IF;
    END LOOP;
END $$;

GRANT holdfast_owner, pg_signal_backend, pg_read_all_stats TO holdfast_maintain;
ALTER ROLE holdfast_maintain SET lock_timeout = '2s';
ALTER ROLE holdfast_maintain SET search_path = holdfast;

-- Poolers refuse start-up options, so the time-outs belong to the roles (rule 12).
DO $$
DECLARE
    role text;
BEGIN
    -- A client that went without a word is noticed, also while an answer is sent to it: until then
    -- its backend holds what it has locked. Over TCP; a socket file needs none.
    FOREACH role IN ARRAY ARRAY['holdfast_api', 'holdfast_worker', 'holdfast_sql',
                                'holdfast_maintain'] LOOP
        EXECUTE format('ALTER ROLE %I SET tcp_user_timeout = %L', role, '5s');
        EXECUTE format('ALTER ROLE %I SET tcp_keepalives_idle = %L', role, '5s');
        EXECUTE format('ALTER ROLE %I SET tcp_keepalives_interval = %L', role, '1s');
        EXECUTE format('ALTER ROLE %I SET tcp_keepalives_count = 3', role);
    END LOOP;
END $$;
ALTER ROLE holdfast_api SET idle_in_transaction_session_timeout = '5s';
ALTER ROLE holdfast_api SET statement_timeout = '10s';
ALTER ROLE holdfast_worker SET idle_in_transaction_session_timeout = '5s';
ALTER ROLE holdfast_worker SET statement_timeout = '30s';
-- What a tool's role may do, only SET ROLE gives.
ALTER ROLE holdfast_sql NOINHERIT;
ALTER ROLE holdfast_sql SET idle_in_transaction_session_timeout = '5s';
ALTER ROLE holdfast_sql SET statement_timeout = '30s';

CREATE SCHEMA IF NOT EXISTS holdfast AUTHORIZATION holdfast_owner;
GRANT USAGE ON SCHEMA holdfast TO holdfast_api, holdfast_worker, holdfast_sql, holdfast_reader;
