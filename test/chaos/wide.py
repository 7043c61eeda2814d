"""The wide faults: what Postgres, the machine and the operator can do. Each is a module of its own,
which has

  WANTED  fault -> steps that it must have hit (as WANTED in faults.py)
  CI      fault -> how many in CI's share
  SOAK    name of a long bar -> [(faults, how many)]
  WORLD   the world that it needs (a world.World), or None where any will do
  Faults  methods that inject, one a fault: what faults.Faults inherits from
  LANES   as in faults.py; may be missing

A run takes faults of one world only."""

import black_hole
import bouncer
import clock
import diskfull
import failover
import hints
import oom
import poison
import powercut
import restore
import rolling
import standby_gone
import sweeps

MODULES = [black_hole, bouncer, clock, diskfull, failover, hints, oom, poison, powercut, restore,
           rolling, standby_gone, sweeps]


def gather(name):
    """What the modules have under that name, in one dict."""
    return {key: value for module in MODULES for key, value in getattr(module, name, {}).items()}


def world_of(kinds):
    """The world that these faults need together; None for any. ValueError where they need two."""
    worlds = {module.WORLD for module in MODULES if set(module.WANTED) & set(kinds)} - {None}
    if len(worlds) > 1:
        raise ValueError(f"{', '.join(sorted(set(kinds)))} need worlds of their own")
    return worlds.pop() if worlds else None
