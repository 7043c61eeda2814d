"""The story of one task in a run, for whoever reads a violation: what its client was told, what its
programs noted, what the downstream was asked, and what the store keeps of it, by time."""

import json

import rig

LINES_MAX = 60


def tell(stack, handle, effect_id):
    """Prints it."""
    lines = []
    for line in rig.read_jsonl(stack.folder / "journal.jsonl"):
        # The same effect ID may be another owner's, too.
        ours = line["effect_id"] == effect_id and line["task"] is None and \
            line.get("handle", handle) == handle
        if line["task"] == handle or ours:
            lines.append((line["at"], "client", {name: value for name, value in line.items()
                                                 if name not in ("at", "task")}))
    for line in stack.run_log():
        if line["task"] == handle:
            lines.append((line["at"], "program", {name: line[name] for name in
                                                  ("phase", "what", "attempt", "parent", "key")}))
    for line in stack.requests():
        if handle in (line.get("body") or ""):
            lines.append((rig.seconds_of(line["at"]), "downstream", {name: line[name] for name in
                                                            ("path", "outcome", "key", "body")}))
    task = rig.task_bytes(handle)
    for name, columns in (("step", "place, kind, name, attempt, message, error"),
                          ("event", "kind, phase, attempt, text")):
        for at, *row in stack.query(f"SELECT extract(epoch FROM at)::float8, {columns} "
                                    f"FROM holdfast.{name} WHERE task = %s", (task,)):
            lines.append((at, name, row))
    for row in stack.query("SELECT extract(epoch FROM updated)::float8, state, phase, attempt,"
                           " crashes, sent, cancel, message FROM holdfast.work WHERE task = %s",
                           (task,)):
        lines.append((row[0], "work", row[1:]))
    print(f"--- {handle} ({effect_id})", flush=True)
    for at, who, what in sorted(lines, key=lambda line: line[0])[-LINES_MAX:]:
        print(f"  {at:.3f} {who:10s} {json.dumps(what, default=str)}", flush=True)
