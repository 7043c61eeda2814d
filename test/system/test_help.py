"""The front door: each command's page, the man page, and what a command says when it is used wrongly,
without a database, with a wrong one and with an older one. Pages, man page and tables are made of the
.def files, which are held here against the sources that use the words."""

import re
import subprocess

import rig
from rig import check, equal

ROOT = rig.ROOT
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
counts = {"commands": 0, "words": 0, "refusals": 0, "types": 0}


def run(*words, **more):
    return subprocess.run([str(rig.HOLDFAST), *words], capture_output=True, text=True, check=False,
                          timeout=120, env=ENV | more)


def rows(name, macro):
    return re.findall(rf"^{macro}\((-?\w+)(?:, (-?\d+))?", (ROOT / "runtime" / name).read_text(), re.M)


COMMANDS = [name for name, _ in rows("commands.def", "COMMAND")]
SETTINGS = [name for name, _ in rows("config.def", "SETTING")]
METRICS = [name for name, _ in rows("metrics.def", "METRIC")]
TYPES = [name for name, _ in rows("codes.def", "TYPE")]
CODES = [code for _, code in rows("codes.def", "RPC")]


def pages():
    overview = run("help")
    equal((overview.returncode, overview.stderr), (0, ""), "help: exit 0")
    for name in COMMANDS:
        check(re.search(rf"^  {name} +\w", overview.stdout, re.M), f"the overview has {name}")
        page = run("help", name)
        equal(page.returncode, 0, f"help {name}: exit 0")
        check(page.stdout.startswith(f"holdfast {name} - ") and "\nusage: " in page.stdout,
              f"help {name} begins as all do", page.stdout[:80])
        equal(run(name, "--help").stdout, page.stdout, f"{name} --help is the same page")
        counts["commands"] += 1
    for topic, words in (("settings", ["--" + name.replace("_", "-") for name in SETTINGS]),
                         ("metrics", ["holdfast_" + name for name in METRICS]),
                         ("codes", TYPES + CODES)):
        table = run("help", topic).stdout
        missing = [word for word in words
                   if not re.search(rf"^  {re.escape(word)}(?![\w-])", table, re.M)]
        equal(missing, [], f"help {topic} has all")
        check(not re.search(r" $", table, re.M), f"help {topic}: no line ends in a space")
        check(not re.search(r"\w {3,}\w", table), f"help {topic}: each line is folded")
        # Its items; a text that stands above them has lines of its own.
        wide = [line for line in table.splitlines() if line.startswith(" ") and len(line) > 80]
        equal(wide, [], f"help {topic}: no line is wider than a terminal")


def man_page():
    page = run("help", "--man")
    equal(page.returncode, 0, "help --man: exit 0")
    lint = subprocess.run(["groff", "-Kutf8", "-Tutf8", "-ww", "-man", "-z"], input=page.stdout,
                          capture_output=True, text=True, check=False, env=ENV)
    equal((lint.returncode, lint.stderr), (0, ""), "groff has nothing to say against the man page")
    shown = subprocess.run(["groff", "-Kutf8", "-Tascii", "-P-cbou", "-rLL=2000n", "-rHY=0", "-man"],
                           input=page.stdout, capture_output=True, text=True, check=False,
                           env=ENV).stdout
    exits = [code for _, code in rows("exits.def", "EXIT")]
    for kind, words in (("command", [f"holdfast {name}" for name in COMMANDS]),
                        ("setting", ["--" + name.replace("_", "-") for name in SETTINGS]),
                        ("variable", ["HOLDFAST_" + name.upper() for name in SETTINGS]),
                        ("metric", ["holdfast_" + name for name in METRICS]),
                        ("type", TYPES), ("code", CODES), ("exit code", exits)):
        missing = [word for word in words
                   if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", shown)]
        equal(missing, [], f"the man page has each {kind}")
        check(words, f"there is a {kind}")
        counts["words"] += len(words)
    installed = ROOT / "zig-out/share/man/man1/holdfast.1"
    equal(installed.read_text(), page.stdout, "the build installs this page")


def types_of_the_sources():
    """Each word that a client may find in `type` stands in codes.def, and no other does."""
    said = set()
    for path in [*(ROOT / "api").glob("*.c"), *(ROOT / "worker").glob("*.c"),
                 *(ROOT / "sql/functions").glob("*.sql")]:
        text = path.read_text()
        said |= set(re.findall(r'answer_data\([^"();]*"(\w+)"', text))
        said |= set(re.findall(r'answer_data\(request->call->arena,\s*"(\w+)"', text))
        said |= set(re.findall(r'(?:run_fail|outcome_error)\(run, "(\w+)"', text))
        said |= set(re.findall(r'\\"type\\":\\"(\w+)\\"', text))
        said |= set(re.findall(r"'type', '(\w+)', 'executed'", text))
        said |= set(re.findall(r'"data":\{"type":"(\w+)"', text))
    said -= {"text", "resource_link", "resource", "object", "string", "integer", "form"}
    equal(sorted(said ^ set(TYPES)), [], "codes.def has the types of the sources")
    counts["types"] = len(said)


def refused(words, code, has, **more):
    done = run(*words, **more)
    said = " ".join(words)
    equal(done.returncode, code, f"{said}: exit code")
    lines = done.stderr.splitlines()
    equal(len(lines), 1, f"{said}: one line: {done.stderr}")
    check(done.stderr.startswith(f"holdfast {words[0]}: "), f"{said}: names the command", done.stderr)
    check(has in done.stderr, f"{said}: says {has!r}", done.stderr)
    equal(done.stdout, "", f"{said}: nothing on stdout")
    counts["refusals"] += 1


NOBODY = rig.task_text(b"\x01" * 24)
# What each command that asks the database is given: good words.
ASKING = (["migrate"], ["tools", "list"], ["task", "list"], ["task", "show", "x"],
          ["settle", NOBODY, "done", "--by", "a", "--why", "b"],
          ["retry", NOBODY, "--by", "a", "--why", "b"],
          ["pause", "--tool", "x", "--by", "a", "--why", "b"],
          ["resume", "--tenant", "x", "--by", "a", "--why", "b"],
          ["cancel", "x", "--by", "a", "--why", "b"], ["cancel", "--state", "ready"], ["restored", "--intact", "--by", "a", "--why", "b"])


def wrong_use():
    for name in COMMANDS:
        if name not in ("up", "down", "step", "ask"):
            refused([name, "--nonsense"], 2, f"; see `holdfast help {name}`")
    for name in ("call", "task", "tools", "settle", "retry", "pause", "restored", "step", "ask", "bench"):
        refused([name], 2, "give ")
    for name in ("api", "worker", "maintain", "migrate", "version"):
        refused([name, "stray"], 2, "; see `holdfast help", HOLDFAST_DSN="host=/nowhere")
    refused(["tools", "list"], 2, "unknown setting HOLDFAST_NONSENSE", HOLDFAST_NONSENSE="1")
    refused(["worker", "--lease", "1"], 2, "unknown flag --lease (nearest: --lease-ms); see")
    refused(["task", "list", "--tol", "x"], 2, "(nearest: --tool)")
    for words, has in ((["bench", "quick"], "give one work: accept, run, poll, repeat, latency or front"),
                       (["bench", "accept", "--dir", ""], "--dir is empty"),
                       (["bench", "accept", "--clients", "0"], "--clients: `0` is not a whole number"),
                       (["call", "x", "--arg", "a:=no"], "--arg: the value of a is no JSON: "),
                       (["task", "list", "--state", "gone"], "--state: `gone` is none of ready, "),
                       (["step", "--key"], "--key takes the number"),
                       (["ask", "key", "{"], "the request is no JSON: byte 1: "),
                       (["settle", "x", "done", "--by", "", "--why", "b"], "--by is empty"),
                       (["maintain"], "no database named: set HOLDFAST_DSN or --maintain-dsn")):
        refused(words, 2, has)
    lost = run("call", "x", "--url", "http://127.0.0.1:1", "--effect-id", "e")
    check(lost.returncode == 1 and "\nnothing was done\n" in lost.stderr, "a call that never left", lost.stderr)
    # libpq's reason would quote it.
    refused(["migrate"], 3, "the DSN is no Postgres connection string; nothing was done",
            HOLDFAST_DSN="postgresql://u:s3cret@[x/")
    check("give --keys-file FILE" in run("worker", HOLDFAST_DSN="host=/nowhere").stderr, "the flag is named")
    for words in ASKING:
        refused(words, 2, "no database named: set HOLDFAST_DSN or --dsn")


def wrong_database(dsn, older):
    for words in ASKING:
        refused(words, 3, "the database cannot be reached: ", HOLDFAST_DSN="host=127.0.0.1 port=1")
        refused(words, 3, "; nothing was done", HOLDFAST_DSN=dsn.replace("dbname=holdfast", "dbname=none"))
        if words != ["migrate"]:
            refused(words, 4, "run `holdfast migrate`", HOLDFAST_DSN=older)
    for words in (["task", "show", "nobody"], ["task", "why", NOBODY]):
        refused(words, 1, "`holdfast task list`", HOLDFAST_DSN=dsn)
    refused(["settle", NOBODY, "done", "--by", "a", "--why", "b"], 1, "nothing was done", HOLDFAST_DSN=dsn)
    refused(["tools", "check", "/nonexistent"], 1, "/nonexistent")


pages()
man_page()
types_of_the_sources()
wrong_use()
stack = rig.Stack(apis=0, workers=0, maintain=False, tools=[])
with stack.cluster.connect("postgres") as admin:
    admin.execute("CREATE DATABASE older")
wrong_database(stack.cluster.dsn(), stack.cluster.dsn(database="older"))
rig.finish("help", counts, {"commands": 19, "words": 190, "refusals": 90, "types": 22})
