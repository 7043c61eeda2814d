"""The tools of the chaos runs: shapes of one, three and eight phases of every kind, one that
reports an error, one that is cancelled, one that asks for a retry, one whose lost answer cannot be
asked for again, one whose result is not kept for long, and those of plain clients, whose answer
window is short. What a phase is, its kind says, and each kind that asks downstream has a downstream
of its own, so that a fault can choose its kind of phase."""

import json
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA_SQL = """CREATE TABLE IF NOT EXISTS done (
    effect_id text NOT NULL, n text NOT NULL, phase text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
"""
# No unique index on purpose: what is done twice is there twice.
PHASE_SQL = """WITH rest AS MATERIALIZED (
    SELECT pg_sleep(coalesce(($1::json ->> 'ms')::float8, 0) / 1000)),
one AS (
    INSERT INTO done (effect_id, n, phase)
    SELECT $1::json ->> 'effect_id', $1::json ->> 'n', '{name}' FROM rest
    RETURNING phase)
SELECT json_build_object('phase', phase)::text FROM one
"""
DAY_MS = 86_400_000
DEADLINE_MS = 3_600_000
RETRIES = {"attempts": 200, "backoff_first_ms": 20, "backoff_max_ms": 300}
# When mail can be read back at the latest; no fault makes it later than SLOW_BEFORE_MS.
VISIBLE_WITHIN_MS = 1_000
SLOW_BEFORE_MS = 300
# A request that is slower than this counts as not answered.
HTTP_TIMEOUT_MS = 1_500
ENV = ["RIG_RUN_LOG", "HOLDFAST_DOWNSTREAM_URL"]

# Tool -> its phases, "KIND NAME", and "UNDO NAME" behind a slash for the kind that takes it back.
SHAPES = {
    "chaos_one": ["keyed post"],
    "chaos_three": ["sql first", "pure pure1", "keyed post"],
    "chaos_eight": ["sql first", "pure pure1", "keyed post", "lookup mail", "sql second",
                    "program key1", "pure pure2", "keyed post2"],
    "chaos_error": ["pure pure1", "keyed post", "pure fail1"],
    "chaos_cancel": ["sql first", "keyed post", "pure slow1", "lookup mail"],
    "chaos_again": ["pure again1", "program key1"],
    "chaos_fragile": ["keyed post"],
    "chaos_brief": ["sql first", "pure slow1", "keyed post"],
    "chaos_plain": ["sql first", "pure slow1", "keyed post", "program key1", "lookup mail"],
    "chaos_onward": ["pure pure1", "keyed post", "pure slow1"],
}
# How often each is called by clients that declare Tasks, and by those that do not.
WEIGHTS = {"chaos_one": 4, "chaos_three": 6, "chaos_eight": 6, "chaos_error": 2,
           "chaos_cancel": 3, "chaos_again": 2, "chaos_fragile": 2, "chaos_brief": 1}
PLAIN_WEIGHTS = {"chaos_plain": 5, "chaos_onward": 2, "chaos_one": 2, "chaos_eight": 1,
                 "chaos_error": 1}
# Effects that nothing protects, and steps that take phases back: the shapes, and how often each is
# called. CHAOS_WITH= (comma-separated) chooses which of them and of their rules take part.
MORE = {
    "unsafe": {"chaos_unsafe": (["pure pure1", "unsafe once"], 2),
               "chaos_unsafe_program": (["sql first", "unsafe_program once1"], 2)},
    "undo": {"chaos_undo": (["keyed post/undo keyed", "program key1/undo keyed",
                             "lookup mail/undo keyed", "pure slow1", "keyed post2/undo keyed"], 4)},
}
WITH = [name for name in os.environ.get("CHAOS_WITH", ",".join(MORE)).split(",") if name]
for _name in WITH:
    for _tool, (_phases, _weight) in MORE[_name].items():
        SHAPES[_tool], WEIGHTS[_tool] = _phases, _weight
# Tools that somebody cancels.
CANCELLED = ("chaos_cancel", "chaos_undo")
# Kinds of phases that ask downstream, and the downstream that each has.
DOWNSTREAMS = {"keyed": "ledger", "lookup": "mail", "program": "program"}
if "unsafe" in WITH:
    DOWNSTREAMS |= {"unsafe": "unsafe", "unsafe_program": "program"}
UNSAFE = ("unsafe", "unsafe_program")
EFFECTFUL = ("keyed", "lookup", "program", *UNSAFE)
ANY_KIND = ("sql", "pure", *EFFECTFUL)
# Plain calls of the tools that have one are told that work still runs after so long.
ANSWER_WINDOWS_MS = {"chaos_plain": 2_500, "chaos_onward": 400, "chaos_eight": 700}
# How long chaos_brief keeps a result; its slow phase is longer.
BRIEF_TTL_MS = 1_000
BRIEF_SLOW_MS = (1_500, 3_500)


def split(text):
    """(kind, name, kind of its undo step or None)"""
    forth, _, back = text.partition("/undo ")
    return (*forth.split(), back or None)


def step_of(tool, phase):
    """The kind of a tool's phase by number: sql, pure, keyed, lookup or program (keyed, too)."""
    phases = SHAPES.get(tool, [])
    return phases[phase].split()[0] if phase < len(phases) else "none"


def names_of(tool, *kinds):
    return [name for kind, name, _ in map(split, SHAPES[tool]) if kind in kinds]


def is_slow(tool):
    """Whether it rests for slow_ms."""
    return any(name.startswith("slow") for name in names_of(tool, "pure"))


def undone_names_of(tool):
    """Names of the phases that have an undo step, in their order."""
    return [name for _, name, undo in map(split, SHAPES[tool]) if undo]


def undo_of(name):
    """Its undo step: a keyed request that says what it takes back."""
    return {"kind": "http", "effect": "keyed", "key_header": "Idempotency-Key",
            "key_ttl_ms": DAY_MS, "request": {
                "method": "POST", "url": "{/conf/ledger}/ledger",
                "json": {"task": {"$from": "/task/id"}, "phase": f"undo:{name}"}}}


def phase_of(kind, name, undo):
    program = {"kind": "program", "command": ["./phase"], "timeout_ms": 20_000, "env": ENV}
    http = {"kind": "http", "timeout_ms": HTTP_TIMEOUT_MS}
    mail = {"request": {"method": "GET", "url": "{/conf/mail}/messages?ref={/key}"},
            "done_when": "/items/0/id", "absent_when_empty": "/items"}
    post = {"method": "POST", "url": "{/conf/ledger}/ledger",
            "json": {"task": {"$from": "/task/id"}, "phase": name}}
    send = {"method": "POST", "url": "{/conf/mail}/send",
            "json": {"ref": {"$from": "/key"}, "link": {"$from": "/task/id"}}}
    once = {**post, "url": "{/conf/unsafe}/ledger"}
    more = {"undo": undo_of(name)} if undo else {}
    return {"name": name, **RETRIES, **more, **{
        "unsafe": {**http, "effect": "unsafe", "request": once},
        "unsafe_program": {**program, "effect": "unsafe"},
        "sql": {"kind": "sql", "file": f"{name}.sql", "effect": "local"},
        "pure": {**program, "effect": "pure"},
        "program": {**program, "effect": "keyed", "key_ttl_ms": DAY_MS},
        "keyed": {**http, "effect": "keyed", "key_header": "Idempotency-Key",
                  "key_ttl_ms": DAY_MS, "request": post},
        "lookup": {**http, "effect": "lookup", "visible_within_ms": VISIBLE_WITHIN_MS,
                   "request": send, "reconcile": mail}}[kind]}


def build(folder, *flags):
    """The tools' program; its path."""
    path = pathlib.Path(folder) / "phase"
    subprocess.run(["gcc", "-std=gnu2x", "-O1", *flags, "-o", path, HERE / "phase.c"], check=True)
    return path


def make(folder, tool, program):
    """Writes the tool's folder; its path."""
    path = pathlib.Path(folder) / tool
    path.mkdir(parents=True)
    phases = [phase_of(*split(text)) for text in SHAPES[tool]]
    more = {}
    if tool in ANSWER_WINDOWS_MS:
        more["answer_window_ms"] = ANSWER_WINDOWS_MS[tool]
    if tool == "chaos_onward":
        more["on_disconnect"] = "continue"
    if tool == "chaos_fragile":
        phases[0]["attempts"] = 1
    if tool == "chaos_brief":
        more["result_ttl_ms"] = BRIEF_TTL_MS
    number = {"type": "integer"}
    manifest = {
        "name": tool, "effect_id": "required",
        "description": "A tool of the chaos runs. A repeat with the same effect_id returns the "
                       "same task and result.",
        "inputSchema": {"type": "object", "required": ["effect_id"], "additionalProperties": False,
                        "properties": {"effect_id": {"type": "string"}, "n": number, "ms": number,
                                       "slow_ms": number}},
        "poll_interval_ms": 50, "deadline_ms": DEADLINE_MS, "crash_limit": 1000, "phases": phases,
        "result": {"text": "done {/task/effect_id}", "structured": {
            "n": {"$from": "/args/n"}, "last": {"$from": f"/state/{phases[-1]['name']}"}}},
        **more}
    (path / "tool.json").write_text(json.dumps(manifest, indent=1))
    if names_of(tool, "sql"):
        (path / "schema.sql").write_text(SCHEMA_SQL)
    for name in names_of(tool, "sql"):
        (path / f"{name}.sql").write_text(PHASE_SQL.format(name=name))
    if names_of(tool, "pure", "program", "unsafe_program"):
        shutil.copy(program, path / "phase")
    return path
