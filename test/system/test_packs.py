"""Prompts, resources and completion of packs (A15-A18), and artifacts of tasks as resources of their
owner (V8): two APIs, real tools, the fixtures of the conformance suite."""

import atexit
import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import uuid

import rig
from patience import soon
from rig import check, equal, in_parallel, until

counts = {"requests": 0, "refused": 0, "faults_named": 0, "artifacts": 0, "prompts_paged": 0}
FIXTURES = rig.ROOT / "test" / "tools" / "conformance" / "fixtures"
RED = (FIXTURES / "resources" / "red.png").read_bytes()
OWN = "holdfast://tasks/{taskId}/artifacts/{name}"
LARGE_BYTES = (4 << 20) + 1
PAGE = 60
place = pathlib.Path(tempfile.mkdtemp(prefix="hf-packs-"))
atexit.register(shutil.rmtree, place, True)


def folder(name, files):
    """Writes a pack; its path."""
    path = place / name
    shutil.rmtree(path, True)
    for file, content in files.items():
        target = path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content if isinstance(content, str) else json.dumps(content))
        if isinstance(content, str) and content.startswith("#!"):
            target.chmod(0o755)
    return path


def says(text):
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


MAKE = """#!/bin/sh
cat > /dev/null
printf 'a note\\n' > "$HOLDFAST_ARTIFACTS/note.txt"
printf '\\377\\376' > "$HOLDFAST_ARTIFACTS/odd.txt"
printf '\\211PNG' > "$HOLDFAST_ARTIFACTS/picture.png"
: > "$HOLDFAST_ARTIFACTS/empty.txt"
head -c 4194304 /dev/zero > "$HOLDFAST_ARTIFACTS/full.bin"
head -c 4194305 /dev/zero > "$HOLDFAST_ARTIFACTS/large.bin"
echo '{"ok": true}'
"""
KEEPER = {
    "name": "keeper", "description": "Keeps artifacts. A repeat returns the same task and result.",
    "inputSchema": {"type": "object", "required": ["effect_id"], "additionalProperties": False,
                    "properties": {"effect_id": {"type": "string", "minLength": 1, "maxLength": 255}}},
    "poll_interval_ms": 100,
    "phases": [{"name": "make", "kind": "program", "mode": "plain", "command": ["./make"],
                "effect": "pure", "timeout_ms": 60000},
               {"name": "rest", "kind": "wait", "ms": 10_000}],
    "result": {"text": "kept", "links": ["holdfast://tasks/{/task/id}/artifacts/note.txt"]},
}
stack = rig.Stack(apis=2, workers=1, tools=["build_report", folder("keeper", {"tool.json": KEEPER, "make": MAKE})],
                  settings={"api": {"list_page": PAGE}})
clients = [stack.client(api=0), stack.client(api=1)]
client, second = clients
bob = stack.client("rig-bob")
NAMES = {"prompts/get": "name", "resources/read": "uri"}


def ask(method, params=None, who=client, **more):
    counts["requests"] += 1
    params = params or {}
    return who.request(method, params, params.get(NAMES.get(method)), **more)


def result(method, params=None, who=client):
    answer = ask(method, params, who)
    if not check(answer.status == 200 and isinstance(answer.result, dict), f"{method} {params}", repr(answer)):
        return {}
    equal(answer.result.get("resultType"), "complete", f"{method}: complete")
    return answer.result


def refused(method, params, what, code=-32602, status=200, **more):
    answer = ask(method, params, **more)
    equal((answer.status, answer.code), (status, code), f"{method}: {what}")
    counts["refused"] += 1
    return answer


def apply(path, code=0):
    return stack.command("tools", "apply", path, check_code=code)


def read(uri, who=client):
    got = result("resources/read", {"uri": uri}, who)
    cached(got, f"read {uri}")
    equal(len(got.get("contents", [])), 1, f"{uri}: one content")
    return (got.get("contents") or [{}])[0]


def cached(got, what):
    check(isinstance(got.get("ttlMs"), int) and got["ttlMs"] >= 0 and got.get("cacheScope") == "private",
          f"{what}: caching hints", {name: got.get(name) for name in ("ttlMs", "cacheScope")})


# --- what is offered -------------------------------------------------------------------------------

def nothing_yet():
    told = result("server/discover")["capabilities"]
    equal((told["prompts"], told["resources"], told["completions"]), ({}, {}, {}), "what is declared")
    equal([prompt["name"] for prompt in result("prompts/list")["prompts"]], ["monthly_report"],
          "a tool's folder brings its prompt")
    equal(result("resources/list")["resources"], [], "no resources yet, which is no error")
    told = result("resources/templates/list")["resourceTemplates"]
    equal([template["uriTemplate"] for template in told], [OWN], "artifacts are offered as a template")
    for method in ("resources/subscribe", "resources/unsubscribe"):
        refused(method, {"uri": "test://static-text"}, "nothing is subscribed to", -32601, 404)


def both_apis_see_an_apply():
    apply(FIXTURES)
    applied = time.monotonic()
    for number, who in enumerate(clients):
        until(lambda who=who: result("resources/list", None, who)["resources"], 10, f"api {number} has it")
    soon(applied, 3, "within a second or so")
    again = apply(FIXTURES).stdout
    check("nothing to do" in again, "the same again changes nothing", again)
    listed = [json.loads(line) for line in stack.command("tools", "list", "--json").stdout.splitlines()]
    equal([(one["pack"], one["prompts"], one["resources"]) for one in listed if "pack" in one],
          [("build_report", 1, 0), ("conformance", 5, 3)], "tools list tells of packs")
    apply(folder("late", {"pack.json": {"name": "late"}, "prompts/late.json": says("late")}))
    for who in clients:
        equal(result("prompts/get", {"name": "late"}, who)["messages"][0]["content"]["text"], "late",
              "a name that is not known yet is looked up at once")


def lists():
    prompts = result("prompts/list")
    cached(prompts, "prompts/list")
    names = [prompt["name"] for prompt in prompts["prompts"]]
    equal(names, sorted(names), "in the order of their names")
    two = next(prompt for prompt in prompts["prompts"] if prompt["name"] == "test_prompt_with_arguments")
    equal([(argument["name"], argument["required"], "complete" in argument) for argument in two["arguments"]],
          [("arg1", True, False), ("arg2", True, False)], "arguments, without what completes them")
    resources = result("resources/list")
    cached(resources, "resources/list")
    equal([(one["uri"], one["mimeType"], one["size"]) for one in resources["resources"]],
          [("test://static-binary", "image/png", len(RED)), ("test://static-text", "text/plain", 48)],
          "resources")
    templates = result("resources/templates/list")
    cached(templates, "resources/templates/list")
    equal([one["uriTemplate"] for one in templates["resourceTemplates"]],
          [OWN, "test://template/{id}/data"], "templates")
    equal(ask("prompts/list", None, second).body.split(b'"result"')[1],
          ask("prompts/list").body.split(b'"result"')[1], "both APIs say the same")


# --- resources -------------------------------------------------------------------------------------

def resources_are_read():
    equal(read("test://static-text"), {"uri": "test://static-text", "mimeType": "text/plain",
                                       "text": "This is the content of the static text resource."}, "text")
    binary = read("test://static-binary", second)
    equal((binary["mimeType"], base64.b64decode(binary["blob"])), ("image/png", RED), "bytes")
    for spelt, value in (("123", "123"), ("a%2Fb%20%22%7B", 'a/b "{'), ("%e2%82%ac", "\u20ac"), ("a.b~c", "a.b~c")):
        uri = f"test://template/{spelt}/data"
        got = read(uri)
        equal((got["uri"], got["mimeType"]), (uri, "application/json"), f"{spelt}: whose it is")
        equal(json.loads(got["text"]), {"id": value, "templateTest": True, "data": f"Data for ID: {value}"},
              f"{spelt}: what its URI says")
    for uri in ("test://none", "", "test://static-text/", "TEST://static-text", "test://template//data",
                "test://template/a/b/data", "test://template/%/data", "test://template/%00/data",
                "test://template/%ff/data", "test://template/{id}/data", "x" * 5000):
        answer = refused("resources/read", {"uri": uri}, f"unknown: {uri[:40]}")
        equal(answer.data, {"executed": "no", "uri": uri}, "the URI stands in the data")
    for params in ({}, {"uri": 5}, {"uri": None}):
        refused("resources/read", params, f"{params}")


def headers_repeat_the_name():
    for method, params in (("prompts/get", {"name": "test_simple_prompt"}),
                           ("resources/read", {"uri": "test://static-text"})):
        for header in (None, "other"):
            refused(method, params, f"Mcp-Name {header}", -32020, 400, headers={"Mcp-Name": header})


# --- prompts ---------------------------------------------------------------------------------------

def contents(name, arguments=None, who=client):
    got = result("prompts/get", {"name": name, **({"arguments": arguments} if arguments is not None else {})}, who)
    return [message["content"] for message in got.get("messages", [])]


def prompts_are_filled():
    equal(contents("test_simple_prompt"),
          [{"type": "text", "text": "This is a simple prompt for testing."}], "a simple prompt")
    for first, other in (("hello", "world"), ('"\\', "{/args/arg1}"), ("{{", "\u20ac\n"), ("", "{")):
        equal(contents("test_prompt_with_arguments", {"arg1": first, "arg2": other, "more": "x"}),
              [{"type": "text", "text": f"Prompt with arguments: arg1='{first}', arg2='{other}'"}],
              "arguments go in as they are, once")
    equal(contents("test_prompt_with_embedded_resource", {"resourceUri": "test://x"}, second)[0],
          {"type": "resource", "resource": {"uri": "test://x", "mimeType": "text/plain",
                                            "text": "Embedded resource content for testing."}}, "a resource")
    image = contents("test_prompt_with_image", {})[0]
    equal((image["type"], image["mimeType"], base64.b64decode(image["data"])), ("image", "image/png", RED), "an image")
    for params, what in (({"name": "none"}, "unknown"), ({}, "no name"), ({"name": 5}, "no text"),
                         ({"name": "test_simple_prompt", "arguments": []}, "arguments: an array"),
                         ({"name": "test_prompt_with_arguments"}, "arguments are missing"),
                         ({"name": "test_prompt_with_arguments", "arguments": {"arg1": "x"}}, "one is missing"),
                         ({"name": "test_prompt_with_arguments", "arguments": {"arg1": "x", "arg2": 5}}, "a number")):
        refused("prompts/get", params, what)


def many_copies():
    """An argument that the prompt repeats: what grows past a bound is refused, and not made first."""
    apply(folder("wide", {"pack.json": {"name": "wide"}, "prompts/wide.json": {
        "arguments": [{"name": "x"}], **says("{/args/x}" * 256)}}))
    equal(contents("wide", {"x": "ab"})[0]["text"], "ab" * 256, "small ones are made")
    equal(contents("wide")[0]["text"], "", "what is left out is empty")
    for letters, bound in ((60_000, "8388608"), (70_000, "65536"), (3_000_000, "65536")):
        began = time.monotonic()
        answer = refused("prompts/get", {"name": "wide", "arguments": {"x": "y" * letters}}, f"{letters} letters")
        check(bound in answer.error["message"], "the bound is named", answer.error)
        soon(began, 2, "at once")


def a_report_by_its_prompt():
    texts = [contents("monthly_report", {"month": "2013-05"})[0]["text"] for _ in range(2)]
    minted = [set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", text)) for text in texts]
    equal([len(ids) for ids in minted], [1, 1], "one effect ID in each")
    check(minted[0] != minted[1], "and a new one each time", texts)
    effect_id = minted[0].pop()
    equal(uuid.UUID(effect_id).version, 4, "a UUID")
    check("2013-05" in texts[0] and "build_report" in texts[0], "it names month and tool", texts[0])
    arguments = {"month": "2013-05", "effect_id": effect_id, "pace_ms": 0}
    handle, end = client.run("build_report", arguments)
    equal(end.result["status"], "completed", "the call that it asks for makes the report")
    equal(client.call("build_report", arguments).task_id, handle.task_id, "and is repeated under its effect ID")
    links = [block["uri"] for block in end.result["result"]["content"] if block["type"] == "resource_link"]
    kept = read(links[1], second)
    equal(kept["mimeType"], "application/pdf", "the link leads to the PDF")
    check(base64.b64decode(kept["blob"]).startswith(b"%PDF-"), "which it is")
    counts["artifacts"] += 1


# --- completion ------------------------------------------------------------------------------------

def complete(ref, name, value, who=client):
    got = result("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}}, who)
    return got.get("completion", {})


def completions():
    prompt = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    equal(complete(prompt, "arg1", "PAR"), {"values": ["paris", "park", "party"], "total": 3, "hasMore": False},
          "by what was typed")
    equal(complete(prompt, "arg1", "zz")["values"], [], "nothing fits")
    equal(complete(prompt, "arg2", "a")["values"], [], "nothing is offered")
    apply(folder("offers", {"pack.json": {"name": "offers"}, "resources/resources.json": {"resources": [
        {"uriTemplate": "offer://{n}", "name": "n", "text": "{/args/n}",
         "complete": {"n": [f"v{n}" for n in range(250)]}}]}}))
    template = {"type": "ref/resource", "uri": "offer://{n}"}
    got = complete(template, "n", "v", second)
    equal((len(got["values"]), got["total"], got["hasMore"]), (100, 250, True), "of a variable, a hundred at most")
    equal(complete(template, "n", "v24")["values"], ["v24"] + [f"v24{n}" for n in range(10)], "a prefix")
    equal(complete({"type": "ref/resource", "uri": OWN}, "name", "")["values"], [], "artifacts: no offers")
    argument = {"name": "arg1", "value": ""}
    for params, what in (({"ref": {"type": "ref/prompt", "name": "none"}, "argument": argument}, "unknown prompt"),
                         ({"ref": {"type": "ref/resource", "uri": "x://{y}"}, "argument": argument}, "unknown template"),
                         ({"ref": prompt, "argument": {"name": "none", "value": ""}}, "unknown argument"),
                         ({"ref": prompt, "argument": {"name": "arg1"}}, "no value"), ({"ref": prompt}, "no argument"),
                         ({"ref": {"type": "ref/tool", "name": "x"}, "argument": argument}, "another ref"),
                         ({"ref": "x", "argument": argument}, "no ref"), ({}, "nothing")):
        refused("completion/complete", params, what)


# --- pages -----------------------------------------------------------------------------------------

def pages(removed_after_first=None):
    names, cursors, cursor = [], set(), None
    while True:
        got = result("prompts/list", {"cursor": cursor} if cursor else {}, clients[len(cursors) % 2])
        check(len(got["prompts"]) <= PAGE, "pages are bounded", len(got["prompts"]))
        names += [prompt["name"] for prompt in got["prompts"]]
        cursor = got.get("nextCursor")
        if cursor is None:
            return names
        check(cursor not in cursors, "no cursor comes twice", cursor)
        cursors.add(cursor)
        if removed_after_first:
            removed_after_first()
            removed_after_first = None


def cursors():
    files = {f"prompts/page-{n:03}.json": says(str(n)) for n in range(250)}
    apply(folder("pages", {"pack.json": {"name": "pages"}, **files}))
    for who in clients:
        until(lambda who=who: "nextCursor" in result("prompts/list", None, who), 10, "the pages are there")
    names = pages()
    equal(names, sorted(names), "over pages and APIs, in order")
    equal(len([name for name in names if name.startswith("page-")]), 250, "and each one once")
    counts["prompts_paged"] = len(names)
    good = result("prompts/list")["nextCursor"]
    for cursor in ("", "x", 5, None, good[:-2], good + "00", ("0" if good[0] != "0" else "1") + good[1:],
                   "a" * 10000, good.upper() + "z"):
        refused("prompts/list", {"cursor": cursor}, f"cursor {str(cursor)[:30]}")
    for method in ("resources/list", "resources/templates/list"):
        refused(method, {"cursor": "x"}, "no cursor of its own")

    def remove():
        last = sorted(names)[PAGE - 1]
        apply(folder("pages", {"pack.json": {"name": "pages"}, **{
            file: text for file, text in files.items() if file != f"prompts/{last}.json"}}))
        for who in clients:
            until(lambda who=who: last not in [one["name"] for one in result("prompts/list", None, who)["prompts"]],
                  10, "one is gone")

    equal(pages(remove), names, "a cursor whose prompt went away still leads on")


# --- bounds ----------------------------------------------------------------------------------------

def what_the_store_holds_is_bounded():
    """Reads of artifacts and answers to tasks count until the store is done with them, not until their
    callers were told that it does not answer."""
    task = client.call("keeper", {"effect_id": "keep-1"}).task_id
    uri = artifact(task, "note.txt")

    def reads(_=None):
        return ask("resources/read", {"uri": uri}, stack.client())

    def update(_=None):
        return stack.client().update(task, {"k": {"action": "decline"}})

    with stack.cluster.connect(autocommit=False) as held:
        held.execute("LOCK TABLE holdfast.step, holdfast.task, holdfast.work IN ACCESS EXCLUSIVE MODE")
        for what, act, most in (("read", reads, 8), ("answer", update, 64)):
            got = in_parallel(act, range(most))
            equal({answer.status for answer in got}, {503}, f"{what}: as many as are let in")
            if act == reads:
                equal({answer.data["executed"] for answer in got}, {"no"}, "a read executes nothing")
            over = act()
            equal((over.status, over.code, over.data), (429, -32603, {"executed": "no"}),
                  f"{what}: those are still with the store")
            equal(over.headers.get("retry-after"), "1", f"{what}: and when to come again")
    until(lambda: reads().status == 200 and update().status == 200, 20, "the store has ended them")


# --- artifacts -------------------------------------------------------------------------------------

def artifact(task, name):
    return f"holdfast://tasks/{task}/artifacts/{name}"


def artifacts():
    task = client.call("keeper", {"effect_id": "keep-1"}).task_id
    until(lambda: ask("resources/read", {"uri": artifact(task, "note.txt")}).error is None, 30, "the note is there")
    check(client.get(task).result["status"] not in rig.TERMINAL, "before the task is over")
    # One of a phase that is not done: a later attempt may write other bytes.
    stack.query("""INSERT INTO holdfast.artifact (week, task, phase, name, media_type, sha256, content, at)
                   SELECT week, task, 1, 'early.txt', 'text/plain', sha256('x'), 'x', now()
                   FROM holdfast.task WHERE effect_id = 'keep-1' RETURNING 1""")
    refused("resources/read", {"uri": artifact(task, "early.txt")}, "of a phase that is not done")
    client.wait(task)
    equal(read(artifact(task, "early.txt"))["text"], "x", "which is told once it is")
    note = read(artifact(task, "note.txt"), second)
    equal(note, {"uri": artifact(task, "note.txt"), "mimeType": "text/plain; charset=utf-8",
                 "text": "a note\n"}, "text")
    equal(read(artifact(task, "%6eote.txt"))["text"], "a note\n", "the name is decoded")
    equal(base64.b64decode(read(artifact(task, "odd.txt"))["blob"]), b"\xff\xfe", "text that is none is bytes")
    equal(base64.b64decode(read(artifact(task, "picture.png"))["blob"]), b"\x89PNG", "bytes")
    equal(read(artifact(task, "empty.txt"))["text"], "", "nothing in it")
    equal(len(base64.b64decode(read(artifact(task, "full.bin"))["blob"])), LARGE_BYTES - 1, "up to the bound")
    counts["artifacts"] += 6
    answer = refused("resources/read", {"uri": artifact(task, "large.bin")}, "over the bound")
    equal(answer.data, {"type": "resource_too_large", "executed": "no", "uri": artifact(task, "large.bin"), "size": LARGE_BYTES,
                        "sizeMax": LARGE_BYTES - 1}, "says by how much")
    strangers(task)


def strangers(task):
    """Foreign, unknown and malformed: one answer, whatever there is (V8)."""
    uri = artifact(task, "note.txt")
    foreign = refused("resources/read", {"uri": uri}, "of another owner", who=bob)
    equal(foreign.data, {"executed": "no", "uri": uri}, "nothing but the URI")
    other = "tsk_" + "A" * 32
    for name in (artifact(other, "note.txt"), artifact(task, "none.txt"), artifact("x", "note.txt"),
                 artifact(task, ""), artifact(task, "a/b"), f"holdfast://tasks/{task}", "holdfast:",
                 "HOLDFAST://tasks/x/artifacts/y", artifact(task, "%00"), artifact(task, "x" * 3000)):
        for who in (client, bob):
            answer = refused("resources/read", {"uri": name}, f"unknown {name[:60]}", who=who)
            equal(answer.error, {**foreign.error, "data": {"executed": "no", "uri": name}}, "the same answer")
    anna = stack.client("rig-anna")
    refused("resources/read", {"uri": uri}, "of another subject of the tenant", who=anna)


# --- tools check, tools apply -----------------------------------------------------------------------

def pack(files):
    return {"pack.json": {"name": "bad"}, **files}


def prompt(**members):
    return pack({"prompts/p.json": {**says("x"), **members}})


def block(**content):
    return prompt(messages=[{"role": "user", "content": content}])


def resource(**members):
    return pack({"resources/resources.json": {"resources": [{"uri": "a://b", "name": "n", "text": "x", **members}]}})


def template(**members):
    return pack({"resources/resources.json": {"resources": [
        {"uriTemplate": "a://{b}", "name": "n", "text": "x", **members}]}})


P, R = "prompts/p.json#", "resources/resources.json#"
FAULTS = [
    ({"prompts/p.json": says("x")}, "tool.json: is not there, nor is pack.json"),
    ({"pack.json": {"name": "bad"}, "tool.json": KEEPER, "make": MAKE}, "pack.json#: stands beside tool.json"),
    ({"pack.json": {"name": "a b"}}, "pack.json#/name: must be of"),
    ({"pack.json": {}}, 'pack.json#: member "name" is missing'),
    ({"pack.json": {"name": "x", "y": 1}}, "pack.json#/y: unknown member"),
    ({"pack.json": "{"}, "pack.json:1:2: the text ends where a member name in quotes was due"),
    (pack({"prompts/a b.json": says("x")}), "prompts/a b.json#: the file's name is the prompt's"),
    (pack({"prompts/p.json": "[]"}), P + ": must be an object"),
    (pack({"prompts/p.json": '{"messages": [],\n "messages": []}'}), "prompts/p.json:2:2: a member of the same name"),
    (prompt(messages=[]), P + "/messages: must have 1 to 64 elements"),
    (prompt(name="p"), P + "/name: unknown member"),
    (prompt(messages=[{"role": "system", "content": {"type": "text", "text": "x"}}]),
     P + '/messages/0/role: must be "user" or "assistant"'),
    (block(type="video", text="x"), P + "/messages/0/content/type: must be"),
    (block(type="text", text="{/args/x}"), P + "/messages/0/content: {/args/x}: a prompt knows"),
    (block(type="text", text="{/input/x}"), P + "/messages/0/content: {/input/x}: a prompt knows"),
    (block(type="text", text="{/conf/store}"), P + "/messages/0/content: {/conf/store}: a prompt knows"),
    (block(type="text", text="{/minted/effect_id}" * 257), P + "/messages/0/content: over 256 references"),
    (block(type="text", text="{x}"), P + "/messages/0/content: byte 0 of the text: a brace opens"),
    (block(type="image", mimeType="image/png"), P + '/messages/0/content: needs one of "data" and "file"'),
    (block(type="image", mimeType="image/png", data="AA="), P + "/messages/0/content/data: is no base64"),
    (block(type="image", mimeType="png", data="AAAA"), P + "/messages/0/content/mimeType: is no media type"),
    (block(type="image", mimeType="image/png", file="x.png"), P + "/messages/0/content/file: file x.png is not in"),
    (block(type="image", mimeType="image/png", file="../x"), P + '/messages/0/content/file: "../x" is not a path'),
    (block(type="resource", resource={"uri": "a://b", "mimeType": "text/plain"}),
     P + '/messages/0/content/resource: needs one of "text", "blob" and "file"'),
    (prompt(arguments=[{"name": "a"}, {"name": "a"}]), P + "/arguments/1/name: stands twice"),
    (prompt(arguments=[{"name": "a/b"}]), P + "/arguments/0/name: must be of"),
    (prompt(arguments=[{"name": "a", "complete": [1]}]), P + "/arguments/0/complete/0: must be a string"),
    (prompt(arguments=[{"name": "a", "required": "yes"}]), P + "/arguments/0/required: must be true or false"),
    (resource(uriTemplate="a://{b}"), R + '/resources/0: needs one of "uri" and "uriTemplate"'),
    (resource(json={}), R + '/resources/0: needs one of "text", "json" and "file"'),
    (resource(uri="a b"), R + "/resources/0/uri: begins with no scheme"),
    (resource(uri="a://b c"), R + "/resources/0/uri: byte 5 may not stand"),
    (resource(uri="a://{b}"), R + "/resources/0/uri: byte 4 may not stand"),
    (resource(uri="Holdfast://x"), R + "/resources/0/uri: URIs of scheme holdfast"),
    (resource(complete={}), R + '/resources/0: "complete" goes with "uriTemplate"'),
    (pack({"resources/resources.json": {"resources": [{"uri": "a://b", "name": "n", "file": "resources/resources.json"}]}}),
     R + '/resources/0: a file needs its "mimeType"'),
    (pack({"resources/resources.json": {"resources": [{"uri": "a://b", "name": "n", "text": ""}] * 2}}),
     R + "/resources/1/uri: stands twice"),
    (pack({"resources/resources.json": {"resources": [
        {"uri": "a://b", "name": "n", "file": "resources/big", "mimeType": "image/png"}]}, "resources/big": b"\0" * LARGE_BYTES}),
     R + "/resources/0/file: file resources/big has over 4194304 bytes"),
    (template(uriTemplate="a://b"), R + "/resources/0/uriTemplate: has no {variable}"),
    (template(uriTemplate="{a}://b"), R + "/resources/0/uriTemplate: begins with no scheme"),
    (template(uriTemplate="a://{b}{c}"), R + "/resources/0/uriTemplate: {b}: nothing stands between"),
    (template(uriTemplate="a://{+b}"), R + "/resources/0/uriTemplate: {+b}: a variable is"),
    (template(uriTemplate="a://{b}/{b}"), R + "/resources/0/uriTemplate: {b}: stands twice"),
    (template(uriTemplate="a://{b}/}"), R + "/resources/0/uriTemplate: a brace has no other"),
    (template(text="{/args/c}"), R + "/resources/0/text: /args/c: is no /args/NAME"),
    (template(complete={"c": []}), R + "/resources/0/complete/c: is no variable"),
    (template(complete={"b": "x"}), R + "/resources/0/complete/b: must be an array"),
    (pack({f"prompts/p{n}.json": {**says("x" * 900_000)} for n in range(10)}), "pack.json: prompts and resources"),
]


def faults_are_named():
    for number, (files, wanted) in enumerate(FAULTS):
        path = folder("bad", files)
        done = subprocess.run([rig.HOLDFAST, "tools", "check", path], capture_output=True, text=True, check=False)
        told = done.stderr.replace(f"holdfast tools: {path}/", "", 1)
        equal((done.returncode, told.startswith(wanted)), (1, True), f"fault {number}: {wanted}: {told}")
        counts["faults_named"] += 1


def one_name_one_pack():
    before = stack.query("SELECT name, version FROM holdfast.pack ORDER BY name")
    for name, files, wanted in (
            ("thief", {"pack.json": {"name": "thief"}, "prompts/late.json": says("mine")},
             "prompts/late.json: prompt late is of pack late already"),
            ("thief", {"pack.json": {"name": "thief"}, "prompts/new.json": says("new"), "resources/resources.json": {
                "resources": [{"uri": "test://static-text", "name": "n", "text": "mine"}]}},
             "resources/resources.json: resource test://static-text is of pack conformance already"),
            ("thief", {"pack.json": {"name": "keeper"}, "prompts/k.json": says("k")},
             "pack.json#/name: a tool is called keeper"),
            ("thief", {"tool.json": {**KEEPER, "name": "late"}, "make": MAKE},
             "tool.json#/name: a pack is called late")):
        told = apply(folder(name, files), code=1).stderr
        check(wanted in told, wanted, told)
    equal(stack.query("SELECT name, version FROM holdfast.pack ORDER BY name"), before, "and nothing changed")
    refused("prompts/get", {"name": "new"}, "not by half either")
    apply(folder("late", {"pack.json": {"name": "late"}}))
    until(lambda: ask("prompts/get", {"name": "late"}).code == -32602, 10, "an empty pack takes its prompts away")
    apply(folder("thief", {"pack.json": {"name": "thief"}, "prompts/late.json": says("mine")}))
    equal(contents("late")[0]["text"], "mine", "and the name is free")


rig.run(nothing_yet, both_apis_see_an_apply, lists, resources_are_read, headers_repeat_the_name,
        prompts_are_filled, many_copies, a_report_by_its_prompt, completions, artifacts,
        what_the_store_holds_is_bounded, faults_are_named, one_name_one_pack, cursors)
for process in stack.apis:
    check(process.alive(), f"{process.name} lives")
rig.finish("packs", counts, {"requests": 150, "refused": 70, "faults_named": 45, "artifacts": 7,
                             "prompts_paged": 250})
