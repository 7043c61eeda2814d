"""Clocks that leap (F15): by an hour, forth and back, of Postgres, of an API process, a worker or
maintenance, each by itself; clocks that run ten times too fast; and a Postgres that is killed right
before its clock goes back. By libfaketime, with a file that is replaced while the process runs.
What measures waiting (the boot-time clock) is left alone, as no setting of a clock moves it.

Time that is stored is the database's: a leap forward is time that passed, so a deadline or a
retention within that hour is over; the tools here have longer ones. After a leap back nothing may
wait for the time to come again, and at no time is a phase repeated."""

import os
import pathlib
import time

import pair
import rig
import shapes
import world

HOUR_S = 3_600
JUMPS = tuple(f"{who} {way}" for who in ("postgres", "api", "worker", "maintain")
              for way in ("+1 h", "-1 h")) + ("postgres x10", "worker x10")
CRASH = "back at a crash"
REFUSED = "the sweep refused"
WANTED = {"clock": (*JUMPS, CRASH, REFUSED)}
CI = {"clock": 200}
SOAK = {"clock": [("clock", 10_000)]}
CRASH_EVERY = 25        # jumps, as Postgres takes a second or two to come back
FAST_S_MAX = 0.3
REST_S_MAX = 0.06
LIBRARY = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SHARED = pathlib.Path("/dev/shm")

# The times that the harness compares with its own, by the time since boot, which is not faked:
# in hundredths of a second, rounded up.
TRUE_TIME = """
CREATE FUNCTION chaos.true_now() RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
    SELECT to_timestamp({boot} + 0.01
                        + split_part(pg_read_file('/proc/uptime', 0, 64), ' ', 1)::float8) $$;
CREATE TABLE chaos.true_at (task bytea, place integer, at timestamptz, PRIMARY KEY (task, place));
CREATE FUNCTION chaos.on_true_step() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    INSERT INTO chaos.true_at VALUES (NEW.task, NEW.place, chaos.true_now());
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_true AFTER INSERT ON holdfast.step
    FOR EACH ROW EXECUTE FUNCTION chaos.on_true_step();
CREATE FUNCTION chaos.on_true_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.at := chaos.true_now();
    RETURN NEW;
END $$;
CREATE TRIGGER chaos_true BEFORE INSERT ON chaos.ended
    FOR EACH ROW EXECUTE FUNCTION chaos.on_true_end();
CREATE VIEW chaos.true_step AS
    SELECT s.task, s.place, s.kind, s.name, s.attempt, s.derived_key, s.state, s.result, s.error,
           s.message, s.answer, s.hash, t.at
    FROM holdfast.step s LEFT JOIN chaos.true_at t USING (task, place);
"""


def preload(path):
    """What fakes the time of a process by that file."""
    if not LIBRARY.exists():
        raise RuntimeError(f"no {LIBRARY}: install the package libfaketime")
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def sweep_shared():
    """What libfaketime leaves of processes that were killed."""
    for path in [*SHARED.glob("faketime_shm_*"), *SHARED.glob("sem.faketime_sem_*")]:
        if not os.path.exists(f"/proc/{path.name.rpartition('_')[2]}"):
            path.unlink(missing_ok=True)


class Clock:
    """Of one process: seconds that it is ahead."""

    def __init__(self, path):
        self.path, self.ahead = path, 0
        self.set(0)

    def set(self, ahead, speed=""):
        """A number without its sign would end the process."""
        self.ahead = ahead
        temporary = self.path.with_suffix(".new")
        temporary.write_text(f"{ahead:+d}{speed}\n")
        temporary.chmod(0o644)
        temporary.rename(self.path)


class ClockedCluster(rig.Cluster):
    def __init__(self, folder, settings, clock):
        self.clock = clock
        super().__init__(folder, settings)

    def start(self):
        plain = self.as_user
        self.as_user = [*plain, "env", *(f"{name}={value}" for name, value in
                                         preload(self.clock.path).items())]
        try:
            super().start()
        finally:
            self.as_user = plain


class Clocked(world.World):
    # What the tools of this world are without: a retention and a deadline of less than some hours,
    # and Postgres's own pg_sleep, which waits for the clock.
    CHANGED = {"DEADLINE_MS": shapes.DAY_MS, "PHASE_SQL": shapes.PHASE_SQL.replace(
                   "pg_sleep(coalesce(($1::json ->> 'ms')::float8, 0) / 1000)", "1"),
               "WEIGHTS": {tool: weight for tool, weight in shapes.WEIGHTS.items()
                           if tool != "chaos_brief"}}

    def __init__(self, findings, **more):
        self.clocks = {}
        self.kept = {name: getattr(shapes, name) for name in self.CHANGED}
        for name, value in self.CHANGED.items():
            setattr(shapes, name, value)
        super().__init__(findings, **more)
        self.maintains.append(self.start_holdfast("maintain-2", "maintain"))

    def stop(self):
        for name, value in self.kept.items():
            setattr(shapes, name, value)
        super().stop()
        sweep_shared()

    def clock_of(self, name):
        if name not in self.clocks:
            (self.folder / "clock").mkdir(exist_ok=True)
            self.clocks[name] = Clock(self.folder / "clock" / name)
        return self.clocks[name]

    def make_cluster(self, folder, settings):
        return ClockedCluster(folder, settings, self.clock_of("postgres"))

    def command(self, *args, **more):
        done = super().command(*args, **more)
        if args[0] == "migrate":
            with open("/proc/uptime", encoding="ascii") as uptime:
                up = float(uptime.read().split()[0])
            boot = time.time() - up  # read behind it: what lies between makes no step too early
            with self.cluster.connect() as admin:
                admin.execute(TRUE_TIME.format(boot=boot))
        return done

    def start(self, name, argv):
        if str(argv[0]) == str(rig.HOLDFAST):
            self.environments[name] = preload(self.clock_of(name).path)
        return super().start(name, argv)

    def asked(self, sql):
        return sql.replace("holdfast.step", "chaos.true_step")

    def query(self, sql, parameters=()):
        return super().query(self.asked(sql), parameters)


WORLD = Clocked


class Faults:
    def clock(self):
        crashes = self.cells["clock"][CRASH]
        if self.counts["clock"] >= CRASH_EVERY * crashes + CRASH_EVERY // 2:
            return self.clock_back_at_a_crash()
        possible = [cell for cell in JUMPS if self.clock_may(cell)]
        cell = self.rarest("clock", possible)
        who, what = cell.split(" ", 1)
        clock = self.clock_for(who, what)
        running = self.stack.running()
        self.was_hit("clock", *(task for _, _, task in running))
        if what == "x10":
            clock.set(clock.ahead, " x10")
            time.sleep(self.dice.random() * FAST_S_MAX)
            clock.set(clock.ahead)
        else:
            clock.set(clock.ahead + (HOUR_S if what == "+1 h" else -HOUR_S))
        time.sleep(self.dice.random() * REST_S_MAX)
        return {cell} | {f"{who} at {step}" for _, step, _ in running} | self.refused()

    def refused(self):
        """Nothing is swept by a clock that leapt ahead."""
        stopped = any("retention stops" in maintain.log() for maintain in self.stack.maintains)
        return {REFUSED} if stopped else set()

    def clock_for(self, who, what):
        """One of those that can leap so and stay within the hour, or None."""
        by = {"+1 h": HOUR_S, "-1 h": -HOUR_S}.get(what, 0)
        clocks = [clock for name, clock in sorted(self.stack.clocks.items())
                  if name.startswith(who) and abs(clock.ahead + by) <= HOUR_S]
        return self.dice.choice(clocks) if clocks else None

    def clock_may(self, cell):
        return self.clock_for(*cell.split(" ", 1)) is not None

    def clock_back_at_a_crash(self):
        """What it wrote last is of a time that is far ahead when it is back."""
        clock = self.stack.clocks["postgres"]
        clock.set(HOUR_S)
        self.let_work(0.1)
        self.was_hit("clock", *(task for _, _, task in self.stack.running()))
        pair.crash(self.stack.cluster)
        clock.set(self.dice.choice([0, -HOUR_S]))
        self.stack.start_postgres()
        self.let_work(0.2)
        return {CRASH}
