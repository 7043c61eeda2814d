"""Two Postgres at two addresses that never change: one takes writes, the other is its synchronous
standby. They change places at each fail-over; the old primary is rewound to follow the new one."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import rig

# What pg_rewind needs of both.
REWINDABLE = "wal_log_hints = on\nwal_keep_size = '256MB'\n"


class Node(rig.Cluster):
    """A data folder that is copied from another."""

    def __init__(self, folder, like):  # pylint: disable=super-init-not-called
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "pg"
        self.as_user = like.as_user
        self.folder.mkdir(exist_ok=True)
        if self.as_user:
            shutil.chown(self.folder, "postgres", "postgres")
        os.chmod(self.folder, 0o711)

    def follow(self, primary):
        """As its standby, from now on."""
        copy(self, primary, "-R")
        self.start()

    def promote(self):
        self.run("pg_ctl", "-w", "-D", self.data, "promote")


class Pair:
    def __init__(self, first, folder):
        """first: a rig.Cluster that is up. The other's folder is made."""
        self.primary, self.standby = first, Node(folder, first)
        self.follows = False
        self.folders = [first.folder, self.standby.folder]
        first.write("postgresql.auto.conf", REWINDABLE)
        first.stop("fast")
        start(first)

    def where(self, turned=False):
        """The hosts, for a connection string."""
        return "host=" + ",".join(map(str, self.folders[::-1] if turned else self.folders))

    def follow(self):
        """The other follows the primary, and from now on nothing is committed without it."""
        node = self.standby
        source = f"host={self.primary.folder} user=postgres dbname=postgres"
        if not node.data.exists() or not self.rewind(source):
            node.run("rm", "-rf", node.data)
            copy(node, self.primary)
        # In place of the primary's: once promoted it waits for nobody.
        node.write("postgresql.auto.conf",
                   f"unix_socket_directories = '{node.folder}'\n"
                   f"{REWINDABLE}primary_conninfo = 'host={self.primary.folder} user=postgres'\n"
                   "wal_retrieve_retry_interval = '100ms'\n")
        node.write("standby.signal", "")
        self.standby_back()
        with self.primary.connect("postgres") as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
        self.wait_sync()

    def rewind(self, source):
        """False: a new copy is needed, since what it would need of its own past is gone."""
        with self.primary.connect("postgres") as admin:
            admin.execute("CHECKPOINT")  # only then its control file has its timeline
        try:
            self.standby.run("pg_rewind", "-D", self.standby.data, f"--source-server={source}",
                             "--no-sync")
        except RuntimeError:
            return False
        return True

    def standby_back(self):
        if not self.follows:
            start(self.standby)
        self.follows = True

    def standby_gone(self):
        self.standby.stop()
        self.follows = False

    def wait_sync(self, seconds=30):
        """Until a commit of now is at both."""
        with self.primary.connect("postgres") as admin:
            rig.until(lambda: admin.execute("SELECT 1 FROM pg_stat_replication "
                                            "WHERE sync_state = 'sync'").fetchone(),
                      seconds, "the standby follows")
            admin.execute("SELECT pg_logical_emit_message(true, 'pair', '')")

    def fail_over(self):
        """kill -9 of the primary, and the standby takes its place; when it took writes."""
        crash(self.primary)
        self.standby_back()
        return self.promote()

    def promote(self):
        """The standby becomes the primary; the wall clock at which it took writes."""
        with self.standby.connect("postgres") as admin:
            self.standby.run("pg_ctl", "-W", "-D", self.standby.data, "promote")
            rig.until(lambda: not admin.execute("SELECT pg_is_in_recovery()").fetchone()[0],
                      30, "the standby is promoted", 0.002)
        self.primary, self.standby = self.standby, self.primary
        self.follows = False
        return time.time()

    def stop(self):
        for node in (self.standby, self.primary):
            if node.data.exists():
                node.stop()


def copy(node, primary, *more):
    """Makes it of a running one, with an address of its own; it is not started."""
    node.run("pg_basebackup", "-h", primary.folder, "-U", "postgres", "-D", node.data,
             "--checkpoint=fast", "--no-sync", *more)
    node.write("postgresql.conf", f"unix_socket_directories = '{node.folder}'\n", append=True)


def crash(node):
    """kill -9 of its postmaster; its children see that, and end."""
    pid = int((node.data / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    rig.until(lambda: rig.process_gone(pid), 10, "the postmaster is gone", 0.005)


def start(node):
    """Until the children of its last life have ended, a new one refuses to start."""
    for _ in range(400):
        try:
            node.start()
            return
        except subprocess.CalledProcessError:
            time.sleep(0.05)
    raise RuntimeError(f"{node.folder} does not start")
