"""A memory cgroup of either version for what is to run out of memory, which takes root."""

import contextlib
import os
import pathlib
import signal
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
REMOVE_S_MAX = 10


class Cgroup:
    """Without swap. What a process has is not charged to it, only what it takes from then on."""

    def __init__(self, name, limit_bytes):
        new = ("memory.max", "memory.swap.max", 0)
        for base, limit, swap, swap_bytes in (
                (ROOT / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
                 limit_bytes), (ROOT / "unified", *new), (ROOT, *new)):
            self.path = base / name
            try:
                self.path.mkdir()
            except OSError:
                continue
            try:
                (self.path / limit).write_text(str(limit_bytes))
                if (self.path / swap).exists():
                    (self.path / swap).write_text(str(swap_bytes))
                return
            except OSError:
                self.path.rmdir()
        raise RuntimeError("no memory cgroup can be made: this needs root and a writable "
                           "/sys/fs/cgroup with the memory controller")

    def take(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self):
        """With all that are in it."""
        end = time.monotonic() + REMOVE_S_MAX
        while self.path.exists():
            with contextlib.suppress(OSError):
                for pid in (self.path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                self.path.rmdir()
                return
            if time.monotonic() > end:
                raise RuntimeError(f"{self.path} cannot be removed")
            time.sleep(0.02)
