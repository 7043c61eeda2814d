#!/usr/bin/python3
"""Questions before a call is accepted (MRTR): two API processes that know nothing of each other ask
different rounds, one is killed in between, keys are rotated; states that were changed, are of
another caller or of another call are refused; and a last round sent twice is one task."""

import atexit
import json
import pathlib
import secrets
import shutil
import sys
import tempfile

from rig import META, TASKS, Stack, check, equal, finish, new_id, run, until

FORMS = {"elicitation": {}, "extensions": {TASKS: {}}}
COUNTS = {"rounds_asked": 0, "states_refused": 0, "tasks": 0, "kills": 0}


def form(message, name):
    return {"method": "elicitation/create", "params": {
        "mode": "form", "message": message, "requestedSchema": {
            "type": "object", "properties": {name: {"type": "string"}}, "required": [name]}}}


def accepted(**content):
    return {"action": "accept", "content": content}


ASK = [{"name": form("Name, for {/args/what}?", "name")},
       {"color": form("Color, {/input/name/content/name}?", "color"),
        "pet": form("Pet, {/input/name/content/name}?", "pet")}]
FIRST = {"name": accepted(name="Ada")}
SECOND = {"color": accepted(color="blue"), "pet": accepted(pet="cat")}
TEXT = "{/input/name/content/name}: {/input/color/content/color}, {/input/pet/content/pet}"


def tool(name, effect_id, **members):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-tool-")) / name
    atexit.register(shutil.rmtree, folder.parent, True)
    folder.mkdir()
    properties = {"what": {"type": "string"}}
    required = ["what"]
    if effect_id == "required":
        properties["effect_id"] = {"type": "string"}
        required.append("effect_id")
    if effect_id != "none":
        (folder / "work").write_text('#!/bin/sh\necho "$HOLDFAST_INPUT"\n')
        (folder / "work").chmod(0o755)
        members |= {"phases": [{"name": "work", "kind": "program", "mode": "plain",
                                "command": ["./work"], "effect": "pure"}],
                    "result": {"text": TEXT, "structured": {
                        "program": {"$from": "/state/work"}}}}
    (folder / "tool.json").write_text(json.dumps({
        "name": name, "description": "Asks first.", "effect_id": effect_id, "ask": ASK,
        "inputSchema": {"type": "object", "required": required, "properties": properties},
        **members}))
    return folder


class Asked:
    """One call through its rounds; each may go to another API process."""

    def __init__(self, stack, name, what="tests", token="rig-alice", forms=True, **arguments):
        self.stack, self.name, self.token = stack, name, token
        self.arguments = {"what": what, **arguments}
        self.meta = {META + "clientCapabilities": FORMS if forms else {"extensions": {TASKS: {}}}}
        self.state = None

    def send(self, responses=None, api=0, state="", declare=True):
        """`state`: another than the last one; None: none."""
        state = self.state if state == "" else state
        params = {"requestState": state} if state is not None else {}
        if responses is not None:
            params["inputResponses"] = responses
        capabilities = self.meta if declare else {META + "clientCapabilities": {"elicitation": {}}}
        client = self.stack.client(self.token, api)
        answer = client.call(self.name, self.arguments, extra_meta=capabilities, **params)
        client.close()
        if asks(answer):
            self.state = answer.result["requestState"]
            COUNTS["rounds_asked"] += 1
        return answer


def prompts(*names):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-pack-"))
    atexit.register(shutil.rmtree, folder, True)
    (folder / "pack.json").write_text('{"name": "asking"}')
    (folder / "prompts").mkdir()
    for name in names:
        (folder / "prompts" / f"{name}.json").write_text(json.dumps({
            "arguments": [{"name": "what", "required": True}], "ask": ASK, "messages": [{
                "role": "user", "content": {"type": "text", "text": f"For {{/args/what}}, {TEXT}"}}]}))
    return folder


def asks(answer):
    return isinstance(answer.result, dict) and answer.result.get("resultType") == "input_required"


def asked(answer, *keys):
    """Whether it asks for exactly these."""
    return check(asks(answer) and sorted(answer.result["inputRequests"]) == sorted(keys),
                 f"asks for {keys}", repr(answer))


def refused(answer, what):
    COUNTS["states_refused"] += answer.code == -32602
    return check(answer.status == 200 and answer.code == -32602 and
                 answer.data == {"executed": "no"}, what, repr(answer))


def text_of(answer):
    content = (answer.result or {}).get("content")
    return content[0]["text"] if content else repr(answer)


def stored(stack):
    return stack.query("SELECT (SELECT count(*) FROM holdfast.task), "
                       "(SELECT count(*) FROM holdfast.effect)")[0]


def restart(stack, number):
    """kill -9, and up again on the same port."""
    api = stack.apis[number]
    api.kill()
    COUNTS["kills"] += 1
    api.start()
    until(lambda: stack.ready(api), 20, f"{api.name} ready again")


# --- what is tested --------------------------------------------------------------------------------

def rounds_go_to_any_process(stack):
    call = Asked(stack, "ask_none")
    answer = call.send(api=0)
    asked(answer, "name")
    equal(answer.result["inputRequests"]["name"]["params"]["message"], "Name, for tests?",
          "the question has the arguments in it")
    check("taskId" not in answer.result, "no task is spoken of")
    first = call.state
    restart(stack, 0)
    answer = call.send(FIRST, api=1)
    asked(answer, "color", "pet")
    equal(answer.result["inputRequests"]["pet"]["params"]["message"], "Pet, Ada?",
          "the question has an earlier answer in it")
    check(call.state != first, "another state")
    restart(stack, 1)
    answer = call.send({"pet": accepted(pet="cat")}, api=0)
    asked(answer, "color")
    restart(stack, 0)
    equal(text_of(call.send({"color": accepted(color="blue")}, api=1)), "Ada: blue, cat",
          "all three answers, over two processes and three kills")
    equal(text_of(call.send({"color": accepted(color="blue")}, api=0)), "Ada: blue, cat",
          "again")
    equal(stored(stack), (0, 0), "nothing was stored")


def what_is_wrong_is_asked_again(stack):
    call = Asked(stack, "ask_none")
    asked(call.send(), "name")
    for responses in ({}, {"nom": accepted(name="Ada")}, {"name": accepted()}, {"name": 7},
                      {"name": accepted(name=7)}, {"name": accepted(name="Ada", age="7")},
                      {"name": {"action": "perhaps"}}, {"name": {}}):
        asked(call.send(responses), "name")
    asked(call.send({**FIRST, "other": 1, "color": accepted(color="red")}), "color", "pet")
    for responses in (None, "name", [FIRST], 1):
        params = {"requestState": call.state, "inputResponses": responses}
        answer = stack.client().call("ask_none", call.arguments, extra_meta=call.meta, **params)
        check(answer.code == -32602, f"inputResponses {responses!r} is refused", repr(answer))
    asked(Asked(stack, "ask_none").send(FIRST, state=None), "color", "pet")
    equal(stored(stack), (0, 0), "nothing was stored")


def nobody_is_asked_what_he_cannot_answer(stack):
    answer = Asked(stack, "ask_none", forms=False).send()
    equal((answer.status, answer.code), (400, -32021), "a client without forms")
    equal(answer.data["requiredCapabilities"], {"elicitation": {"form": {}}}, "what is missing")
    answer = Asked(stack, "ask_any", forms=False).send()
    equal(answer.result["structuredContent"], {"name": None, "color": None},
          "a tool that goes on has nulls")
    call = Asked(stack, "ask_any")
    asked(call.send(), "name")
    asked(call.send({"name": {"action": "decline"}}), "color")
    equal(call.send({"color": accepted(color="red")}).result["structuredContent"],
          {"name": None, "color": accepted(color="red")}, "what was declined is null there")
    for action in ("decline", "cancel"):
        call = Asked(stack, "ask_work", effect_id=f"declined-{action}")
        asked(call.send(), "name")
        answer = call.send({"name": {"action": action}})
        equal(answer.structured, {"type": "declined", "executed": "no", "key": "name"},
              f"{action} ends the call")
    equal(stored(stack), (0, 0), "nothing was stored")


def a_state_is_good_for_what_it_was_given_for(stack):
    call = Asked(stack, "ask_none")
    call.send()
    state = call.state
    for at in range(len(state)):
        changed = "A" if state[at] != "A" else "B"
        refused(call.send(FIRST, state=state[:at] + changed + state[at + 1:], api=at % 2),
                f"state with byte {at} changed")
    for other in (state + "A", state[:-1], state + "=", " " + state, "", "hs1.1.", 7, None, {}):
        params = {"requestState": other, "inputResponses": FIRST}
        refused(stack.client().call("ask_none", call.arguments, extra_meta=call.meta, **params),
                f"state {str(other)[:30]!r}")
    others = {"another caller": Asked(stack, "ask_none", token="rig-bob"),
              "a caller of the same tenant": Asked(stack, "ask_none", token="rig-anna"),
              "other arguments": Asked(stack, "ask_none", what="others"),
              "one argument more": Asked(stack, "ask_none", n=1),
              "another tool": Asked(stack, "ask_twin")}
    for what, other in others.items():
        refused(other.send(FIRST, state=state), f"state of {what}")
    work = Asked(stack, "ask_work", effect_id="mine")
    work.send()
    refused(Asked(stack, "ask_work", effect_id="another").send(FIRST, state=work.state),
            "state of another effect ID")
    asked(call.send(FIRST, state=state, api=1), "color", "pet")


def a_call_becomes_one_task(stack):
    effect_id = new_id("asked")
    call = Asked(stack, "ask_work", effect_id=effect_id)
    asked(call.send(api=0), "name")
    asked(call.send(FIRST, api=1), "color", "pet")
    last = call.state
    answer = call.send(SECOND, api=0)
    check(answer.handle, "the last round is answered with a task", repr(answer))
    check("requestState" not in answer.result and "inputRequests" not in answer.result,
          "a handle has nothing of the rounds")
    task = answer.task_id
    COUNTS["tasks"] += 1
    for api in (1, 0):
        equal(call.send(SECOND, api=api, state=last).task_id, task, "the last round again")
    other = {"color": accepted(color="red"), "pet": accepted(pet="dog")}
    equal(call.send(other, state=last).task_id, task, "and with other answers")
    equal(call.send(state=None, api=1).task_id, task, "the first round again asks nobody")
    conflict = Asked(stack, "ask_work", what="other work", effect_id=effect_id).send()
    equal(conflict.structured.get("type"), "idempotency_key_conflict", "other arguments")
    result = stack.client().wait(task).result["result"]
    equal(result["content"][0]["text"], "Ada: blue, cat", "the first answers count")
    equal(result["structuredContent"]["program"], {**FIRST, **SECOND}, "the program has them too")
    plain = call.send(state=None, declare=False)
    equal(text_of(plain), "Ada: blue, cat", "a client without tasks gets the result")
    equal(len(stack.task_rows(effect_id)), 1, "one task")


def without_effect_id_the_rounds_are_its_name(stack):
    call = Asked(stack, "ask_free")
    asked(call.send(), "name")
    asked(call.send(FIRST, api=1), "color", "pet")
    answer = call.send(SECOND)
    check(answer.handle, "a task", repr(answer))
    for api in (0, 1, 1):
        equal(call.send(SECOND, api=api).task_id, answer.task_id, "the last round, sent again")
    again = Asked(stack, "ask_free")
    again.send()
    again.send(FIRST)
    second = again.send(SECOND)
    check(second.handle and second.task_id != answer.task_id, "other rounds are another task")
    COUNTS["tasks"] += 2
    equal(stack.query("SELECT count(*) FROM holdfast.task t JOIN holdfast.tool USING (tool) "
                      "WHERE name = 'ask_free'")[0][0], 2, "two tasks")
    plain = Asked(stack, "ask_free")
    plain.send(declare=False)
    plain.send(FIRST, declare=False)
    equal(text_of(plain.send(SECOND, declare=False)), "Ada: blue, cat",
          "a client without tasks is asked as well")


def a_prompt_asks_too(stack):
    def get(arguments, api=0, token="rig-alice", name="ask_none", **params):
        client = stack.client(token, api)
        answer = client.request("prompts/get", {"name": name, "arguments": arguments, **params},
                                name, extra_meta={META + "clientCapabilities": FORMS})
        client.close()
        COUNTS["rounds_asked"] += asks(answer)
        return answer

    what = {"what": "prompts"}
    first = get(what)
    asked(first, "name")
    state = first.result["requestState"]
    restart(stack, 0)
    second = get(what, api=1, requestState=state, inputResponses=FIRST)
    asked(second, "color", "pet")
    last = {"requestState": second.result["requestState"], "inputResponses": SECOND}
    done = get(what, **last)
    equal(done.result["messages"][0]["content"]["text"], "For prompts, Ada: blue, cat",
          "the prompt has all answers in it")
    call = Asked(stack, "ask_none", what="prompts")
    call.send()
    for params, told in (({"token": "rig-bob"}, "of another caller"),
                         ({"name": "ask_twin"}, "of another prompt"),
                         ({"requestState": call.state}, "of a tool of that name")):
        answer = get(what, **{"requestState": state, "inputResponses": FIRST, **params})
        refused(answer, f"state {told}")
    refused(get({"what": "others"}, requestState=state, inputResponses=FIRST),
            "state of other arguments")
    equal(get({}).error["message"], 'params.arguments needs "what"', "arguments come first")
    declined = get(what, inputResponses={"name": {"action": "decline"}})
    equal((declined.code, declined.data), (-32602, {"type": "declined", "executed": "no",
                                                    "key": "name"}), "a decline is an error here")


def keys_are_rotated(stack):
    keys = stack.folder / "keys"
    old = keys.read_text()
    new = f"2 {secrets.token_hex(32)}\n"
    call, late = Asked(stack, "ask_none"), Asked(stack, "ask_none")
    call.send(api=0)
    late.send(api=0)
    check(call.state.startswith("hs1.1."), "signed under the first key", call.state)
    stack.write("keys", old + new)
    restart(stack, 0)
    restart(stack, 1)
    asked(call.send(FIRST, api=1), "color", "pet")
    check(call.state.startswith("hs1.2."), "signed under the second key", call.state)
    stack.write("keys", new)
    restart(stack, 0)
    equal(text_of(call.send(SECOND, api=0)), "Ada: blue, cat", "goes on under the new key")
    refused(late.send(FIRST, api=0), "state of a key that is gone")
    stack.write("keys", old)
    restart(stack, 1)
    refused(call.send(SECOND, api=1), "state of a key that is not there yet")


def main():
    answer = {"answer": {"content": [{"type": "text", "text": TEXT}]}}
    any_of = {"ask": [{"name": ASK[0]["name"]}, {"color": form("Color?", "color")}],
              "ask_otherwise": "continue", "answer": {
                  "content": [{"type": "text", "text": "done"}],
                  "structured": {"name": {"$from": "/input/name"},
                                 "color": {"$from": "/input/color"}}}}
    tools = [tool("ask_none", "none", **answer), tool("ask_twin", "none", **answer),
             tool("ask_any", "none", **any_of), tool("ask_work", "required"),
             tool("ask_free", "optional")]
    stack = Stack(apis=2, workers=1, tools=tools)
    stack.command("tools", "apply", prompts("ask_none", "ask_twin"))
    run(*((part, stack) for part in (
        rounds_go_to_any_process, what_is_wrong_is_asked_again,
        nobody_is_asked_what_he_cannot_answer, a_state_is_good_for_what_it_was_given_for,
        a_call_becomes_one_task, without_effect_id_the_rounds_are_its_name, a_prompt_asks_too,
        keys_are_rotated)))
    check(all(api.alive() for api in stack.apis), "the API processes live")
    stack.stop()
    finish("mrtr", COUNTS, {"rounds_asked": 30, "states_refused": 100, "tasks": 3, "kills": 8})


if __name__ == "__main__":
    sys.exit(main())
