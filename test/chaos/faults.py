"""The faults, each as a method that injects one, at a step of the work where this kind was seen
least. Where it hit is counted in cells: fault -> step -> times."""

import collections
import contextlib
import itertools
import os
import signal
import socket
import threading
import time

import rig
import shapes
import wide
import world
from load import LOST, Caller, Task

STEPS = ("sql", "pure", *shapes.DOWNSTREAMS)
ACTS = ("accept", "claim", "step", "finish", "release", "sql", "cancel")
DOWNSTREAM = ("500 before", "503 before", "500 after", "reset before", "lost after", "redirect",
              "409", "garbage after", "slow", "too slow", "refused")
CUT_MODES = ("before", "half", "fragments", "delay", "duplicate")
STORMS = ("new", "running", "ended", "two arguments")
CUTS = tuple(f"{op} {part}" for op in ("call", "get") for part in ("request", "answer"))

# Steps that each kind of fault must have hit, where there are enough faults for it.
WANTED = {
    "kill_worker": STEPS,
    "kill_api": ("call", "get", "plain"),
    "kill_postmaster": ("kill -9", "immediate"),
    "kill_backend": ("api", "worker", "sql"),
    "end_backend": ("api", "worker", "sql"),
    "stop_worker": (*STEPS, "past the lease", "within the lease"),
    "lost_commit": ACTS,
    "cut_commit": CUT_MODES,
    # Each way at each kind of phase that asks downstream.
    "downstream": tuple(f"{what}, {kind}" for kind in shapes.DOWNSTREAMS for what in DOWNSTREAM),
    "disconnect": CUTS,
    "storm": STORMS,
} | wide.gather("WANTED")
PROXIED = {"lost_commit", "cut_commit"}
# Injected several at once, each at another process or flight, where all kinds of a run allow it.
LANES = {"lost_commit": 4, "cut_commit": 6, "stop_worker": 2, "kill_worker": 2, "kill_api": 2} | wide.gather("LANES")
LATE_MS_MAX = 500       # of a delayed flight, and of the second coming of a duplicated one
HITS_MAX = 400          # tasks a kind that are remembered as hit
WAIT_FOR_STEP_S = 0.4
RAW = {
    "500 before": "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "503 before": "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
    # The downstream makes the effect for a script that has a 2xx in it, at the start of any line.
    "500 after": "HTTP/1.1 500 Oh\r\nContent-Length: 14\r\n\r\n\nHTTP/1.1 200 \n",
    "reset before": "reset",
    "redirect": "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    "409": "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
    "garbage after": "HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n<\xff\0oops>\"",
}


class Faults(*[module.Faults for module in wide.MODULES]):
    def __init__(self, stack, journal, callers, findings, seed):
        self.stack, self.journal, self.callers, self.findings = stack, journal, callers, findings
        self.dice = world.dice(seed, "faults")
        self.counts = collections.Counter()
        self.cells = collections.defaultdict(collections.Counter)
        self.ids = itertools.count(1)
        self.lock = threading.Lock()
        self.down = set()  # names of processes that a lane has stopped or killed just now
        # Kind -> tasks of the journal, or handles, that such a fault hit.
        self.hits = collections.defaultdict(list)
        self.over_at = 0.0  # wall clock: when the last fault that lingers is over
        self.measured = {}  # name -> the worst that was measured
        for number, text in enumerate(RAW.values()):
            (stack.folder / f"script-{number}").write_bytes(text.encode("latin-1"))

    def inject(self, kind):
        """One fault of that kind; False when it could not be."""
        self.stack.look_for_dead()
        hit = getattr(self, kind)()
        if not hit:
            return False
        with self.lock:
            self.counts[kind] += 1
            for cell in set(hit):
                self.cells[kind][cell] += 1
        return True

    def was_hit(self, kind, *tasks):
        """Remembers which tasks went through it; of too many a sample."""
        with self.lock:
            hits = self.hits[kind]
            for task in tasks:
                if len(hits) < HITS_MAX:
                    hits.append(task)
                else:
                    hits[self.dice.randrange(HITS_MAX)] = task

    def measure(self, name, value):
        with self.lock:
            self.measured[name] = max(value, self.measured.get(name, value))

    def lingers(self, seconds):
        self.over_at = max(self.over_at, time.time() + seconds)

    def rarest(self, kind, among=None):
        """One of the cells that this kind hit least."""
        cells = list(among or WANTED[kind])
        least = min(self.cells[kind][cell] for cell in cells)
        return self.dice.choice([cell for cell in cells if self.cells[kind][cell] == least])

    def unhit(self):
        return [f"{kind}: {cell}" for kind, count in sorted(self.counts.items())
                for cell in WANTED[kind]
                if count >= 3 * len(WANTED[kind]) and not self.cells[kind][cell]]

    # --- processes ---

    def take(self, names):
        """One of them that no other lane has taken; to be given back."""
        with self.lock:
            free = sorted(set(names) - self.down)
            if not free:
                return None
            name = self.dice.choice(free)
            self.down.add(name)
            return name

    @contextlib.contextmanager
    def worker_in(self, step):
        """A worker that holds a task in that step, or any that holds one, or any."""
        workers = {worker.name: worker for worker in self.stack.workers}
        end = time.monotonic() + WAIT_FOR_STEP_S
        running, name = [], None
        while time.monotonic() < end and name is None:
            running = self.stack.running()
            name = self.take(process for process, kind, _ in running
                             if kind == step and process in workers)
            time.sleep(0 if name else 0.001)
        name = name or self.take(process for process, _, _ in running if process in workers) or \
            self.take(workers)
        try:
            yield workers[name]
        finally:
            self.down.discard(name)

    def held_by(self, worker, kind):
        """The steps whose claims a worker held when it fell, while the store still says so."""
        held = [(step, task) for process, step, task in self.stack.running()
                if process == worker.name]
        self.was_hit(kind, *(task for _, task in held))
        return {step for step, _ in held} or {"none"}

    def asking(self, number, kind):
        """What was being asked of that API process."""
        doing = [one for one in (caller.doing for caller in self.callers)
                 if one is not None and one[0] == number]
        self.was_hit(kind, *(task for _, _, task in doing))
        return {what for _, what, _ in doing} or {"none"}

    def kill_worker(self):
        with self.worker_in(self.rarest("kill_worker", STEPS)) as worker:
            time.sleep(self.dice.random() * 0.003)
            self.stack.restart(worker)
            hit = self.held_by(worker, "kill_worker")
            self.stack.begin(worker)
            time.sleep(self.dice.random() * 0.03)
        return hit

    def kill_api(self):
        wanted, name = self.rarest("kill_api"), None
        names = [api.name for api in self.stack.apis]
        end = time.monotonic() + WAIT_FOR_STEP_S
        while time.monotonic() < end and name is None:
            name = self.take(names[doing[0]] for doing in (caller.doing for caller in self.callers)
                             if doing is not None and doing[1] == wanted)
        name = name or self.take(names)
        if name is None:
            return False
        try:
            time.sleep(self.dice.random() * 0.002)
            api = self.stack.apis[names.index(name)]
            hit = self.asking(names.index(name), "kill_api")
            self.stack.restart(api)
            self.stack.begin(api)
            rig.until(lambda: self.stack.ready(api) or not api.alive(), 20, "the API is up again",
                      0.005)
        finally:
            self.down.discard(name)
        return hit

    def stop_worker(self):
        long = self.rarest("stop_worker", ("past the lease", "within the lease"))
        low, high = (150, 450) if long == "past the lease" else (10, 120)
        seconds = self.dice.uniform(low, high) / 1000
        with self.worker_in(self.rarest("stop_worker", STEPS)) as worker:
            began = time.time()
            worker.signal(signal.SIGSTOP)
            hit = self.held_by(worker, "stop_worker") | {long}
            time.sleep(seconds)
            worker.signal(signal.SIGCONT)
            self.stack.stops.append((worker.pid, began, time.time()))
        time.sleep(self.dice.random() * 0.02)
        return hit

    # --- Postgres ---

    def kill_postmaster(self):
        mode = self.rarest("kill_postmaster")
        running = self.stack.running()
        self.was_hit("kill_postmaster", *(task for _, _, task in running))
        # Best right behind an answer, which then must have been on the disk: no question between.
        end, asked = time.monotonic() + 1.5, time.monotonic()
        while self.journal.accepted_at < asked and time.monotonic() < end:
            time.sleep(0.002)
        hit = {step for _, step, _ in running} | {mode}
        if mode == "immediate":
            self.stack.cluster.stop("immediate")
            self.stack.start_postgres()
        else:
            self.stack.kill_postmaster()
        self.let_work(0.3)
        return hit

    def backend(self, kind):
        """(role, pid) of a backend of ours, one that is at work where there is one."""
        role = self.rarest(kind)
        self.was_hit(kind, *(task for _, _, task in self.stack.running()))
        rows = []
        end = time.monotonic() + WAIT_FOR_STEP_S
        while time.monotonic() < end:
            rows = self.stack.ask(
                "SELECT pid, state FROM pg_stat_activity WHERE usename = %s AND pid IS NOT NULL",
                (world.ROLES[role],))
            busy = [pid for pid, state in rows if state != "idle"]
            if busy:
                return role, self.dice.choice(busy), "at work"
        return role, self.dice.choice([pid for pid, _ in rows]) if rows else None, "idle"

    def kill_backend(self):
        role, pid, state = self.backend("kill_backend")
        if pid is None:
            self.let_work(0.3)
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False  # its client had gone, and so did it
        time.sleep(0.05)
        self.stack.postgres_up()
        self.let_work(0.1)
        return {role, state}

    def end_backend(self):
        role, pid, state = self.backend("end_backend")
        if pid is None or not self.stack.ask("SELECT pg_terminate_backend(%s)", (pid,)):
            return False
        return {role, state}

    def let_work(self, seconds):
        """Until claims are held again, so that the next fault meets some work."""
        end = time.monotonic() + seconds + 2
        time.sleep(self.dice.random() * seconds)
        while not self.stack.running() and time.monotonic() < end:
            time.sleep(0.01)

    def work_again(self, seconds, what):
        """Whether claims are held in that time."""
        end = time.monotonic() + seconds
        while not self.stack.running():
            if time.monotonic() > end:
                self.findings.add("V9", f"no work within {seconds} s of {what}")
                return False
            time.sleep(0.01)
        return True

    # --- commits, by the proxy ---

    def hit_process(self, name, kind):
        """The tasks that this process was at."""
        if name.startswith("api-"):
            self.asking(int(name.removeprefix("api-")) - 1, kind)
        else:
            self.was_hit(kind, *(task for process, _, task in self.stack.running()
                                 if process == name))

    def lost_commit(self):
        with self.lock:
            act = self.rarest("lost_commit")
        # Cancels and releases are rare: what comes first is taken after a while.
        mode = "rows" if self.dice.random() < 0.3 else "swallow"
        hit = self.stack.order(mode, act, 400) or self.stack.order(mode, None, 1000)
        if hit:
            self.hit_process(hit["process"], "lost_commit")
        return hit and {hit["act"], f"{hit['act']} {mode}"}

    def cut_commit(self):
        with self.lock:
            mode = self.rarest("cut_commit")
            self.cells["cut_commit"][mode] += 1  # the other lanes take another
        act = self.dice.choice(ACTS + ("poll", "beat"))
        more = {"ms": self.dice.randrange(LATE_MS_MAX)}
        hit = self.stack.order(mode, act, 300, **more) or self.stack.order(mode, None, 1000, **more)
        with self.lock:
            self.cells["cut_commit"][mode] -= 1
        if hit:
            self.hit_process(hit["process"], "cut_commit")
            self.lingers(more["ms"] / 1000 if mode in ("delay", "duplicate") else 0)
        return hit and {mode, f"{hit['act']} {mode}"}

    # --- downstream ---

    def downstream(self):
        """One request that would make an effect is answered otherwise, or not at all."""
        cell = self.rarest("downstream")
        what, kind = cell.split(", ")
        name = shapes.DOWNSTREAMS[kind]
        if what in ("redirect", "409"):
            self.stack.refusals += 1
        start = self.stack.requests_end(name)
        if not self.answer_so(what, name):
            return False
        tasks = []
        for line in self.stack.requests_since(name, start):
            body = rig.json.loads(line["body"])
            tasks.append(body.get("task") or body["link"])
        self.was_hit("downstream", *tasks)
        return {cell, what}

    def answer_so(self, what, name):
        if what == "refused":
            process = self.stack.downstreams[name]
            self.stack.restart(process)
            time.sleep(self.dice.uniform(0.05, 0.4))
            self.stack.begin(process)
            return rig.until(lambda: self.stack.steered(name) is not None, 10,
                             "the downstream is up", 0.01)
        if what in ("slow", "too slow"):
            where, slow = "delay_after_ms", shapes.HTTP_TIMEOUT_MS + 300
            if what == "slow":
                where = self.dice.choice(["delay_before_ms", "delay_after_ms"])
                slow = shapes.SLOW_BEFORE_MS
            before = self.stack.steered(name)
            self.stack.steer(name, **{where: slow})
            hit = self.wait_downstream(name, lambda now: now["requests"] > before["requests"])
            time.sleep(slow / 1000 if what == "slow" else 0.05)
            self.stack.steer(name, delay_before_ms=0, delay_after_ms=0)
            self.lingers(slow / 1000)
            return hit
        if what == "lost after":
            self.stack.steer(name, lose_answers=1)
            return self.wait_downstream(name, lambda now: now["lose_answers"] == 0)
        script = self.stack.folder / f"script-{list(RAW).index(what)}"
        self.stack.steer(name, script=[str(script)])
        return self.wait_downstream(name, lambda now: not now["script"])

    def wait_downstream(self, name, holds, seconds=5):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = self.stack.steered(name)
            if now is not None and holds(now):
                return True
            time.sleep(0.003)
        self.stack.steer(name, script=[], lose_answers=0)
        return False

    # --- clients ---

    def new_task(self, kind, tool=None):
        number = next(self.ids)
        tool = tool or self.dice.choice(["chaos_one", "chaos_three", "chaos_eight"])
        return self.journal.add(Task(tool, {"effect_id": f"{kind}-{number}", "n": number,
                                            "ms": self.dice.randrange(10), "slow_ms": 0}))

    def hand_over(self, task):
        """A caller sees it to its end."""
        self.dice.choice([one for one in self.callers if isinstance(one, Caller)]).inbox.append(
            task)

    def disconnect(self):
        """A connection ends at a random byte of a request or of its answer, by FIN or by RST."""
        cell = self.rarest("disconnect")
        op, part = cell.split()
        api = self.dice.choice(self.stack.apis)
        client = rig.Client(api.port)
        if op == "call":
            task = self.new_task("cut")
            data = client.call_bytes(task.tool, task.arguments)
        else:
            task = self.some_task(lambda one: one.handle is not None and
                                  one.token == "rig-alice" and not one.plain and
                                  one.tool != "chaos_brief")
            if task is None:
                time.sleep(0.05)
                return False
            body = rig.json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {
                "taskId": task.handle, "_meta": rig.meta()}}).encode()
            data = rig.request_bytes(client.headers("tasks/get", task.handle), body)
        self.was_hit("disconnect", task)
        how = self.cut(api, data, part)
        if op == "call":
            self.journal.told(task, "call cut", part=part, how=how)
            self.hand_over(task)
        return {cell, how}

    def cut(self, api, data, part):
        how = self.dice.choice(("FIN", "RST"))
        try:
            with socket.create_connection(("127.0.0.1", api.port), timeout=5) as peer:
                if part == "request":
                    at = self.dice.randrange(len(data))
                    peer.sendall(data[:at])
                    if self.dice.random() < 0.5:
                        time.sleep(self.dice.random() * 0.003)
                else:
                    peer.sendall(data)
                    # Fewer than any answer has.
                    wanted = self.dice.choice([0, self.dice.randrange(1, 300)])
                    while wanted > 0 and (got := peer.recv(wanted)):
                        wanted -= len(got)
                if how == "RST":
                    rig.reset_when_closed(peer)
        except OSError:
            pass
        return how

    def some_task(self, fits):
        tasks = list(self.journal.tasks.values())
        for task in self.dice.sample(tasks, min(len(tasks), 200)):
            if fits(task):
                return task
        return None

    def storm(self):
        """24 to 64 calls with one effect ID at once, over both API processes."""
        what = self.rarest("storm")
        task = None
        if what in ("running", "ended"):
            task = self.some_task(lambda one: one.handle is not None and not one.gone and
                                  one.tool != "chaos_brief" and one.token == "rig-alice" and
                                  not one.plain and
                                  one.over == (what == "ended"))
        if task is None:
            what = what if what == "two arguments" else "new"
            task = self.new_task("storm")
        other = None
        if what == "two arguments":
            other = Task(task.tool, task.arguments | {"n": -1})
        new = task.handle is None
        self.was_hit("storm", task)
        answers = self.duplicates(task, other, self.dice.randint(24, 64))
        if other is not None:
            task = self.winner(task, other, answers)
        for mine, answer in answers:
            self.judge_duplicate(task, mine, answer)
        if new:
            self.hand_over(task)
        return {what}

    def duplicates(self, task, other, count):
        """[(task whose arguments were sent, answer or None)]."""
        barrier = threading.Barrier(count)
        sent = [other if other is not None and number % 2 else task for number in range(count)]

        def one(number):
            client = rig.Client(self.stack.apis[number % 2].port, timeout=10)
            body = client.body(sent[number].tool, sent[number].arguments)
            headers = client.headers("tools/call", task.tool)
            barrier.wait()
            try:
                return client.post(body, headers)
            except LOST:
                return None
            finally:
                client.close()

        return list(zip(sent, rig.in_parallel(one, range(count))))

    def winner(self, task, other, answers):
        """Whose arguments got a handle; where no answer came at all both are asked again."""
        won = next((mine for mine, answer in answers if answer is not None and answer.handle), None)
        while won is None:
            won = next((mine for mine, answer in self.duplicates(task, other, 2)
                        if answer is not None and answer.handle), None)
        if won is other:
            with self.journal.lock:
                self.journal.tasks[(other.token, other.effect_id)] = other
        return won

    def judge_duplicate(self, task, mine, answer):
        if answer is None or answer.status in (429, 503):
            return
        if mine is not task:
            if answer.structured.get("type") != "idempotency_key_conflict":
                self.journal.violation("I9", "a storm's other arguments were not refused", task,
                                       answer=answer)
        elif answer.handle:
            self.journal.handle(task, answer, "storm")
        else:
            self.journal.violation("V1", "a duplicate was answered oddly", task, answer=answer)
