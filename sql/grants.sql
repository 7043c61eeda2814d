-- Who may execute what; after the functions, each time. Nothing is public.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
GRANT EXECUTE ON FUNCTION barrier, keys_admit, wake_async TO holdfast_api, holdfast_worker;
GRANT EXECUTE ON FUNCTION store_now, restore_ask TO holdfast_api, holdfast_worker, holdfast_sql;
GRANT EXECUTE ON FUNCTION principal_owner, accept_call, accept_bounded, intent_window, poll_asking,
    poll_task, answer, find, cancel, attach, detach,
    beat_async, leave, shelf, artifact_of TO holdfast_api;
GRANT EXECUTE ON FUNCTION beat_async, leave, claim, step, finish, release, artifact_put,
    artifact_get, intent_put, ask, tool_files, versions TO holdfast_worker;
GRANT EXECUTE ON FUNCTION barrier, sql_check, sql_fence TO holdfast_sql;
-- A view's tables are read by its owner's right, but its functions are called by who reads.
GRANT SELECT ON tasks, steps, waiting TO holdfast_reader;
GRANT EXECUTE ON FUNCTION tasks, steps, waiting, task_id, task_of, ms_of_task, week_of_task, now_, phase_name,
    class_of TO holdfast_reader;
