"""Connections to Postgres that turn into black holes (F7): packets of a worker's or an API
process's connections are dropped, both ways or one way, or answered with a reset that only the client sees.
Real TCP, in a network namespace of the run's own, with nftables. Some holes close before anybody
notices, so that late packets arrive; the others are left behind. Either way claims and locks are
free in time, tasks go on elsewhere, and the process is back on new connections."""

import os
import subprocess
import time

import patience
import rig
import world

FREE_S_MAX = 10         # claims and locks, and until the process is back
BRIEF_S = (0.1, 0.6)    # of a hole that closes again
WAYS = ("both ways", "to the server", "to the client", "reset")
# The client's side, and the server's: shorter than what is installed, in the same order.
CLIENT = ("host=127.0.0.1 port=5432 sslmode=disable gssencmode=disable tcp_user_timeout=700 "
          "keepalives_idle=1 keepalives_interval=1 keepalives_count=2")
SERVER = {"tcp_user_timeout": "700ms", "tcp_keepalives_idle": "1s", "tcp_keepalives_interval": "1s",
          "tcp_keepalives_count": "2", "idle_in_transaction_session_timeout": "1s"}
# Ports of clients whose packets are lost on the way up, on the way down, or reset.
RULES = """table ip hole {
    set up { type inet_service; }
    set down { type inet_service; }
    set refuse { type inet_service; }
    chain input {
        type filter hook input priority 0;
        tcp dport 5432 tcp sport @up drop
        tcp sport 5432 tcp dport @down drop
        tcp dport 5432 tcp sport @refuse reject with tcp reset
    }
}
"""
SETS = {"both ways": ("up", "down"), "to the server": ("up",), "to the client": ("down",),
        "reset": ("refuse",)}


def nft(text):
    done = subprocess.run(["nft", "-f", "-"], input=text, text=True, capture_output=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"nft: {done.stderr}")


class HoledWorld(world.World):
    def __init__(self, findings, **more):
        self.outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        rig.own_network()
        nft(RULES)
        super().__init__(findings, workers=4, **more)

    def start_downstream(self):
        with self.cluster.connect("postgres") as admin:
            admin.execute("ALTER SYSTEM SET listen_addresses = '127.0.0.1'")
        self.cluster.stop("fast")
        self.start_postgres()
        return super().start_downstream()

    def command(self, *args, **more):
        done = super().command(*args, **more)
        if args[0] == "migrate":
            with self.cluster.connect() as admin:
                for role in world.ROLES.values():
                    for name, value in SERVER.items():
                        admin.execute(f"ALTER ROLE {role} SET {name} = '{value}'")
        return done

    def where(self, _name):
        return CLIENT

    def stop(self):
        super().stop()
        rig.in_namespace("setns", self.outside, rig.CLONE_NEWNET)
        os.close(self.outside)

    def connections(self, name):
        """{client port: backend} of that process."""
        return dict(self.ask("SELECT client_port, pid FROM pg_stat_activity "
                             "WHERE application_name = %s AND client_port > 0", (name,)))

    def claims(self, name):
        """[(task, token)] that it holds."""
        return self.ask("SELECT w.task, w.token FROM holdfast.work w JOIN chaos.incarnation i "
                        "USING (incarnation) WHERE w.state = 'running' AND i.process = %s", (name,))


class Faults:
    def black_hole(self):
        with self.lock:
            cell = self.rarest("black_hole")
            self.cells["black_hole"][cell] += 1  # the other lanes take another
        who, way = cell.split(", ")
        stack = self.stack
        # There are more processes than lanes, so that one of the others is free.
        sides = {"worker": stack.workers, "api": stack.apis}
        for side in sorted(sides, key=lambda one: one != who):
            name = self.take(one.name for one in sides[side])
            if name is not None:
                break
        process = next(one for one in sides[side] if one.name == name)
        try:
            hit = self.hole(process, way)
        finally:
            self.down.discard(name)
            with self.lock:
                self.cells["black_hole"][cell] -= 1
        return hit and hit | {f"{side}, {way}"}

    def hole(self, process, way):
        stack, name, api = self.stack, process.name, process in self.stack.apis
        if api:
            self.asking(stack.apis.index(process), "black_hole")
        claims, began = [], time.monotonic()
        while not api and not claims and time.monotonic() < began + 0.5:
            claims = stack.claims(name)
        self.was_hit("black_hole", *(rig.task_text(task) for task, _ in claims))
        lost = stack.connections(name)
        if not lost:
            return False
        ports, began = ", ".join(map(str, lost)), time.monotonic()
        nft("".join(f"add element ip hole {one} {{ {ports} }}\n" for one in SETS[way]))
        brief = self.dice.random() < 0.4
        if brief:
            time.sleep(self.dice.uniform(*BRIEF_S))
        else:
            self.left_behind(process, claims, lost, began)
        nft("".join(f"delete element ip hole {one} {{ {ports} }}\n" for one in SETS[way]))
        self.soon("back", began, lambda: stack.connections(name) and
                  (not api or stack.ready(process)), name)
        return {"closed again" if brief else "left behind", "claims" if claims else "no claims"}

    def left_behind(self, process, claims, lost, began):
        stack, name = self.stack, process.name
        rows = stack.ask("SELECT clock_timestamp()")
        self.soon("claims_free", began, lambda: not set(claims) & set(stack.claims(name)), name)
        self.soon("locks_free", began, lambda: not stack.ask(
            "SELECT 1 FROM pg_stat_activity WHERE pid = ANY (%s) AND backend_xid IS NOT NULL",
            (list(lost.values()),)), name)
        self.soon("others_go_on", began, lambda: stack.ask(
            "SELECT 1 FROM holdfast.step WHERE at > %s LIMIT 1", rows[0]), name)
        self.soon("redialled", began, lambda: set(stack.connections(name)) - set(lost), name)

    def soon(self, what, began, holds, name):
        while not holds():
            if time.monotonic() > began + FREE_S_MAX and patience.since(began) > FREE_S_MAX:
                self.findings.add("F7", f"not {what} within {FREE_S_MAX} s", process=name)
                return
            time.sleep(0.01)
        self.measure(f"{what}_s_max", round(time.monotonic() - began, 3))


WANTED = {"black_hole": tuple(f"{who}, {way}" for who in ("worker", "api") for way in WAYS)}
CI = {"black_hole": 50}
SOAK = {"black_hole": [("black_hole", 1_000)]}
LANES = {"black_hole": 4}
WORLD = HoledWorld
