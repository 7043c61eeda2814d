"""What must hold after a run: the journal of the clients, the downstream's ledger, the run log of
the tool programs and the tables say the same, and what no invariant allows is in none of them."""

import collections
import json
import time

import psycopg

import rig
import shapes
from load import LOST

OUTCOME_PLACE = 2147483647
LATE_S = 0.25        # a stopped worker's start counts as late for so long after it goes on
AGAIN_MAX = 4000     # finished tasks that are asked for again at both API processes
REFUSED_S_MAX = 20   # a machine that stands still makes an API process refuse for a moment


class Checker:
    def __init__(self, stack, journal, findings, operator):
        self.stack, self.journal, self.findings = stack, journal, findings
        self.operator = operator
        self.tasks = [task for task in journal.tasks.values() if task.handle is not None]
        self.by_handle = {task.handle: task for task in self.tasks}
        self.counts = collections.Counter()

    def check(self):
        self.read()
        self.oracle()
        self.one_task_an_effect()
        self.handles_are_durable()
        self.nothing_is_left()
        self.phases()
        self.sql_phases()
        self.programs()
        self.settles()
        self.effects()
        self.plain_results()
        self.logs()
        return self.counts

    def oracle_alone(self):
        self.oracle()
        return self.counts

    def bad(self, rule, text, handle=None, **more):
        task = self.by_handle.get(handle)
        if task is not None:
            more |= {"tool": task.tool, "effect_id": task.effect_id, "statuses": task.statuses,
                     "message": (task.result or {}).get("statusMessage")}
        self.findings.add(rule, text, task=handle, **more)

    def read(self):
        """The store at one moment: retention goes on meanwhile."""
        with self.stack.cluster.connect(autocommit=False) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.read_store(lambda sql: connection.execute(self.stack.asked(sql)).fetchall())
        self.made, self.requests = self.stack.effects()
        self.run_log = self.stack.run_log()
        self.counts["tasks"] = len(self.rows)

    def read_store(self, query):
        self.rows = {rig.task_text(task): tuple(row) for task, *row in query(
            "SELECT t.task, v.name, t.effect_id, t.owner FROM holdfast.task t "
            "JOIN holdfast.tool v ON v.tool = t.tool")}
        self.steps = collections.defaultdict(dict)
        for task, place, kind, name, attempt, key, at, same, settled in query(
                "SELECT task, place, kind, name, attempt, derived_key,"
                " extract(epoch FROM at)::float8, hash = CASE kind WHEN 'outcome' THEN"
                " sha256(convert_to(coalesce(result, '') || coalesce(error, ''), 'UTF8'))"
                " ELSE sha256(coalesce(state, '')) END, starts_with(answer, 'settled by ') "
                "FROM holdfast.step"):
            self.steps[rig.task_text(task)][place] = (kind, name, attempt, key, at, same, settled)
        self.work = {rig.task_text(task): state for task, state in
                     query("SELECT task, state FROM holdfast.work")}
        self.ended = {rig.task_text(task): at for task, at in query(
            "SELECT task, extract(epoch FROM at)::float8 FROM chaos.ended")}
        self.events = collections.defaultdict(collections.Counter)
        # An intent is one before it is settled as well: story and rows are not compared by them.
        for task, kind, count in query("SELECT task, kind, count(*) FROM holdfast.event "
                                       "WHERE kind <> 'intent' GROUP BY 1, 2"):
            self.events[rig.task_text(task)][kind] += count
            self.counts[f"event {kind}"] += count
        self.crashes = collections.Counter(rig.task_text(task) for task, in
                                           query("SELECT task FROM chaos.crash"))
        self.audit = collections.defaultdict(list)
        for task, act, by, why in query("SELECT task, act, by, detail FROM holdfast.audit "
                                        "WHERE starts_with(act, 'settle ') ORDER BY at"):
            self.audit[rig.task_text(task)].append((act, by, why))

    def oracle(self):
        """What the triggers saw, each write at its own moment."""
        for rule, task, detail in self.stack.query(
                "SELECT rule, task, detail FROM chaos.finding ORDER BY at LIMIT 20"):
            self.bad(rule, detail, task and rig.task_text(task))

    def one_task_an_effect(self):
        for owner, tool, effect_id, count in self.stack.query(
                "SELECT t.owner, v.name, t.effect_id, count(*) FROM holdfast.task t "
                "JOIN holdfast.tool v ON v.tool = t.tool GROUP BY 1, 2, 3 HAVING count(*) > 1"):
            self.bad("V1", f"{count} tasks of one effect", owner=owner, tool=tool,
                     effect_id=effect_id)
        for task, in self.stack.query(
                "SELECT t.task FROM holdfast.task t LEFT JOIN holdfast.effect e USING (digest) "
                "WHERE e.task IS DISTINCT FROM t.task"):
            self.bad("V1", "its effect does not name it", rig.task_text(task))

    def handles_are_durable(self):
        """V2, V6: asked once more, at both processes."""
        for task in self.tasks:
            if task.handle not in self.rows:
                self.gone(task)
            elif task.handle in self.rows and self.rows[task.handle][1] != task.effect_id:
                self.bad("V2", "a handle is of another effect", task.handle)
        for api in range(len(self.stack.apis)):
            clients = {token: self.stack.client(token, api) for token in rig.TOKENS}
            for task in self.tasks[-AGAIN_MAX:]:
                answer = self.told(clients[task.token], task.handle)
                if answer is None or answer.status != 200:
                    self.bad("V2", "a handle cannot be asked for", task.handle, answer=answer)
                    continue
                self.journal.seen(task, answer)
                self.counts["asked_again"] += 1

    @staticmethod
    def told(client, handle):
        """The answer to tasks/get, or the last refusal; None where there was none."""
        end, answer = time.monotonic() + REFUSED_S_MAX, None
        while time.monotonic() < end:
            try:
                answer = client.get(handle)
                if answer.status not in (429, 503):
                    break
            except LOST:
                answer = None
            time.sleep(0.05)
        return answer

    def gone(self, task):
        """Only what ended, and only after its retention."""
        ended = self.ended.get(task.handle)
        if not task.may_be_gone() or ended is None:
            self.bad("V2", "an answered handle has no task", task.handle)
        elif task.gone_at is not None and task.gone_at - ended < shapes.BRIEF_TTL_MS / 1000:
            self.bad("V2", f"gone {task.gone_at - ended:.3f} s after its end", task.handle)
        else:
            self.counts["swept"] += 1

    def why_open(self, handle):
        return dict(zip(("state", "phase", "attempt", "crashes", "claimed_by", "lives", "idle_s",
                         "message"), self.stack.query(
            "SELECT w.state, w.phase, w.attempt, w.crashes, i.process, k.incarnation IS NOT NULL,"
            " extract(epoch FROM clock_timestamp() - w.updated)::float8, w.message "
            "FROM holdfast.work w LEFT JOIN chaos.incarnation i USING (incarnation) "
            "LEFT JOIN holdfast.worker k USING (incarnation) WHERE w.task = %s",
            (rig.task_bytes(handle),))[0]))

    def nothing_is_left(self):
        """V9: ended. What was unknown was settled, and whoever hung up came back."""
        for task, (tool, effect_id, _) in self.rows.items():
            outcome = self.steps[task].get(OUTCOME_PLACE)
            state = self.work.get(task)
            if outcome is None and state is None:
                self.bad("V9", f"{effect_id} has neither work nor outcome", task, tool=tool)
            if outcome is not None and state is not None:
                self.bad("V6", f"{effect_id} is over and still to be run", task, state=state)
            if state is not None:
                self.bad("V9", f"{effect_id} is still {state}", task, **self.why_open(task))
        for task in self.tasks:
            if not task.over and task.handle not in self.work:
                self.bad("V9", "not at its end in time", task.handle, last=task.statuses[-1:])

    def phases(self):
        """V3: a recovery point for each phase of what completed, one outcome, hashes that hold."""
        for handle, (tool, effect_id, _) in self.rows.items():
            steps = self.steps[handle]
            for place, (kind, name, attempt, _, _, same, _) in steps.items():
                if not same:
                    self.bad("V3", f"the hash of step {name} of {effect_id} does not hold", handle)
                if attempt > shapes.RETRIES["attempts"]:
                    self.bad("V10", f"{attempt} attempts of {name}", handle)
            outcome = steps.get(OUTCOME_PLACE)
            if outcome is None:
                continue
            self.counts[outcome[1]] += 1
            done = [name for kind, name, *_ in steps.values() if kind == "recovery_point"]
            wanted = shapes.names_of(tool, *shapes.ANY_KIND)
            if tool == "chaos_error":
                wanted = wanted[:-1]
            if outcome[1] == "completed" and sorted(done) != sorted(wanted) and \
                    not self.refused(handle):
                self.bad("V3", f"completed with the recovery points {done}", handle)
            if outcome[1] == "cancelled" and tool not in shapes.CANCELLED:
                self.bad("V6", "cancelled, and nobody asked for it", handle)
            task = self.by_handle.get(handle)
            if task is not None and task.end is not None and task.statuses[-1:] != [outcome[1]]:
                self.bad("V6", f"the client was told {task.statuses}, the store has {outcome[1]}",
                         handle)

    def refused(self, handle):
        """A tool's own error ends a task before its last phase."""
        task = self.by_handle.get(handle)
        result = ((task.result if task else None) or {}).get("result") or {}
        return result.get("isError", False)

    def sql_phases(self):
        """V3 from inside: what a sql phase changed is there once, with its recovery point."""
        for tool in shapes.SHAPES:
            if not shapes.names_of(tool, "sql"):
                continue
            rows = collections.Counter()
            for effect_id, n, phase in self.stack.query(
                    f"SELECT effect_id, n, phase FROM holdfast_tool_{tool}.done"):
                rows[effect_id, n, phase] += 1
            known = {}
            for handle, task in self.by_handle.items():
                if task.tool != tool or handle not in self.rows:
                    continue
                names = {name for kind, name, *_ in self.steps[handle].values()
                         if kind == "recovery_point"}
                for phase in shapes.names_of(tool, "sql"):
                    place = task.effect_id, str(task.arguments["n"]), phase
                    known[place] = handle, phase in names
            for place, count in rows.items():
                handle, stands = known.get(place, (None, None))
                if count > 1:
                    self.bad("V3", f"sql phase {place} was committed {count} times", handle)
                if stands is False:
                    self.bad("V3", f"sql phase {place} is done without its recovery point", handle)
            for place, (handle, stands) in known.items():
                if stands and not rows[place]:
                    self.bad("V3", f"sql phase {place} did nothing and is kept as done", handle)
            self.counts["sql_phases"] += len(rows)

    def programs(self):
        """V3: no phase starts after its recovery point or the task's outcome. V5: keys."""
        keys = collections.defaultdict(set)
        for line in self.run_log:
            keys[line["task"], line["phase"]].add(line["key"])
            if line["what"] != "start":
                continue
            self.counts["phase_starts"] += 1
            for kind, name, _, _, at, *_ in self.steps.get(line["task"], {}).values():
                over = kind == "outcome" or (kind == "recovery_point" and name == line["phase"])
                if not over or line["at"] <= at:
                    continue
                if self.was_stopped(line):
                    self.counts["late_starts"] += 1
                else:
                    self.bad("V3", f"{line['phase']} started {line['at'] - at:.3f} s after "
                             f"{kind} {name}", line["task"], line=line)
        for (task, phase), several in keys.items():
            if len(several) > 1:
                self.bad("V5", f"{phase} had {len(several)} keys", task)

    def was_stopped(self, line):
        """A worker that was stopped may finish its turn of the loop before it knows."""
        return any(pid == line["parent"] and began < line["at"] < end + LATE_S
                   for pid, began, end in self.stack.stops)

    def settles(self):
        """V7: each settling has the record that names who and why, and nothing else has one."""
        ordered = {(one["task"], f"settle {one['verdict']}", one["by"], one["why"]): one
                   for one in self.operator.settles}
        recorded = [(task, *row) for task, rows in self.audit.items() for row in rows]
        for record, count in collections.Counter(recorded).items():
            if record not in ordered or count > 1:
                self.bad("V7", f"{count} audit records {record[1:]}", record[0])
        for record, one in ordered.items():
            if one["acknowledged"] and record not in recorded:
                self.bad("V7", f"settled {record[1:]}, and there is no record of it", one["task"])
            outcome = self.steps[one["task"]].get(OUTCOME_PLACE)
            if record in recorded:
                self.counts[f"settled {one['verdict']}"] += 1
                if one["verdict"] == "fail" and (outcome is None or outcome[1] != "failed"):
                    self.bad("V7", "settled as failed, and did not", one["task"])

    def verdicts(self, handle, phase):
        """What the operator's records say of that phase, in order."""
        kept = {(by, why) for _, by, why in self.audit[handle]}
        return [one["verdict"] for one in self.operator.settles
                if one["task"] == handle and one["phase"] == phase
                and (one["by"], one["why"]) in kept]

    def effects(self):
        keys = collections.defaultdict(set)
        for line in self.requests:
            keys[line["place"]].add(line["key"])
        self.keys = keys
        for (task, phase), several in keys.items():
            if len(several) > 1:
                self.bad("V5", f"{phase} was sent under {len(several)} keys", task)
        made = collections.Counter(place for place, _ in self.made)
        self.counts["effects"] = sum(made.values())
        for (task, phase), count in made.items():
            tool = self.rows[task][0] if task in self.rows else None
            unsafe = tool and phase in shapes.names_of(tool, *shapes.UNSAFE)
            if unsafe:
                self.unsafe(task, phase, count)
            elif count > 1:
                self.bad("V5", f"{count} effects of {phase}", task)
            if task not in self.rows and task not in self.by_handle:
                self.bad("V2", f"an effect of {phase} of a task that nobody knows", task)
        by_task = collections.defaultdict(set)
        for task, phase in made:
            by_task[task].add(phase)
        for task in self.rows:
            self.truth(task, {name for name in by_task[task] if not name.startswith("undo:")}, keys)
            self.undone(task)

    def unsafe(self, handle, phase, count):
        """V7: what has no key is sent once, and again only where a person said that it had not
        happened; what never came to be (refused, never connected) may be sent again."""
        sent = 1 + self.verdicts(handle, phase).count("absent")
        if count > sent:
            self.bad("V7", f"{count} effects of the unsafe {phase}, sent {sent} times", handle)
        self.counts["unsafe"] += count

    def undone(self, handle):
        """A cancelled task takes back what it has done, last first; no other takes anything back."""
        wanted = shapes.undone_names_of(self.rows[handle][0])
        outcome = self.steps[handle].get(OUTCOME_PLACE)
        if not wanted or outcome is None:
            return
        done = [name for _, (kind, name, *_) in sorted(self.steps[handle].items())
                if kind == "recovery_point" and name in wanted]
        back = [phase.removeprefix("undo:") for (task, phase), _ in
                sorted(self.made, key=lambda one: one[1]["at"])
                if task == handle and phase.startswith("undo:")]
        if outcome[1] == "cancelled" and back != done[::-1]:
            self.bad("undo", f"cancelled with {done} done, and taken back was {back}", handle)
        if outcome[1] == "completed" and back:
            self.bad("undo", f"completed, and taken back was {back}", handle)
        self.counts["undone"] += len(back)

    def plain_results(self):
        """The stored result is the same by every way that leads to it."""
        for task in self.tasks:
            if task.plain_end is None or task.result is None:
                continue
            self.counts["plain_results"] += 1
            stored = json.loads(task.plain_end)
            told = task.result.get("result") or task.result.get("error") or {}
            told = {name: value for name, value in told.items()
                    if name not in ("resultType", "_meta")}
            if task.result["status"] == "completed" and stored != told:
                self.bad("V6", "a plain client was told another result", task.handle, plain=stored,
                         task_client=told)
            if task.result["status"] == "failed" and not self.same_failure(stored, told):
                self.bad("V6", "a plain client was told another failure", task.handle,
                         plain=stored, task_client=told)

    @staticmethod
    def same_failure(stored, error):
        """As an error, or as an isError result that has its data."""
        if "code" in stored:
            return stored["code"] == error.get("code")
        data = error.get("data") or {}
        said = stored.get("structuredContent") or {}
        return stored.get("isError") is True and said.get("executed") == data.get("executed")

    def truth(self, handle, made, keys):
        """V7: what was told of a task does not deny what happened."""
        steps = self.steps[handle]
        points = {name: (key, settled) for kind, name, _, key, _, _, settled in steps.values()
                  if kind == "recovery_point"}
        done = {name: key for name, (key, _) in points.items()}
        for phase in shapes.names_of(self.rows[handle][0], *shapes.EFFECTFUL):
            if phase in done and phase not in made:
                self.bad("V7", f"{phase} is done and has no effect", handle)
            # What was settled was not answered: it has no key of its own to show.
            if phase in done and not points[phase][1] and \
                    done[phase] not in keys[handle, phase]:
                self.bad("V5", f"{phase} was kept under another key than it was sent", handle)
        outcome = steps.get(OUTCOME_PLACE)
        task = self.by_handle.get(handle)
        if outcome is None or task is None or task.result is None:
            return
        open_effects = made - set(done)
        message = task.result.get("statusMessage", "")
        error = task.result.get("error") or {}
        if outcome[1] == "completed" and open_effects and not self.refused(handle):
            self.bad("V7", f"completed without {open_effects}, which happened", handle)
        if outcome[1] == "cancelled":
            hidden = [phase for phase in open_effects
                      if f"{phase} may have taken effect" not in message]
            if hidden:
                self.bad("V7", f"told as cancelled, and {hidden} happened", handle)
        if outcome[1] == "failed":
            data = error.get("data", {})
            if made and data.get("executed") == "no":
                self.bad("V7", f"failed, executed no, and {made} happened", handle, error=error)
            if open_effects and data.get("type") not in ("phase_failed", "outcome_unknown"):
                self.bad("V7", f"failed, and {open_effects} happened", handle, error=error)
            settled = any(act == "settle fail" for act, _, _ in self.audit[handle])
            if settled != (data.get("type") == "outcome_unknown"):
                self.bad("V7", "ended as unknown, and nobody said so", handle, error=error)
            if not self.stack.refusals and not settled:
                self.bad("V7", "failed, and nothing refused it", handle, error=error)

    def logs(self):
        """Our processes never log an error but those that a fault explains."""
        for process in self.stack.processes:
            for line in process.log().splitlines():
                if any(mark in line for mark in ("assertion", "runtime error:", "Sanitizer")):
                    self.findings.add("alive", f"{process.name}: {line[:300]}")
                elif '"level":"error"' in line or "level=error" in line:
                    self.counts["error_lines"] += 1
                    if self.counts["error_lines"] <= 3:
                        print(f"note: {process.name}: {line[:300]}", flush=True)
