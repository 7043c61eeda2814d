"""Questions and answers in the store: ask and answer against each other, a cancel,
the reclaim and the time-out, each in both orders, with two real sessions at controlled points; lost
answers sent again; the backstop that must find nothing, and does find what is planted."""

import json
import random

from sql_rig import Bench, Late, Store, rig, week_of
from rig import check, equal

counts = {"races": 0, "storms": 0}
STORMS = 120
YES = '{"action": "accept",  "content": {"ok": 1.0}}'  # its bytes count


def ask(store, task, token, keys=("k",), wait_ms=None, phase=0, sent=False):
    questions = json.dumps([{"key": key, "request": {"method": "roots/list"}} for key in keys])
    return store.one("SELECT ask(%s, %s, %s, %s, %s, %s, %s, 'asks: why')", week_of(task), task, token,
                     phase, questions, wait_ms, sent)


def answer(store, owner, task, **answers):
    text = "{" + ",".join(f'"{key}":{value}' for key, value in answers.items()) + "}"
    return store.rows("SELECT known, woken, taken FROM answer(%s, %s, %s, %s)", week_of(task), owner,
                      task, text)[0]


def requests(store, owner, task):
    rows = store.rows("SELECT state, requests FROM poll_asking(%s, %s, %s)", week_of(task), owner, task)
    return rows[0] if rows else None


def sweep(store, most=1000):
    """All pages of the backstop: how many it woke."""
    due = task = None
    woken = 0
    while True:
        n, due, task = store.rows("SELECT * FROM wake_answered(%s, %s, %s)", due, task, most)[0]
        woken += n
        if due is None:
            return woken


class Inbox(Bench):
    def begin(self):
        super().begin()
        self.c = Store(self.cluster)
        self.incarnation = self.new_worker()
        self.a.rows("UPDATE tool SET inputs = '{k,early}' RETURNING 1")

    def one(self):
        """A claimed task that is alone in the queue."""
        self.clear()
        return self.claimed(self.incarnation)

    def state(self, task):
        return self.a.rows("SELECT state, attempt FROM work WHERE task = %s", task)[0]

    def again(self, store=None):
        """A new claim of the one task: token, and what it is told of the inbox."""
        (store or self.a).rows("UPDATE work SET due = clock_timestamp() WHERE state = 'ready' RETURNING 1")
        rows = (store or self.a).rows("SELECT token, kinds, names, states FROM"
                                      " claim(%s, %s, 1, gen_random_uuid())", self.incarnation,
                                      [self.tool])
        if not rows:
            return None, {}
        token, kinds, names, states = rows[0]
        return token, {name: json.loads(state) for kind, name, state in
                       zip(kinds or [], names or [], states or []) if kind == "inbox"}


class Tests(Inbox):
    # --- one session ---

    def a_task_waits_and_goes_on(self):
        task, token = self.one()
        equal(ask(self.a, task, token, ("k", "l"), sent=True), "waiting", "asked")
        equal(self.state(task), ("waiting", 0), "it waits, and no attempt is spent")
        equal(self.a.one("SELECT sent IS NOT NULL FROM work WHERE task = %s", task), True, "sent stays")
        equal(ask(self.a, task, token, ("k", "l")), "lost", "a lost answer, sent again")
        equal(self.a.one("SELECT count(*) FROM inbox WHERE task = %s", task), 2, "nothing twice")
        equal(requests(self.a, self.owner, task),
              ("waiting", '{"k":{"method": "roots/list"},"l":{"method": "roots/list"}}'), "as polled")
        equal(answer(self.a, self.other, task, k=YES), (False, False, 0),
              "a stranger's is no answer")
        equal(answer(self.a, self.owner, task, k=YES, m=YES), (True, False, 1), "a part, and unknown")
        equal(answer(self.a, self.owner, task, k="7"), (True, False, 0), "the first of a key stands")
        equal(requests(self.a, self.owner, task)[1], '{"l":{"method": "roots/list"}}', "what is left")
        equal(self.state(task)[0], "waiting", "still")
        equal(answer(self.a, self.owner, task, l="[]"), (True, True, 1), "the last one wakes")
        equal(requests(self.a, self.owner, task), ("ready", None), "nothing is left")
        token, told = self.again()
        equal(told["k"]["answer"], json.loads(YES), "the claim is told")
        equal(self.a.one("SELECT answer FROM inbox WHERE task = %s AND key = 'k'", task), YES,
              "byte for byte")
        equal(self.a.finish((task, token)), ["held"], "it ends")
        equal(answer(self.a, self.owner, task, k=YES), (True, False, 0), "and takes no more")

    def early_answers_wait_for_their_question(self):
        task, token = self.one()
        equal(answer(self.a, self.owner, task, early=YES, other=YES), (True, False, 1), "kept")
        equal(answer(self.a, self.owner, task, early="7"), (True, False, 0), "once")
        equal(ask(self.a, task, token, ("early",)), "ready", "asked")
        equal(self.state(task)[0], "ready", "it does not wait")
        _, told = self.again()
        equal((told["early"]["answer"], told["early"]["request"]),
              (json.loads(YES), {"method": "roots/list"}), "the first, under its request")

    def junk_writes_nothing(self):
        task, token = self.one()
        answer(self.a, self.owner, task, early=YES)
        ask(self.a, task, token, ("k", "l"))
        answer(self.a, self.owner, task, k=YES)

        def junk():
            equal(answer(self.a, self.owner, task, never=YES), (True, False, 0), "unknown")
            equal(answer(self.a, self.owner, task, k="7"), (True, False, 0), "answered")
            equal(answer(self.a, self.owner, task, early="7"), (True, False, 0), "early, again")
            equal(answer(self.a, self.owner, task), (True, False, 0), "none")

        self.writes_no_wal(junk, "what is not taken writes no WAL")
        equal(answer(self.a, self.owner, task, never=YES, l=YES), (True, True, 1), "one of two is taken")

    def silence_has_its_time(self):
        task, token = self.one()
        ask(self.a, task, token, ("k", "l"), wait_ms=60_000)
        answer(self.a, self.owner, task, l=YES)
        self.a.rows("UPDATE inbox SET until = clock_timestamp() WHERE task = %s RETURNING 1", task)
        self.a.rows("UPDATE work SET due = clock_timestamp() RETURNING 1")
        token, told = self.again()
        equal((told["k"]["how"], told["l"]["how"]), ("silence", "answer"), "the claim closes it")
        equal(answer(self.a, self.owner, task, k=YES), (True, False, 0), "later is too late")
        equal(ask(self.a, task, token, ("k", "l"), wait_ms=60_000), "ready", "asked again")
        equal(self.state(task)[0], "ready", "nothing is open")
        # Due by its deadline where there is no time-out, and by the earlier otherwise.
        for wait_ms, earlier in ((None, False), (1000, True), (10 ** 10, False)):
            task, token = self.one()
            ask(self.a, task, token, wait_ms=wait_ms)
            equal(self.a.one("SELECT due < deadline FROM work WHERE task = %s", task), earlier, "due")

    def another_phase_has_its_own_keys(self):
        task, token = self.one()
        ask(self.a, task, token)
        answer(self.a, self.owner, task, k=YES)
        token, _ = self.again()
        self.a.step((task, token, 0))
        equal(ask(self.a, task, token, ("k",), phase=0), "lost", "a phase that is done asks nothing")
        equal(ask(self.a, task, token, ("k", "n"), phase=1), "waiting", "the next one does")
        token, told = self.again()
        equal(token, None, "it waits for n alone")
        answer(self.a, self.owner, task, n=YES)
        token, told = self.again()
        equal((told["k"]["phase"], told["k"]["answer"], told["n"]["phase"]), (0, None, 1),
              "and learns that k is another's")

    def what_an_earlier_phase_asked_holds_up_nobody(self):
        """A program that was started anew and no longer asks leaves its question behind."""
        task, token = self.one()
        ask(self.a, task, token)
        self.a.rows("UPDATE work SET state = 'ready' RETURNING 1")
        token, _ = self.again()
        self.a.step((task, token, 0))
        equal(ask(self.a, task, token, ("n",), phase=1), "waiting", "the next phase asks")
        equal(requests(self.a, self.owner, task)[1], '{"n":{"method": "roots/list"}}', "for its own")
        equal(answer(self.a, self.owner, task, n=YES), (True, True, 1), "and goes on when it has it")

    def wishes_come_first(self):
        task, token = self.one()
        self.a.cancel(self.owner, task)
        ask(self.a, task, token)
        equal(self.state(task)[0], "ready", "who is to stop waits for nobody")
        task, token = self.one()
        self.a.rows("UPDATE work SET park = true RETURNING 1")
        ask(self.a, task, token)
        equal(self.state(task)[0], "parked", "who is to be parked is parked")
        equal(answer(self.a, self.owner, task, k=YES), (True, False, 1), "an answer is kept")
        equal(self.state(task)[0], "parked", "and wakes nobody")
        self.a.rows("UPDATE work SET state = 'ready', park = false RETURNING 1")
        equal(self.again()[1]["k"]["how"], "answer", "taken up, it is told")

        task, token = self.one()
        self.intend(task, token)
        ask(self.a, task, token)
        equal(self.a.one("SELECT count(*) FROM intent WHERE task = %s", task), 0, "no intent is left")
        self.a.cancel(self.owner, task)
        equal(self.a.poll(self.owner, task), "cancelled", "a cancel ends what waits")
        equal(requests(self.a, self.owner, task), ("cancelled", None), "and nothing is asked any more")

        task, token = self.one()
        ask(self.a, task, token)
        self.a.rows("UPDATE work SET deadline = clock_timestamp() RETURNING 1")
        equal(self.a.one("SELECT expire_deadlines(100)"), 1, "so does its deadline")

    # --- two sessions ---

    def ask_and_answer_meet_in_both_orders(self):
        """An early answer that meets the question: whoever comes second sees the other."""
        for first in ("ask", "answer"):
            task, token = self.one()
            asks = lambda store: ask(store, task, token, ("k",))  # noqa: E731
            answers = lambda store: answer(store, self.owner, task, k=YES)  # noqa: E731
            one, two = (asks, answers) if first == "ask" else (answers, asks)
            with self.a.conn.transaction():
                one(self.a)
                late = Late(lambda two=two: two(self.b))
                check(late.blocked(), f"{first} first: the other waits")
            said = late.ended()
            equal(said, (True, True, 1) if first == "ask" else "ready", f"{first} first")
            equal(self.state(task)[0], "ready", f"{first} first: it is ready")
            equal(self.again()[1]["k"]["how"], "answer", "and told")
            counts["races"] += 1

    def two_last_answers_wake_once_and_surely(self):
        """Each sees the other's key open until its turn: the second wakes."""
        task, token = self.one()
        ask(self.a, task, token, ("k", "l"))
        with self.a.conn.transaction():
            equal(answer(self.a, self.owner, task, k=YES)[1], False, "the first wakes nobody")
            late = Late(lambda: answer(self.b, self.owner, task, l=YES))
            check(late.blocked(), "the second waits")
        equal(late.ended(), (True, True, 1), "and wakes")
        equal(self.state(task)[0], "ready", "it is ready")
        with_same = self.one()
        ask(self.a, *with_same)
        with self.a.conn.transaction():
            answer(self.a, self.owner, with_same[0], k='"a"')
            late = Late(lambda: answer(self.b, self.owner, with_same[0], k='"b"'))
            check(late.blocked(), "two on one key")
        equal(late.ended(), (True, False, 0), "the second changes nothing")
        equal(self.a.one("SELECT answer FROM inbox WHERE task = %s", with_same[0]), '"a"', "the first")
        counts["races"] += 2

    def answer_and_cancel_meet_in_both_orders(self):
        for first in ("answer", "cancel"):
            task, token = self.one()
            ask(self.a, task, token)
            answers = lambda store: answer(store, self.owner, task, k=YES)  # noqa: E731
            cancels = lambda store: store.cancel(self.owner, task)  # noqa: E731
            one, two = (answers, cancels) if first == "answer" else (cancels, answers)
            with self.a.conn.transaction():
                one(self.a)
                late = Late(lambda two=two: two(self.b))
                check(late.blocked(), f"{first} first: the other waits")
            said = late.ended()
            if first == "cancel":
                equal(said, (True, False, 0), "an answer to what is over")
            equal(self.a.poll(self.owner, task), "cancelled", f"{first} first: it ends")
            counts["races"] += 1

    def answer_and_time_out_meet_in_both_orders(self):
        for first in ("answer", "claim"):
            task, token = self.one()
            ask(self.a, task, token, wait_ms=60_000)
            self.a.rows("UPDATE inbox SET until = clock_timestamp() WHERE task = %s RETURNING 1", task)
            self.a.rows("UPDATE work SET due = clock_timestamp() RETURNING 1")
            if first == "answer":
                with self.a.conn.transaction():
                    answer(self.a, self.owner, task, k=YES)
                    equal(self.again(self.b)[0], None, "a claim passes by what is being answered")
                equal(self.again()[1]["k"]["how"], "answer", "answer first")
            else:
                with self.a.conn.transaction():
                    equal(self.again()[1]["k"]["how"], "silence", "claim first")
                    late = Late(lambda: answer(self.b, self.owner, task, k=YES))
                    check(late.blocked(), "the answer waits")
                equal(late.ended(), (True, False, 0), "and is too late")
            counts["races"] += 1

    def ask_and_reclaim_meet(self):
        task, token = self.one()
        dead = self.incarnation
        self.a.one("DELETE FROM worker WHERE incarnation = %s RETURNING 1", dead)
        with self.a.conn.transaction():
            check(self.a.one("SELECT reclaim(100)") >= 1, "reclaimed")
            late = Late(lambda: ask(self.b, task, token))
            check(late.blocked(), "the question waits")
        equal(late.ended(), "lost", "and is not asked")
        equal(self.a.one("SELECT count(*) FROM inbox WHERE task = %s", task), 0, "no row")
        self.a.beat(self.incarnation, True)
        token, _ = self.again()
        with self.a.conn.transaction():
            ask(self.a, task, token)
            late = Late(lambda: self.b.one("SELECT reclaim(100)"))
            late.ended()
            check(not late.is_alive(), "a reclaim waits for no question")
        equal(self.state(task)[0], "waiting", "asked, it belongs to no worker")
        counts["races"] += 2

    def storms_leave_nobody_waiting(self):
        """Two sessions answer three keys in any order while a third party asks: never overlooked."""
        for round_ in range(STORMS):
            task, token = self.one()
            keys = ["k", "early", "l"]
            order = [random.sample(keys, 3), random.sample(keys, 3)]

            def run(store, mine):
                for key in mine:
                    answer(store, self.owner, task, **{key: f'"{round_}"'})

            late = [Late(lambda s=s, o=o: run(s, o)) for s, o in zip((self.a, self.b), order)]
            ask(self.c, task, token, keys)
            for one in late:
                one.ended()
            run(self.c, keys)
            equal(self.state(task)[0], "ready", "it is ready")
            counts["storms"] += 1

    # --- the backstop ---

    def the_backstop_finds_what_is_planted_alone(self):
        tasks = []
        for n in range(7):
            self.new_task()
            task, token = self.a.claim(self.incarnation, self.tool)[0][:2]
            ask(self.a, task, token, ("k", "l"))
            answer(self.a, self.owner, task, k=YES)
            tasks.append(task)
        equal(sweep(self.a, 2), 0, "what waits for an answer waits")
        for task in tasks[2:5]:
            self.a.rows("UPDATE inbox SET how = 'answer', answer = '1', answered = now()"
                        " WHERE task = %s AND key = 'l' RETURNING 1", task)
        for most in (2, 1000):
            got = sweep(self.a, most)
            equal(got, 3 if most == 2 else 0, "three were overlooked, in pages")
        equal([self.state(task)[0] for task in tasks],
              ["waiting"] * 2 + ["ready"] * 3 + ["waiting"] * 2, "they are ready")
        # One that is being answered is passed by, and is not counted.
        with self.b.conn.transaction():
            answer(self.b, self.owner, tasks[0], l=YES)
            equal(sweep(self.a), 0, "an answer on its way is no bug")
        equal(self.state(tasks[0])[0], "ready", "it woke by itself")

    def a_swept_task_leaves_no_row(self):
        task, token = self.one()
        ask(self.a, task, token)
        answer(self.a, self.owner, task, k=YES)
        token, _ = self.again()
        self.a.finish((task, token))
        self.a.rows("UPDATE step SET at = at - interval '8 days' WHERE task = %s RETURNING 1", task)
        self.a.one("SELECT sweep(%s, 100)", week_of(task))
        equal(self.a.one("SELECT count(*) FROM inbox WHERE task = %s", task), 0, "swept with it")


if __name__ == "__main__":
    Tests().run()
    rig.finish("inbox", counts, {"races": 9, "storms": STORMS})
