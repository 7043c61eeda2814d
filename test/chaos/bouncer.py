"""PgBouncer in transaction mode between every process and Postgres: nothing of ours may rest on a
session. Workers and API processes are killed and stopped behind it and commits' answers are lost
(F3, F6, F8 through it), and it is killed, restarted and told to give up its connections itself
(F19). The first API process and worker have a wake DSN straight to Postgres, the others find work
by polling alone. Migration, tools and the operator go through it, too."""

import os
import shutil
import signal
import time

import psycopg

import rig
import world

WAYS = ("kill_worker", "kill_api", "stop_worker", "lost_commit", "kill -9", "restart", "reconnect")
WANTED = {"pgbouncer": WAYS}
CI = {"pgbouncer": 63}
SOAK = {"pgbouncer": [("pgbouncer", 2_000)]}
USERS = ("postgres", *world.ROLES.values())
# Fewer connections a user than its processes hold, so that they share them.
POOL = 6
AWAY_S_MAX = 0.3
# What PgBouncer itself keeps the same for each client; anything else that a session was told would
# be another client's a moment later.
TRACKED = ["application_name", "client_encoding", "DateStyle", "TimeZone", "IntervalStyle",
           "standard_conforming_strings"]
LEFT_BEHIND = """SELECT format('SET ROLE %%s', current_user) WHERE current_user <> session_user
UNION ALL SELECT format('SET %%s = %%s', name, setting) FROM pg_settings
WHERE source = 'session' AND name <> ALL (%s)
UNION ALL SELECT 'PREPARE ' || name FROM pg_prepared_statements
UNION ALL SELECT 'advisory lock' FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND a.usename LIKE 'holdfast%%' AND a.state = 'idle'"""
DIRECT = {"api-1": "api", "worker-1": "worker"}


def find():
    path = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not os.path.exists(path):
        raise RuntimeError("no pgbouncer: install the package pgbouncer")
    return path


class Pooler:
    """A PgBouncer of a harness's cluster: `start` is the harness's own. It refuses to run as root,
    as Postgres does."""

    def __init__(self, cluster, start):
        self.cluster, self.port = cluster, rig.free_port()
        folder = cluster.folder
        self.socket = folder / f".s.PGSQL.{self.port}"
        cluster.write(folder / "users", "".join(f'"{user}" ""\n' for user in USERS))
        cluster.write(folder / "pgbouncer.ini", (
            f"[databases]\n* = host={folder}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir = {folder}\n"
            f"auth_type = trust\nauth_file = {folder}/users\nadmin_users = postgres\n"
            f"pool_mode = transaction\ndefault_pool_size = {POOL}\nmax_client_conn = 500\n"
            "server_login_retry = 0.1\nlog_connections = 0\nlog_disconnections = 0\n"
            "log_pooler_errors = 0\n"))
        self.process = start("pgbouncer", [*cluster.as_user, find(), folder / "pgbouncer.ini"])
        self.up()

    def dsn(self, user="postgres", database="holdfast"):
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def up(self):
        rig.until(self.answers, 10, "pgbouncer is up", 0.01)

    def answers(self):
        try:
            psycopg.connect(self.dsn()).close()
            return True
        except psycopg.Error:
            return False

    def reconnect(self):
        with psycopg.connect(self.dsn(database="pgbouncer"), autocommit=True) as console:
            console.execute("RECONNECT")


class Bounced(world.World):
    def __init__(self, findings, through_proxy=True, **more):
        self.pooler = None
        super().__init__(findings, through_proxy=True, **more)

    def env(self, **more):
        through = {"HOLDFAST_DSN": self.pooler.dsn()} if self.pooler else {}
        return super().env(**through) | more

    def postgres_socket(self):
        return self.pooler.socket

    def start_downstream(self):
        self.proxy_port = 0  # not there yet; the pooler does not ask for it
        self.pooler = Pooler(self.cluster, self.start)
        return super().start_downstream()

    def start(self, name, argv):
        if name in DIRECT:
            user = world.ROLES[DIRECT[name]]
            self.environments[name] = {
                "HOLDFAST_WAKE_DSN": f"{self.cluster.dsn(user)} application_name={name}"}
        return super().start(name, argv)


WORLD = Bounced


class Faults:
    def pgbouncer(self):
        way = self.rarest("pgbouncer")
        self.sessions_are_clean()
        # Or PgBouncer gives a session on whose client went, with an answer to come.
        if (deepest := self.stack.order("deepest")) > 1:
            self.findings.add("session", f"{deepest} acts were open at once on a connection")
        if way in ("kill_worker", "kill_api", "stop_worker", "lost_commit"):
            hit = getattr(self, way)()
            return hit and {way} | {f"{way} {cell}" for cell in hit}
        running = self.stack.running()
        self.was_hit("pgbouncer", *(task for _, _, task in running))
        self.pooler_away(way)
        self.let_work(0.1)
        return {way} | {f"pooler {step}" for _, step, _ in running}

    def sessions_are_clean(self):
        """Of each role, the session that a client gets now."""
        for user in world.ROLES.values():
            try:
                with psycopg.connect(self.stack.pooler.dsn(user), prepare_threshold=None) as client:
                    rows = client.execute(LEFT_BEHIND, (TRACKED,)).fetchall()
            except psycopg.Error:
                continue  # its server's connection was the one that a fault ended
            for left, in rows:
                self.findings.add("session", f"a session of {user} was left with {left}")

    def pooler_away(self, way):
        pooler = self.stack.pooler
        if way == "reconnect":
            pooler.reconnect()
            return
        self.stack.downed.add(pooler.process)
        if way == "kill -9":
            pooler.process.kill()
        else:
            pooler.process.signal(signal.SIGTERM)
            pooler.process.popen.wait(20)
        time.sleep(self.dice.random() * AWAY_S_MAX)
        self.stack.begin(pooler.process)
        pooler.up()
