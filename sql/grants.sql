-- Who may execute what; after the functions, each time. Nothing is public.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
GRANT EXECUTE ON FUNCTION barrier, wake_async TO holdfast_api, holdfast_worker;
GRANT EXECUTE ON FUNCTION store_now, restore_ask TO holdfast_api, holdfast_worker, holdfast_sql;
GRANT EXECUTE ON FUNCTION principal_owner, catalog, accept, accept_call, accept_bounded, intent_window, poll,
    poll_asking, poll_task, answer, find, cancel, attach, detach,
    beat_async, leave, shelf, artifact_of TO holdfast_api;
GRANT EXECUTE ON FUNCTION beat_async, leave, claim, step, finish, release, artifact_put,
    artifact_get, intent_put, ask, tool_files, versions TO holdfast_worker;
GRANT EXECUTE ON FUNCTION barrier, sql_check, sql_fence TO holdfast_sql;
