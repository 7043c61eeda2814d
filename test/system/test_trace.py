#!/usr/bin/python3
"""Trace context of a call (A20): with its task, to its phases and downstream, as one trace with a new
span for each attempt; in the log lines of both processes. Baggage goes to the tool's own programs
and no further. What has not the form never was."""

import json
import secrets

import rig
from rig import check, equal, until

counts = {"traced": 0, "spans": 0, "ignored": 0}
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
BAGGAGE = "userId=alice,plan=secret-plan"

PLAIN = """#!/usr/bin/python3
import json, os, sys
json.load(sys.stdin)
print(json.dumps({name: os.environ.get(name) for name in ("TRACEPARENT", "TRACESTATE", "BAGGAGE")}))
"""


def plain_tool():
    return rig.make_tool("plain_trace", [{"name": "see", "kind": "program", "mode": "plain",
                                          "command": ["./run"], "effect": "pure"}],
                         programs={"run": PLAIN}, effect_id="optional",
                         inputSchema={"type": "object", "properties": {"effect_id": rig.TEXT}},
                         result={"text": "seen", "structured": {"env": {"$from": "/state/see"}}})


stack = rig.Stack(workers=1, tools=[rig.probe_tool(), rig.http_tool("deliver", mail=True),
                                    plain_tool()],
                  settings={"worker": {"log_level": "debug", "beat_ms": 200}})
client = stack.client()


def fresh():
    trace = secrets.token_hex(16)
    return trace, f"00-{trace}-{secrets.token_hex(8)}-01"


def run(tool, arguments, **trace):
    effect_id = rig.new_id("trace")
    answer = client.call(tool, {"effect_id": effect_id, **arguments}, extra_meta=trace)
    if not check(answer.handle, f"{tool}: a handle", repr(answer)):
        raise SystemExit(1)
    last = client.wait(answer.task_id)
    equal(last.result["status"], "completed", f"{tool}: completed")
    return effect_id, answer.task_id, last.result["result"]


def stored(effect_id):
    return stack.query("SELECT trace FROM holdfast.task WHERE effect_id = %s", (effect_id,))[0][0]


def spans_of(parents, trace, sent, what):
    """All of that trace, each another span, none the caller's."""
    for parent in parents:
        equal((parent[:36], parent[52:]), (f"00-{trace}-", "-01"), f"{what}: the same trace")
    spans = {parent[36:52] for parent in parents}
    equal(len(spans), len(parents), f"{what}: a span each")
    check(sent[36:52] not in spans, f"{what}: not the caller's span")
    counts["spans"] += len(spans)


def to_programs():
    trace, sent = fresh()
    plan = {"P1": [{"exit": 75, "starts": [1, 2]}]}
    effect_id, task_id, _ = run("probe", {"plan": json.dumps(plan)}, traceparent=sent,
                                tracestate=STATE, baggage=BAGGAGE)
    equal(stored(effect_id), f"{sent}\n{STATE}\n{BAGGAGE}", "stored with the task")
    lines = stack.run_log(effect_id, "start")
    equal(len(lines), 5, "three attempts of P1, one of P2 and P3")
    spans_of([line["traceparent"] for line in lines], trace, sent, "programs")
    equal({(line["tracestate"], line["baggage"]) for line in lines}, {(STATE, BAGGAGE)},
          "programs: state and baggage")
    shown = json.loads(stack.command("task", "show", task_id, "--json").stdout)
    equal(shown["trace"], sent, "task show")
    counts["traced"] += 1
    return trace, task_id


def to_plain_programs():
    trace, sent = fresh()
    result = run("plain_trace", {}, traceparent=sent, tracestate=STATE, baggage=BAGGAGE)[2]
    env = result["structuredContent"]["env"]
    spans_of([env["TRACEPARENT"]], trace, sent, "plain")
    equal((env["TRACESTATE"], env["BAGGAGE"]), (STATE, BAGGAGE), "plain: state and baggage")
    result = run("plain_trace", {})[2]
    equal(set(result["structuredContent"]["env"].values()), {None}, "plain: none where none came")
    counts["traced"] += 1


def downstream():
    trace, sent = fresh()
    stack.steer(lose_answers=1)  # its first attempt gets none: the next is another span
    effect_id, task_id, _ = run("deliver", {}, traceparent=sent, tracestate=STATE, baggage=BAGGAGE)
    keys = {row[4] for row in stack.steps(task_id)}
    posts = [line for line in stack.requests("/ledger") if line["key"] in keys]
    mails = [line for line in stack.requests("/send") if effect_id in line["body"]]
    equal((len(posts), len(mails)), (2, 1), "two tries of post, one of mail")
    check(all("traceparent" in line for line in posts + mails), "traced", posts + mails)
    spans_of([line["traceparent"] for line in posts + mails], trace, sent, "downstream")
    equal({line.get("tracestate") for line in posts + mails}, {STATE}, "downstream: state")
    equal([line for line in posts + mails if "baggage" in line], [], "downstream: no baggage")
    effect_id, task_id, _ = run("deliver", {})
    bare = [line for line in stack.requests("/send") if effect_id in line["body"]]
    check(len(bare) == 1 and "traceparent" not in bare[0], "none where none came", bare)
    counts["traced"] += 1


def ignored():
    good = fresh()[1]
    for trace, wanted in (
            ({"traceparent": "x"}, None), ({"traceparent": 7}, None),
            ({"traceparent": good.upper()}, None), ({"traceparent": good + "-00"}, None),
            ({"traceparent": "00-" + "0" * 32 + good[35:]}, None),
            ({"traceparent": "ff" + good[2:]}, None), ({"tracestate": STATE}, None),
            ({"traceparent": good, "tracestate": "A=1"}, good),
            ({"traceparent": good, "tracestate": "a=1\r\nX-Evil: 1"}, good),
            ({"traceparent": good, "baggage": "k=v\r\nX-Evil: 1"}, good),
            ({"traceparent": good, "baggage": "k=" + "v" * 9000}, good),
            ({"traceparent": good, "baggage": ["k=v"], "tracestate": None}, good),
            ({"baggage": "k=v"}, "\n\nk=v")):
        effect_id, _, _ = run("plain_trace", {}, **trace)
        equal(stored(effect_id), wanted, f"{json.dumps(trace)[:80]}: only what has the form")
        counts["ignored"] += 1


def in_the_log(trace, task_id):
    def lines(process):
        return [line for line in map(json.loads, filter(lambda text: text.startswith("{"),
                                                        process.log().splitlines()))
                if line.get("task_id") == task_id]
    api, worker = lines(stack.apis[0]), lines(stack.workers[0])
    until(lambda: any(line["msg"] == "task ended" for line in lines(stack.workers[0])), 5, "ended")
    worker = lines(stack.workers[0])
    check(len(api) >= 1 and len(worker) >= 6, "lines of the task", [len(api), len(worker)])
    for line in api + worker:
        equal(line.get("trace_id"), trace, f"log: {line['msg']} names the trace")
    everything = "".join(process.log() for process in stack.processes)
    check("secret-plan" not in everything, "no baggage in any log")


named = to_programs()
rig.run(to_plain_programs, downstream, ignored)
in_the_log(*named)
rig.finish("trace", counts, {"traced": 3, "spans": 9, "ignored": 13})
