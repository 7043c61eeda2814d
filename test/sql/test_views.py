"""The views for people: their columns are a promise and pinned here; a reader role gets them and no
table; they tell the truth about a task in each state; of one task, or of one effect among a million, they
read no more than they must."""

import json
import os
import re
import subprocess

import psycopg

from sql_rig import Bench, Store, new_incarnation, rig, week_of
from rig import check, equal

counts = {"states": 0, "refused": 0, "rows": 0}
ROWS = 1_000_000
ROWS_READ_MAX = 200  # of one table, walking it, with so many in it
T, TS, I, L = "text", "timestamp with time zone", "integer", "bigint"
COLUMNS = {
    "tasks": [("task_id", T), ("tool", T), ("version", T), ("tenant", T), ("subject", T), ("effect_id", T),
              ("state", T), ("phase", T), ("attempt", I), ("crashes", I), ("accepted", TS),
              ("deadline", TS), ("ended", TS), ("kept_until", TS), ("message", T),
              ("cancel_asked", "boolean"), ("worker", "uuid"), ("retry_of", T), ("successor", T),
              ("week", I), ("task", "bytea")],
    "steps": [("task_id", T), ("kind", T), ("phase", T), ("name", T), ("effect_class", T), ("attempt", I),
              ("derived_key", T), ("generation", I), ("answer", T), ("message", T), ("started", TS),
              ("committed", TS), ("took_ms", L), ("state_bytes", I), ("origin", T), ("place", I),
              ("week", I), ("task", "bytea")],
    "waiting": [("task_id", T), ("tool", T), ("tenant", T), ("effect_id", T), ("state", T), ("phase", T),
                ("attempt", I), ("reason", T), ("needs_act", "boolean"), ("why", T), ("since", TS),
                ("due", TS), ("worker", "uuid"), ("accepted", TS), ("deadline", TS), ("week", I),
                ("task", "bytea")],
}
SECRETS = ("arguments", "inputs", "state", "result", "error", "token", "answers", "request")


def ageless(rows):
    """Without the ages that a sentence tells, which go on between two looks."""
    return [[re.sub(r"[\d.]+ s\b", "AGE", cell) if isinstance(cell, str) else cell for cell in row] for row in rows]


class Views(Bench):
    def begin(self):
        super().begin()
        self.phases = [{"name": "pay", "kind": "http", "effect": "keyed", "undo": {"kind": "http"}},
                       {"name": "mail", "kind": "http", "effect": "unsafe"}]
        self.tool = self.new_tool("order", "c" * 64, phases=self.phases)
        self.incarnation = self.new_worker()
        # It serves the tool, as its first claim says.
        equal(self.a.claim(self.incarnation, self.tool), [], "nothing is there yet")
        # Else each sentence about an idle worker would be one about a stalled one, on a slow machine.
        self.a.rows("INSERT INTO lease VALUES ('maintain', %s, now_() + interval '1 day') RETURNING 1",
                    new_incarnation())
        self.a.conn.execute("CREATE ROLE ann LOGIN; GRANT holdfast_reader TO ann")
        self.reader = Store(self.cluster, "ann")
        self.reader.conn.execute("RESET search_path")

    def run_task(self):
        """(its ID in bytes, its claim)."""
        task = self.new_task()
        self.a.beat(self.incarnation)
        claim = self.a.claim(self.incarnation, self.tool)[0]
        equal(claim[0], task, "claimed")
        return task, claim[:2]

    def looks(self, view, task, columns):
        """What ann sees of one task, by both ways, which have to agree."""
        task_id = self.a.one("SELECT task_id(%s)", task)
        by_id = self.reader.rows(f"SELECT {columns} FROM holdfast.{view} WHERE task_id = %s", task_id)
        called = self.reader.rows(f"SELECT {columns} FROM holdfast.{view}(%s)", task_id)
        equal(ageless(called), ageless(by_id), f"{view} is one by both ways")
        return called[0] if len(called) == 1 else called

    def stands(self, task, state, reason, act, *words):
        """In tasks and in waiting, and as `holdfast task why` says it."""
        counts["states"] += 1
        equal(self.looks("tasks", task, "state")[0], state, f"{state} in tasks")
        seen = self.looks("waiting", task, "state, reason, needs_act, why")
        said = subprocess.run([rig.HOLDFAST, "task", "why", self.a.one("SELECT task_id(%s)", task)],
                              env={**os.environ, "HOLDFAST_DSN": self.cluster.dsn()}, text=True,
                              capture_output=True, check=False).stdout
        check(all(word in said for word in words) and said, f"task why says {words}", said)
        if reason is None:
            equal(seen, [], f"{state} waits for nothing")
            return
        equal(tuple(seen[:3]), (state, reason, act), f"{state} in waiting")
        check(seen and all(word in seen[3] for word in words), f"{state} says {words}", seen)


class Tests(Views):
    def columns_are_a_promise(self):
        for view, wanted in COLUMNS.items():
            equal(self.a.rows(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid ="
                " %s::regclass AND attnum > 0 ORDER BY attnum", f"holdfast.{view}"), wanted, f"{view} is stable")
            equal(self.a.rows(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND"
                " col_description(attrelid, attnum) IS NULL", f"holdfast.{view}"), [], f"{view} explains itself")
            check(self.a.one("SELECT obj_description(%s::regclass)", f"holdfast.{view}"), "and as a whole")
            bad = [name for name, _ in wanted if name in SECRETS and (view, name) not in
                   (("tasks", "state"), ("waiting", "state"))]
            equal(bad, [], f"{view} tells no secret")

    def a_reader_reads_views_and_no_table(self):
        relations = [row[0] for row in self.a.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
            " AND relkind IN ('r', 'p', 'v', 'S', 'm') ORDER BY 1")]
        for name in relations:
            readable = name in COLUMNS
            try:
                self.reader.rows(f"SELECT * FROM holdfast.{name} LIMIT 1")
                check(readable, f"a reader reads {name}")
            except psycopg.errors.InsufficientPrivilege:
                check(not readable, f"a reader may not read {name}")
                counts["refused"] += 1
        equal(self.a.rows(
            "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND"
            " has_function_privilege('ann', p.oid, 'EXECUTE') AND (p.prosecdef OR p.proname NOT IN"
            " ('tasks', 'steps', 'waiting', 'task_id', 'task_of', 'ms_of_task', 'week_of_task', 'now_',"
            " 'phase_name', 'class_of'))"), [], "a reader calls nothing else")
        for name in COLUMNS:
            try:
                self.reader.rows(f"DELETE FROM holdfast.{name} RETURNING 1")
                check(False, f"a reader writes {name}")
            except psycopg.Error:
                counts["refused"] += 1

    def open_tasks_say_what_they_wait_for(self):
        task = self.new_task()
        self.stands(task, "ready", "queued", False, "phase pay is due")
        self.a.rows("UPDATE worker SET serves = '{}' RETURNING 1")
        self.stands(task, "ready", "no_worker", True, "no worker serves version cccccccccccc of order")
        self.a.rows("UPDATE worker SET serves = %s RETURNING 1", [self.tool])
        self.a.one("SELECT pause_all('tool', 'order', 'bob', 'audit')")
        self.stands(task, "ready", "paused", True, "all work of the tool order", "bob: audit")
        self.a.one("SELECT resume_all('tool', 'order', 'bob', 'over')")
        self.a.one("SELECT pause_task(%s, 'bob', 'a look')", task)
        self.stands(task, "paused", "paused", True, "it is paused by bob: a look")
        self.a.one("SELECT resume_task(%s, 'bob', 'seen')", task)
        self.a.rows("INSERT INTO tool_limit (name, running, gated) VALUES ('order', 1, true) RETURNING 1")
        self.a.rows("INSERT INTO limit_use VALUES ('order', 'A', %s, 1) RETURNING 1", self.incarnation)
        self.stands(task, "ready", "limit", False, "running 1 of 1 (tool order)")
        self.a.rows("DELETE FROM limit_use RETURNING 1")
        self.a.rows("DELETE FROM tool_limit RETURNING 1")
        self.a.rows("UPDATE cluster SET held = 'a test' RETURNING 1")
        self.stands(task, "ready", "restore", True, "the store stands still (a test)")
        self.a.rows("UPDATE cluster SET held = NULL RETURNING 1")
        self.a.beat(self.incarnation)
        claim = self.a.claim(self.incarnation, self.tool)[0]
        self.stands(task, "running", "running", False, "phase pay, attempt 1", self.incarnation)
        equal(self.looks("tasks", task, "phase, attempt, worker::text, cancel_asked, ended"),
              ("pay", 1, self.incarnation, False, None), "and who runs it")
        # 600.0 s, and as much more as the looks take.
        self.a.rows("UPDATE worker SET seen = now_() - interval '10 minutes' RETURNING 1")
        self.stands(task, "running", "worker_stalls", False, "no beat for 60")
        self.a.beat(self.incarnation)
        self.a.release("retry", claim[:2], delay=3_600_000)
        self.stands(task, "scheduled", "backoff", False, "backs off until", "after attempt 1: why")
        self.a.rows("UPDATE work SET due = now_() WHERE task = %s RETURNING 1", task)
        for crashes in ("1 crash", "2 crashes"):
            claim = self.a.claim(self.incarnation, self.tool)[0]
            self.a.release("crash", claim[:2], delay=3_600_000)
            self.stands(task, "scheduled", "backoff", False, f"from now, after {crashes} of 3: why")
            self.a.rows("UPDATE work SET due = now_() WHERE task = %s RETURNING 1", task)
        self.a.rows("UPDATE work SET due = now_() + interval '1 h' WHERE task = %s RETURNING 1", task)
        for state, reason, act, words in (
                ("unknown", "unknown", True, "holdfast settle"), ("waiting", "input", True, "for input"),
                ("unverified", "unverified", False, "not yet seen"),
                ("parked", "parked", True, "its client hung up")):
            self.a.rows("UPDATE work SET state = %s WHERE task = %s RETURNING 1", state, task)
            self.stands(task, state, reason, act, words)
        self.a.rows("UPDATE work SET state = 'scheduled', message = 'breaker open for http://x: no'"
                    " WHERE task = %s RETURNING 1", task)
        self.stands(task, "scheduled", "breaker", False, "breaker open: http://x:")
        self.clear()
        equal(self.looks("waiting", task, "state"), [], "what is closed waits no more")

    def what_was_broken_off_is_told_where_it_becomes_unknown(self):
        """An unsafe phase whose request may have left; not a keyed one, nor one that was accepted."""
        task, claim = self.run_task()
        self.intend(*claim)
        self.a.release("crash", claim, sent=True)
        why = ("waiting", task, "why")
        check("broken off" not in self.looks(*why)[0], "keyed: it is sent again")
        claim = self.a.claim(self.incarnation, self.tool)[0][:2]
        self.a.step((*claim, 0))
        self.intend(*claim, 1)
        self.a.release("crash", claim, sent=True)
        said = self.looks(*why)[0]
        check("phase mail was broken off" in said, "unsafe: it becomes unknown", said)
        self.a.rows("INSERT INTO step (week, task, place, kind, name, attempt, hash, at) VALUES "
                    "(%s, %s, 131069, 'checkpoint', 'mail', 1, '', now_()) RETURNING 1", week_of(task), task)
        check("broken off" not in self.looks(*why)[0], "accepted: it is looked for")
        self.clear()

    def ended_tasks_say_how(self):
        task, claim = self.run_task()
        equal(self.a.step((*claim, 0)), ["held"], "pay is done")
        self.stands(task, "running", "running", False, "phase mail")
        equal(self.a.finish(claim), ["held"], "finished")
        self.stands(task, "completed", None, None)
        kinds = self.reader.rows("SELECT kind, phase, name, effect_class, attempt, state_bytes, took_ms"
                                 " FROM holdfast.steps(%s)", self.a.one("SELECT task_id(%s)", task))
        equal(kinds, [("recovery_point", "pay", "p0", "keyed", 1, 1, 1),
                      ("outcome", None, "completed", None, 1, None, None)], "its steps in order")
        kept = self.looks("tasks", task, "ended IS NOT NULL, kept_until - ended, phase, crashes")
        equal((kept[0], kept[1].days, kept[2], kept[3]), (True, 7, None, None), "and how long it is kept")
        task = self.new_task()
        self.a.cancel(self.owner, task)
        self.stands(task, "cancelled", None, None)
        task, claim = self.run_task()
        self.a.step((*claim, 0))
        check(self.a.fail(claim), "failed")
        self.stands(task, "failed", None, None)
        equal(self.looks("tasks", task, "message")[0], "because", "and why")
        answer, successor = self.a.retry(task)
        equal(answer, "retried", "it has a successor")
        ids = [self.a.one("SELECT task_id(%s)", one) for one in (task, successor)]
        equal(self.looks("tasks", task, "successor"), (ids[1],), "which the failed one names")
        equal(self.looks("tasks", successor, "retry_of, state, phase"), (ids[0], "ready", "mail"), "and it the other")
        equal(self.looks("steps", successor, "origin, phase, place"), (ids[0], "pay", 65535), "its step is copied")
        self.stands(successor, "ready", "queued", False, "phase mail")
        self.a.rows("UPDATE work SET phase = 127 WHERE task = %s RETURNING 1", successor)
        equal(self.looks("tasks", successor, "phase"), ("undo:pay",), "and undo steps have names")
        self.clear()

    def of_one_task_they_read_little_of_a_million(self):
        self.a.conn.execute("SET enable_seqscan = on")
        self.a.conn.execute(
            "CREATE TEMP TABLE many AS SELECT '\\x01'::bytea || set_byte('\\x00'::bytea, 0, 1) ||"
            " substring(int8send(to_ms(now_())) FROM 3) || uuid_send(gen_random_uuid()) AS task, i"
            f" FROM generate_series(1, {ROWS}) i")
        for sql in (
                "INSERT INTO task (week, task, owner, tool, effect_id, digest, fingerprint, arguments,"
                " accepted, deadline, key_version, incarnation, result_ttl_ms) SELECT week_of_task(m.task),"
                " m.task, %s, %s, 'many-' || i, 'x', 'x', '{}', now_(), now_() + interval '1 day', 1,"
                " gen_random_uuid(), 604800000 FROM many m RETURNING 1",
                "INSERT INTO work (task, week, owner, queue, state, due, deadline, updated) SELECT m.task,"
                " week_of_task(m.task), %s, %s, 'ready', now_(), now_() + interval '1 day', now_() FROM many m"
                " RETURNING 1"):
            counts["rows"] = len(self.a.rows(sql, self.owner, self.tool))
        self.a.conn.execute("ANALYZE task; ANALYZE work; ANALYZE step")
        task_id = self.a.one("SELECT task_id(task) FROM many WHERE i = 4711")

        def walks(node):
            """Scans of one plan that read a whole table, with what they gave."""
            if node["Node Type"] == "Seq Scan" and node["Actual Loops"]:
                read = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
                if read > ROWS_READ_MAX:
                    yield node["Relation Name"].split("_w")[0]
            for child in node.get("Plans", ()):
                yield from walks(child)

        for view in COLUMNS:
            for way, where, allowed in (("task", f"{view}(%s)", set()),
                                        ("task ID", f"{view} WHERE task_id = %s", {"task"}),
                                        ("effect", f"{view} WHERE effect_id = %s", {"task"})):
                if view == "steps" and way != "task":
                    continue
                plan = self.reader.one("EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM holdfast." + where,
                                       "many-4711" if way == "effect" else task_id)[0]
                equal(set(walks(plan["Plan"])) - allowed, set(), f"{view} of one {way} walks nothing more")
                name = f"{view}_{way.replace(' ', '_')}_ms"
                counts[name] = round(plan["Execution Time"], 1)
        equal(self.reader.one("SELECT count(*) FROM holdfast.waiting(%s)", task_id), 1, "and finds it")


if __name__ == "__main__":
    Tests().run()
    rig.finish("views", counts, {"states": 19, "refused": 30, "rows": ROWS})
