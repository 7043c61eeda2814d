"""File systems of a test's own: one that fills up, and one whose power can be cut.

They are mounted in a mount namespace of this process, so that nobody else sees them and the kernel
takes mounts and loop devices away with the last process that is in it, whatever ends the test; they
are also taken away in order, at close() and at exit. It needs root with the right to mount and, for
the power cut, loop devices; where that is lacking Lacking says what."""

import atexit
import collections
import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import rig

CLONE_NEWNS = 0x00020000
LOOP_CTL_GET_FREE = 0x4C82
FICLONE = 0x40049409
LOOP_MAJOR, LOOP_CONTROL = 7, (10, 237)
LOOP_TRIES = 20         # others of this machine take loop devices, too
BUSY_S = 10
# Sparse: they take what is written.
XFS_BYTES = 8 << 30
EXT4_BYTES = 2 << 30
NEEDS = "it needs root with the right to mount (in a container: --privileged)"

_open = []
_apart = False


class Lacking(RuntimeError):
    """This machine does not let us."""


def _clean():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # we are ending
    rig._stop_all()  # who writes there ends first
    while _open:
        _open[-1].close()


atexit.register(_clean)


def _run(*words):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              check=False)
    except FileNotFoundError as error:
        raise Lacking(f"{words[0]} is not installed") from error
    if done.returncode != 0:
        raise Lacking(f"{' '.join(map(str, words))}: {done.stderr.strip()}; {NEEDS}")
    return done.stdout


def _go_apart():
    """Into a mount namespace of our own; threads and processes that come later are in it, too."""
    global _apart
    if _apart:
        return
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise Lacking(f"no mount namespace: {os.strerror(ctypes.get_errno())}; {NEEDS}")
    # Inside a chroot / is no mount and refuses; what we mount is then seen outside until close().
    subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    _apart = True


class Disk:
    """A temporary folder with mounts in it, unmounted last first."""

    def __init__(self):
        _go_apart()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-disk-"))
        os.chmod(self.folder, 0o711)
        self.mounted = []
        self.nodes = []  # loop devices that /dev did not have
        _open.append(self)

    def mount(self, name, *words):
        """At a folder of that name; its path."""
        where = self.folder / name
        where.mkdir(exist_ok=True)
        _run("mount", *words, where)
        self.mounted.append(where)
        return where

    def unmount(self, where):
        end = time.monotonic() + BUSY_S
        while subprocess.run(["umount", where], capture_output=True, check=False).returncode != 0:
            if time.monotonic() > end:
                subprocess.run(["umount", "-l", where], capture_output=True, check=False)
                break
            time.sleep(0.05)
        self.mounted.remove(where)
        with contextlib.suppress(OSError):
            where.rmdir()

    def close(self):
        if self not in _open:
            return
        _open.remove(self)
        for where in reversed(list(self.mounted)):
            self.unmount(where)
        for node in self.nodes:
            os.unlink(node)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- loop devices ---

    def node(self, path, device):
        """A container's /dev may lack what the kernel has."""
        if not os.path.exists(path):
            os.mknod(path, stat.S_IFBLK | 0o600 if device[0] == LOOP_MAJOR else stat.S_IFCHR | 0o600,
                     os.makedev(*device))
            self.nodes.append(path)
        return path

    def free_loop(self):
        try:
            with open(self.node("/dev/loop-control", LOOP_CONTROL), "rb") as control:
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            return self.node(f"/dev/loop{number}", (LOOP_MAJOR, number))
        except OSError as error:
            raise Lacking(f"no loop device: {error}; {NEEDS}") from error

    def mount_file(self, name, image, kind):
        """The image's loop device goes with its mount."""
        for left in range(LOOP_TRIES, 0, -1):
            loop = self.free_loop()
            try:
                return self.mount(name, "-t", kind, "-o", f"loop={loop}", image)
            except Lacking as error:
                # Somebody else was faster.
                if left == 1 or not re.search("busy|failed to setup loop", str(error)):
                    raise
                time.sleep(0.1)

    def make_file(self, path, size, *mkfs):
        with open(path, "wb") as image:
            image.truncate(size)
        _run(*mkfs, path)


class SmallDisk(Disk):
    """Memory of that many bytes as a disk. What fills it is a ballast file."""

    def __init__(self, size):
        super().__init__()
        self.data = self.mount("small", "-t", "tmpfs", "-o", f"size={size},mode=0711", "tmpfs")
        self.ballast = self.data / "ballast"

    def free(self):
        left = os.statvfs(self.data)
        return left.f_bavail * left.f_frsize

    def fill(self):
        """To the last page, again and again: whoever frees something finds it taken."""
        with open(self.ballast, "ab") as ballast:
            size = os.fstat(ballast.fileno()).st_size
            left = self.free()
            if left:
                try:
                    os.posix_fallocate(ballast.fileno(), size, left)
                except OSError:
                    pass  # somebody took of it meanwhile

    def empty(self):
        self.ballast.unlink(missing_ok=True)


class PowerDisk(Disk):
    """ext4 on a loop device over a file that can be copied in an instant, by reflink. What was
    written and not synced is in ext4's cache, above the file: the copy is what the disk holds when
    the power goes."""

    def __init__(self):
        super().__init__()
        self.number = 0
        self.store = self.folder
        if not self.reflinks(self.folder):
            self.make_file(self.folder / "xfs.img", XFS_BYTES, "mkfs.xfs", "-q", "-m", "reflink=1")
            self.store = self.mount_file("xfs", self.folder / "xfs.img", "xfs")
            (self.folder / "xfs.img").unlink()  # the space goes with the mount
            if not self.reflinks(self.store):
                raise Lacking("XFS without reflink")
        self.make_file(self.image(0), EXT4_BYTES, "mkfs.ext4", "-q", "-F")
        self.where = self.mount_file("disk-0", self.image(0), "ext4")

    def image(self, number):
        return self.store / f"disk-{number}.img"

    @staticmethod
    def clone(source, target):
        with open(source, "rb") as old, open(target, "wb") as new:
            fcntl.ioctl(new, FICLONE, old.fileno())

    def reflinks(self, folder):
        one, two = folder / "try-1", folder / "try-2"
        one.write_bytes(b"x" * 65536)
        try:
            self.clone(one, two)
            return True
        except OSError:
            return False
        finally:
            one.unlink()
            two.unlink(missing_ok=True)

    def sync(self):
        """As if it had always been there."""
        _run("sync", "-f", self.where)

    def cut(self):
        """The disk as it is at this instant, as another file."""
        self.clone(self.image(self.number), self.image(self.number + 1))

    def go_on(self):
        """With what cut() found, once nobody has the old one open."""
        self.unmount(self.where)
        self.image(self.number).unlink()
        self.number += 1
        self.where = self.mount_file(f"disk-{self.number}", self.image(self.number), "ext4")


class LoggedCluster(rig.Cluster):
    """A Postgres whose log is read, and names who was refused."""

    def __init__(self, folder, settings=None):
        super().__init__(folder, {"log_line_prefix": "'%m [%p] %a '", **(settings or {})})

    def log(self, start=0):
        """Its lines from that byte on."""
        with open(self.folder / "postgres.log", "rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace").splitlines()

    def log_end(self):
        return os.path.getsize(self.folder / "postgres.log")

    def refused(self, start):
        """Process -> statements and connections of it that failed from that byte of the log on."""
        return collections.Counter(words[4] for words in map(str.split, self.log(start))
                                   if len(words) > 5 and words[5] in ("ERROR:", "FATAL:"))


class SmallCluster(LoggedCluster):
    """A Postgres whose data, or data and WAL apart, lie on small disks. Its segments of WAL are
    small, too: 64 MiB do not hold two of the usual size, and the next one is soon wanted."""

    def __init__(self, folder, data, wal=None, settings=None):
        self.wal = wal and self.folder_on(wal, "wal")
        (pathlib.Path(folder) / "pg").symlink_to(self.folder_on(data, "data"))
        super().__init__(folder, {"min_wal_size": "2MB", **(settings or {})})

    @staticmethod
    def folder_on(small, name):
        folder = small.data / name
        folder.mkdir(mode=0o700)
        shutil.chown(folder, "postgres", "postgres")
        return folder

    def run(self, program, *args, text=None):
        if program == "initdb":
            args += ("--wal-segsize", "1", *(("--waldir", self.wal) if self.wal else ()))
        super().run(program, *args, text=text)

    def gone(self):
        """Whether it has given up."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, IndexError):
            return True
        return rig.process_gone(pid)
