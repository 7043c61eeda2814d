"""Upper bounds of time that a machine which stands still for a while cannot break: a thread notes how
much later than asked it wakes, and that is taken off. What the product itself takes is all left in: a
program of its own that sleeps or hangs delays nobody here."""

import threading
import time

import rig

TICK_S = 0.02
STALL_S_MIN = 0.1  # less is how a busy machine always is; the bounds have room for that
_stalls = []  # (when it was over, how long it was)


def _watch():
    while True:
        asleep = time.monotonic()
        time.sleep(TICK_S)
        late = time.monotonic() - asleep - TICK_S
        if late > STALL_S_MIN:
            _stalls.append((time.monotonic(), late))


threading.Thread(target=_watch, daemon=True).start()


def _less_stalls(began, ended):
    return ended - began - sum(late for over, late in list(_stalls)
                               if began - TICK_S < over - late < ended)


def since(began):
    """Seconds since then, by time.monotonic(), less what the machine stood still."""
    now = time.monotonic()
    time.sleep(5 * TICK_S)  # a stall that has just ended is noted by then
    return _less_stalls(began, now)


def between(began, ended):
    """The same between two moments of the wall clock."""
    boot = time.time() - time.monotonic()
    return _less_stalls(began - boot, ended - boot)


def soon(began, seconds, what):
    """Checks that it took less than that."""
    took = time.monotonic() - began
    if took >= seconds:
        took = since(began)
    return rig.check(took < seconds, what, took)
