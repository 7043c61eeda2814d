"""Poison for the tests: a tool that dies each time, and a memory cgroup for it to die in."""

import atexit
import os

import rig
from cgroup import Cgroup

WAYS = ("abort", "memory", "worker")
CGROUP_BYTES = 48 << 20


def tool(name="poison", crash_limit=3, **more):
    """Makes its folder; the path."""
    return rig.make_tool(
        name, [{"name": "die", "kind": "program", "mode": "plain", "command": ["./poison"],
                "effect": "pure", "timeout_ms": 60_000, "env": ["RIG_FOLDER"], **more}],
        {"how": rig.TEXT, "cgroup": rig.TEXT}, programs=rig.test_program("poison"),
        crash_limit=crash_limit, poll_interval_ms=50, result={"text": "it lives"})


def starts(stack, effect_id):
    return [line for line in rig.read_jsonl(stack.folder / "poison.jsonl")
            if line["effect_id"] == effect_id]


def cgroup():
    """To die in; it goes with the harness."""
    group = Cgroup(f"hf-poison-{os.getpid()}", CGROUP_BYTES)
    atexit.register(group.remove)
    return group
