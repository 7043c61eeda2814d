"""Poison for the tests: a tool that dies each time, and a memory cgroup for it to die in."""

import atexit
import os
import pathlib

import rig

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


class Cgroup:
    """A memory cgroup below our own, of either version; RuntimeError where none can be had."""

    def __init__(self):
        root = pathlib.Path("/sys/fs/cgroup")
        version2 = (root / "cgroup.controllers").exists()
        self.path = (root if version2 else root / "memory") / f"hf-poison-{os.getpid()}"
        try:
            self.path.mkdir()
            atexit.register(self.remove)
            name = "memory.max" if version2 else "memory.limit_in_bytes"
            (self.path / name).write_text(str(CGROUP_BYTES))
            swap = self.path / ("memory.swap.max" if version2 else "memory.memsw.limit_in_bytes")
            if swap.exists():
                swap.write_text("0" if version2 else str(CGROUP_BYTES))
        except OSError as error:
            raise RuntimeError(f"the test needs a memory cgroup, as root: {error}") from error

    def remove(self):
        """Once all in it are dead."""
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                rig.time.sleep(0.05)
