"""The harness of the system tests: a private Postgres, the processes of a whole Holdfast, an MCP
client that declares Tasks, the downstream's own ledger, and counted checks.

A test is a program: it makes a Stack (always cleaned up, also on SIGTERM), hands its parts to run(),
calls check() for each thing that must hold, and ends with finish(), which prints one JSON line with
what was done and exits 1 when a check failed or less was done than the test promises. Effects are
counted in the downstream's ledger, never in our own tables.
"""

import atexit
import ctypes
import datetime
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import psycopg

from client import (  # noqa: F401 - tests have it from here
    EFFECT_META, META, TASKS, TERMINAL, VERSION, Answer, Client, HeldCall, complete, http_ask, meta,
    metric_of, parse_raw, raw_exchange, request_bytes, reset_close, reset_when_closed, stored_part)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = pathlib.Path(os.environ.get("RIG_PREFIX", ROOT / "zig-out"))
HOLDFAST = PREFIX / "bin" / "holdfast"
EXAMPLES = PREFIX / "share" / "holdfast" / "examples"
TEST_TOOLS = ROOT / "test" / "system" / "tools"
DOWNSTREAM = ROOT / "deploy" / "examples" / "downstream" / "downstream.py"
POSTGRES_BIN = pathlib.Path(os.environ.get("RIG_POSTGRES_BIN", "/usr/lib/postgresql/15/bin"))

TEXT = {"type": "string"}
# Token -> (subject, tenant). As `deploy/up --rig` has them, and a sibling in alice's tenant.
TOKENS = {"rig-alice": ("alice", "A"), "rig-bob": ("bob", "B"), "rig-anna": ("anna", "A")}

# --- checks --------------------------------------------------------------------------------------

_lock = threading.Lock()
_passed = 0
_failed = 0
# Of the command line: they choose parts, unless flags do something else with it.
_words = [] if "".join(sys.argv[1:2]).startswith("-") else sys.argv[1:]
_chosen = 0
FAILURES_SHOWN_MAX = 30
COMMAND_S_MAX = 120
LOOK_S_MAX = 1  # of one look of until(): in a longer one the machine stood still


def check(holds, what, detail=None):
    """Counts; a failure says what and with which values. Gives back whether it held."""
    global _passed, _failed
    with _lock:
        if holds:
            _passed += 1
        else:
            _failed += 1
            if _failed <= FAILURES_SHOWN_MAX:
                text = f"FAILED {what}"
                if detail is not None:
                    text += f": {detail if isinstance(detail, str) else json.dumps(detail, default=str)}"
                print(text[:2000], flush=True)
    return bool(holds)


def equal(got, wanted, what):
    return check(got == wanted, what, {"got": got, "wanted": wanted})


def run(*parts):
    """Calls each in turn, a function or (function, argument...), and tells how long it took. Words
    on the command line choose those with one of them in their name."""
    global _chosen
    for part in parts:
        call, *arguments = part if isinstance(part, tuple) else (part,)
        name = " ".join([call.__name__, *(word for word in arguments if isinstance(word, str))])
        if _words and not any(word in name for word in _words):
            continue
        _chosen += 1
        began = time.monotonic()
        call(*arguments)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def finish(name, counts, at_least=None):
    """`at_least`: count -> number below which the test has not done what it promises, unless words
    chose some of its parts."""
    if _words and not _chosen:
        check(False, f"no part of it has {' or '.join(_words)} in its name")
    for count, least in () if _words else (at_least or {}).items():
        check(counts.get(count, 0) >= least, f"{count} below {least}", counts.get(count, 0))
    print(json.dumps({"test": name, "passed": _passed, "failed": _failed, **counts}), flush=True)
    sys.exit(1 if _failed else 0)


def until(condition, seconds, what, pause=0.02):
    """Waits for the condition to be true and gives its value back; fails the check otherwise."""
    left = seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if left <= 0:
            check(False, f"not within {seconds} s: {what}")
            return value
        time.sleep(pause)
        left -= min(time.monotonic() - began, LOOK_S_MAX)


def seconds_of(text):
    """Of the wall clock, of a time as answers, logs and the downstream's files have it."""
    return datetime.datetime.fromisoformat(text).timestamp()


def in_parallel(work, items):
    """work(item) for each in a thread of its own; the results in order. Exceptions are raised."""
    results = [None] * len(items)
    errors = []

    def one(index, item):
        try:
            results[index] = work(item)
        except Exception as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    # Daemons: a test that is told to end does not wait for them.
    threads = [threading.Thread(target=one, args=pair, daemon=True) for pair in enumerate(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


# --- processes -----------------------------------------------------------------------------------

_stacks = []
_ports = set()


def _stop_all(*_):
    while _stacks:
        _stacks.pop().stop()


atexit.register(_stop_all)
for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(_number, lambda number, _: sys.exit(128 + number))


def free_port():
    """Not given before: whoever got that one may not have bound it yet."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with _lock:
            if port not in _ports:
                _ports.add(port)
                return port


CLONE_NEWNET = 0x40000000


def in_namespace(call, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*args) != 0:
        raise RuntimeError("this test needs the right to make a network namespace (root, or "
                           f"CAP_SYS_ADMIN): {os.strerror(ctypes.get_errno())}")


def own_network():
    """This thread, and what it starts from now on, see a loopback of their own and nothing else."""
    in_namespace("unshare", CLONE_NEWNET)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class Process:
    """A program of ours with its own session, so that a kill never reaches the harness."""

    def __init__(self, name, argv, env, log_path):
        self.name, self.argv, self.env, self.log_path = name, argv, env, log_path
        self.popen = None
        self.start()

    def start(self):
        with open(self.log_path, "ab") as log:
            self.popen = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log, start_new_session=True,
                                          cwd=os.path.dirname(self.log_path))
        return self

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            os.kill(self.pid, number)

    def kill(self):
        """kill -9, reaped."""
        self.signal(signal.SIGKILL)
        return self.popen.wait()

    def terminate(self, seconds=20):
        """SIGTERM; the exit code, or None when it had to be killed."""
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def handles(self, number):
        """Whether it has started far enough to handle that signal itself."""
        status = pathlib.Path("/proc", str(self.pid), "status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return int(caught.split()[1], 16) >> (number - 1) & 1 == 1

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")


def proc_stat(pid):
    """What /proc says of a process behind its name, its state and its parent first; None without it."""
    try:
        stat = pathlib.Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()


def process_gone(pid):
    """Dead, or dead and not reaped yet."""
    stat = proc_stat(pid)
    return stat is None or stat[0] in "ZX"


def memory_kib(pid, what="VmRSS"):
    """What is resident; as VmHWM what was at the most."""
    status = pathlib.Path("/proc", str(pid), "status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(what)).split()[1])


class Cluster:
    """A private Postgres in a folder. Root hands it to user postgres, as initdb wants it."""

    def __init__(self, folder, settings=None):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "pg"
        self.as_user = []
        if os.geteuid() == 0:
            self.as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres",
                            "--clear-groups"]
            shutil.chown(self.folder, "postgres", "postgres")
        os.chmod(self.folder, 0o711)
        # Nothing here cuts the power, so nothing is lost without fsync; `deploy/up` has it on.
        self.settings = {"listen_addresses": "''", "unix_socket_directories": f"'{self.folder}'",
                         "fsync": "off", "max_connections": "200", "log_min_messages": "warning",
                         **(settings or {})}
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                 "--locale=C.UTF-8", "--no-sync")
        self.write("postgresql.conf", "".join(
            f"{name} = {value}\n" for name, value in self.settings.items()), append=True)
        self.start()
        with self.connect("postgres") as admin:
            admin.execute("CREATE DATABASE holdfast")

    def run(self, program, *args, text=None):
        path = POSTGRES_BIN / program
        argv = [*self.as_user, str(path) if path.exists() else program, *map(str, args)]
        done = subprocess.run(argv, input=text, text=True, capture_output=text is None,
                              cwd=self.folder, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def write(self, name, text, append=False):
        """A file, in its data folder where the name is no path."""
        self.run("sh", "-c", f'cat {">>" if append else ">"} "$0"', self.data / name, text=text)

    def start(self):
        # Its output goes to the log file alone: an inherited pipe would never be closed.
        with open(os.devnull, "w", encoding="ascii") as null:
            subprocess.run([*self.as_user, str(POSTGRES_BIN / "pg_ctl"), "-w", "-D",
                            str(self.data), "-l", str(self.folder / "postgres.log"), "start"],
                           stdout=null, stderr=null, cwd=self.folder, check=True)

    def stop(self, mode="immediate"):
        subprocess.run([*self.as_user, str(POSTGRES_BIN / "pg_ctl"), "-w", "-D", str(self.data),
                        "-m", mode, "stop"], capture_output=True, cwd=self.folder, check=False)

    def dsn(self, user="postgres", database="holdfast"):
        return f"host={self.folder} dbname={database} user={user}"

    def connect(self, database="holdfast", autocommit=True):
        return psycopg.connect(self.dsn(database=database), autocommit=autocommit)


class Stack:
    """Postgres, migrated; tools applied; `apis` API processes, `workers`, maintain and the
    downstream. `settings` go to every process as flags of the commands that know them:
    {"worker": {"lease_ms": 400}}."""

    def __init__(self, apis=1, workers=2, maintain=True, tools=("rig_report", "rig_other"),
                 settings=None, postgres=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-rig-"))
        _stacks.append(self)
        self.settings = settings or {}
        self.environment = {}  # of all processes that start from now on
        (self.folder / "pg-home").mkdir()
        os.chmod(self.folder, 0o711)
        self.cluster = self.make_cluster(self.folder / "pg-home", postgres)
        self.logs = self.folder / "log"
        self.logs.mkdir()
        self.processes = []
        self.write_files()
        self.downstream = self.start_downstream()
        self.command("migrate")
        if tools:
            self.command("tools", "apply", *map(str, map(tool_folder, tools)))
        self.apis = [self.start_api(f"api-{n}", free_port()) for n in range(1, apis + 1)]
        self.workers = [self.start_worker(f"worker-{n}") for n in range(1, workers + 1)]
        self.maintains = [self.start_holdfast("maintain-1", "maintain")] if maintain else []
        for api in self.apis:
            until(lambda api=api: self.ready(api), 20, f"{api.name} ready")

    # --- files and processes ---

    def make_cluster(self, folder, settings):
        return Cluster(folder, settings)

    def write_files(self):
        self.downstream_port = free_port()
        self.downstream_url = f"http://127.0.0.1:{self.downstream_port}"
        self.ledger_path = self.folder / "downstream" / "ledger.jsonl"
        self.requests_path = self.folder / "downstream" / "requests.jsonl"
        self.run_log_path = self.folder / "run.log"
        self.run_log_path.touch()
        (self.folder / "open").mkdir()
        self.rig_path = self.folder / "rig.json"
        self.rig({})
        self.write("conf.json", json.dumps({"store": self.downstream_url,
                                            "mail": self.downstream_url,
                                            "ledger": self.downstream_url}))
        self.write("keys", f"1 {secrets.token_hex(32)}\n")
        self.write("tokens", "".join(
            f"{hashlib.sha256(token.encode()).hexdigest()} {subject} {tenant}\n"
            for token, (subject, tenant) in TOKENS.items()))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)

    def rig(self, wanted):
        """What the rig tools do from their next phase start on."""
        whole = {"sleep_ms": {}, "fault": {}, "result_file": None,
                 "downstream_url": self.downstream_url} | wanted
        temporary = self.folder / "rig.json.new"
        temporary.write_text(json.dumps(whole))
        temporary.rename(self.rig_path)

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8",
                "HOLDFAST_DSN": self.cluster.dsn(), "HOLDFAST_DOWNSTREAM_URL": self.downstream_url,
                "HOLDFAST_LEDGER": str(self.ledger_path), "HOLDFAST_RIG": str(self.rig_path),
                "RIG_RUN_LOG": str(self.run_log_path), "RIG_FOLDER": str(self.folder),
                **self.environment, **more}

    def start(self, name, argv, **env):
        process = Process(name, [str(arg) for arg in argv], self.env(**env),
                          str(self.logs / f"{name}.log"))
        self.processes.append(process)
        return process

    def start_holdfast(self, name, command, **flags):
        # What the test set counts over what the harness would choose.
        flags |= self.settings.get(command, {})
        argv = [HOLDFAST, command]
        for flag, value in flags.items():
            argv += [f"--{flag.replace('_', '-')}", value]
        return self.start(name, argv)

    def start_api(self, name, port, **flags):
        process = self.start_holdfast(name, "api", listen=f"127.0.0.1:{port}",
                                      tokens_file=self.folder / "tokens",
                                      keys_file=self.folder / "keys", **flags)
        process.port = port
        return process

    def another_api(self, name, **flags):
        """Beside the others, with flags of its own; when it is ready."""
        process = self.start_api(name, free_port(), **flags)
        until(lambda: self.ready(process), 30, f"{name} ready")
        return process

    def start_worker(self, name):
        state = self.folder / name
        state.mkdir(exist_ok=True)
        return self.start_holdfast(name, "worker", keys_file=self.folder / "keys",
                                   conf_file=self.folder / "conf.json", state_dir=state)

    def start_downstream(self):
        process = self.start("downstream", [
            sys.executable, DOWNSTREAM, "--listen", f"127.0.0.1:{self.downstream_port}",
            "--dir", self.folder / "downstream"])
        until(lambda: self.http("GET", "/healthz")[0] == 200, 30, "downstream up")
        return process

    def command(self, *args, check_code=0):
        """Runs `holdfast args`; what it printed."""
        extra = {"HOLDFAST_URL": self.url(), "HOLDFAST_TOKEN": "rig-alice"}
        done = subprocess.run([str(HOLDFAST), *map(str, args)], env=self.env(**extra), text=True,
                              capture_output=True, timeout=COMMAND_S_MAX, check=False)
        if check_code is not None and done.returncode != check_code:
            raise RuntimeError(f"holdfast {' '.join(map(str, args))}: exit {done.returncode}: "
                               f"{done.stdout}{done.stderr}")
        return done

    def ready(self, api):
        return http_ask(api.port, "/readyz", seconds=2)[0] == 200

    def url(self):
        apis = getattr(self, "apis", None)
        return f"http://127.0.0.1:{apis[0].port}" if apis else "http://127.0.0.1:1"

    def client(self, token="rig-alice", api=0):
        return Client(self.apis[api].port, token)

    def stop(self):
        self.stopped = True
        for process in self.processes:
            if process.alive():
                process.signal(signal.SIGCONT)
                process.kill()
        self.cluster.stop()
        if os.environ.get("RIG_KEEP"):
            print(f"kept: {self.folder}", flush=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self in _stacks:
            _stacks.remove(self)

    # --- the downstream ---

    def http(self, method, path, body=None):
        return http_ask(self.downstream_port, path, method, body, 30)

    def steer(self, **wanted):
        status, text = self.http("PUT", "/_control", json.dumps(wanted))
        if status != 200:
            raise RuntimeError(f"downstream control: {status} {text!r}")

    def ledger(self, path=None):
        """The effects, from the downstream's own file."""
        return [line for line in read_jsonl(self.ledger_path) if path in (None, line["path"])]

    def requests(self, path=None):
        return [line for line in read_jsonl(self.requests_path) if path in (None, line["path"])]

    def effects_by_id(self, path="/ledger"):
        """effect ID -> number of effects in the ledger, by the keys of the requests that named it
        in their body."""
        ledger = self.ledger(path)  # first: each of its lines has its request before it
        named = {}
        for line in self.requests(path):
            body = json.loads(line.get("body") or "{}")
            named[line["key"] or body.get("ref")] = body.get("effect_id") or body.get("link")
        counts = {}
        for line in ledger:
            name = named[line["key"]]
            counts[name] = counts.get(name, 0) + 1
        return counts

    # --- the store, for reading only ---

    def query(self, sql, parameters=()):
        with self.cluster.connect() as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def task_rows(self, effect_id):
        return self.query("SELECT task FROM holdfast.task WHERE effect_id = %s", (effect_id,))

    def task_of(self, effect_id):
        rows = self.task_rows(effect_id)
        return task_text(rows[0][0]) if rows else None

    def state(self, task_id):
        """Of an open task; None of another."""
        rows = self.query("SELECT state FROM holdfast.work WHERE task = %s", (task_bytes(task_id),))
        return rows[0][0] if rows else None

    def state_of(self, effect_id):
        """Of its task, "over" once that has ended; None where there is none."""
        task_id = self.task_of(effect_id)
        return task_id and (self.state(task_id) or "over")

    def steps(self, task_id):
        """(place, kind, name, attempt, derived_key, token) in place order."""
        return self.query("SELECT place, kind, name, attempt, derived_key, token "
                          "FROM holdfast.step WHERE task = %s ORDER BY place",
                          (task_bytes(task_id),))

    # --- the probe tools ---

    def run_log(self, effect_id=None, what=None):
        """What the test's own tool programs noted: [{"effect_id", "phase", "attempt", "what"}]."""
        return [line for line in read_jsonl(self.run_log_path)
                if effect_id in (None, line["effect_id"]) and what in (None, line["what"])]

    def at_gate(self, effect_id, gate, seconds=30):
        """Waits until the task's program stands at that gate; its line of the run log."""
        return until(lambda: next((line for line in reversed(self.run_log(effect_id, "gate"))
                                   if line["gate"] == gate), None), seconds,
                     f"{effect_id} at gate {gate}")

    def open_gate(self, effect_id, gate):
        (self.folder / "open" / f"{effect_id}.{gate}").touch()


def tool_folder(name):
    """A tool of the examples as built, or a path."""
    for folder in (pathlib.Path(name), EXAMPLES / name):
        if (folder / "tool.json").is_file():
            return folder
    raise RuntimeError(f"no tool {name} in {EXAMPLES}")


def make_tool(name, phases, properties=None, files=None, programs=None, **members):
    """Makes the folder of a tool, which goes with the harness; its path. `properties`: of arguments
    beside effect_id; `files`, `programs`: name -> text; `members`: of tool.json, beside those here
    or instead of them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-tool-")) / name
    atexit.register(shutil.rmtree, folder.parent, True)
    folder.mkdir()
    for file, text in {**(files or {}), **(programs or {})}.items():
        (folder / file).write_text(text)
        (folder / file).chmod(0o755 if file in (programs or {}) else 0o644)
    manifest = {
        "name": name, "effect_id": "required",
        "description": "A tool of the tests. A repeat with the same effect_id returns the same task "
                       "and result.",
        "inputSchema": {"type": "object", "required": ["effect_id"], "additionalProperties": False,
                        "properties": {"effect_id": {**TEXT, "minLength": 1, "maxLength": 255},
                                       **(properties or {})}},
        "poll_interval_ms": 100, "phases": phases, "result": {"text": "done"}, **members}
    (folder / "tool.json").write_text(json.dumps(manifest, indent=1))
    return folder


def test_program(name):
    return {name: (TEST_TOOLS / name).read_text()}


def probe_tool(name="probe", phases=None, **members):
    """Makes a folder with a tool whose phases run test/system/tools/probe; its path. `phases`:
    name -> further members. P2 alone is keyed. The folder goes with the harness."""
    return make_tool(
        name, [program_phase(phase, more) for phase, more in
               (phases or {"P1": {}, "P2": {}, "P3": {}}).items()],
        {"plan": TEXT, "month": TEXT, "n": {"type": "number"}}, programs=test_program("probe"),
        **{"result": {"text": "done", "structured": {"last": {"$from": f"/state/{last_of(phases)}"}}},
           **members})


def http_tool(name="deliver", mail=False, members=None, **phase):
    """Makes a tool of http phases alone: `post` (keyed) to the ledger, and with `mail` then `mail`
    (lookup) to the mailbox. `phase`: members that both get; its path."""
    phase = {"attempts": 8, "timeout_ms": 10_000, "backoff_first_ms": 50, "backoff_max_ms": 500,
             **phase}
    phases = [{"name": "post", "kind": "http", "effect": "keyed", "key_header": "Idempotency-Key",
               "key_ttl_ms": 86_400_000, **phase,
               "request": {"method": "POST", "url": "{/conf/ledger}/ledger",
                           "json": {"effect_id": {"$from": "/task/effect_id"},
                                    "tool": {"$from": "/task/tool"}}}}]
    if mail:
        phases.append({
            "name": "mail", "kind": "http", "effect": "lookup", "visible_within_ms": 300, **phase,
            "request": {"method": "POST", "url": "{/conf/mail}/send",
                        "json": {"ref": {"$from": "/key"}, "link": {"$from": "/task/effect_id"}}},
            "reconcile": {"request": {"method": "GET", "url": "{/conf/mail}/messages?ref={/key}"},
                          "done_when": "/items/0/id", "absent_when_empty": "/items"}})
    members = {"phases": phases, "result": {"text": "delivered {/task/effect_id}",
                                            "structured": {"answer": {"$from": "/state/post"}}},
               **(members or {})}
    return make_tool(name, members.pop("phases"),
                     {"month": TEXT, "n": {"type": "number"}, "opt": TEXT}, **members)


def last_of(phases):
    return list(phases or {"P3": {}})[-1]


def program_phase(name, more):
    keyed = {"effect": "keyed", "key_ttl_ms": 86_400_000} if name == "P2" else {"effect": "pure"}
    return {"name": name, "kind": "program", "command": ["./probe"], "timeout_ms": 60_000,
            "attempts": 5, "backoff_first_ms": 20, "backoff_max_ms": 200,
            "env": ["RIG_RUN_LOG", "RIG_FOLDER", "HOLDFAST_DOWNSTREAM_URL"], **keyed, **more}


def new_id(word):
    """An effect ID that nobody had."""
    return f"{word}-{uuid.uuid4()}"


def task_bytes(task_id):
    import base64
    return base64.urlsafe_b64decode(task_id.removeprefix("tsk_") + "=" * 4)


def task_text(task):
    import base64
    return "tsk_" + base64.urlsafe_b64encode(bytes(task)).decode().rstrip("=")


def read_jsonl(path):
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in content[:content.rfind(b"\n") + 1].splitlines()]
