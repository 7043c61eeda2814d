"""The program of the release before, built from this repository's own history: the file `previous`
beside this one names its commit, and whoever makes a release writes it anew."""

import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMED = HERE / "previous"


def run(argv, **more):
    done = subprocess.run(list(map(str, argv)), cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv[:6]))}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def commit():
    wanted = os.environ.get("CHAOS_PREVIOUS") or NAMED.read_text().split()[0]
    try:
        # The checkout may be another user's.
        return run(["git", "-c", "safe.directory=*", "rev-parse", "--verify", "--quiet",
                    f"{wanted}^{{commit}}"])
    except (RuntimeError, FileNotFoundError) as error:
        raise RuntimeError(f"commit {wanted}, the release before, is not here: this needs git and a "
                           f"clone with its history (git fetch --unshallow). {error}") from error


def holdfast():
    """Its path; built where it is not there yet, which takes about as long as this one's build."""
    found = commit()
    folder = ROOT / ".holdfast" / "previous"
    prefix = folder / found
    if not (prefix / "bin" / "holdfast").exists():
        folder.mkdir(parents=True, exist_ok=True)
        source, made = folder / f"{found}.source", folder / f"{found}.new"
        for old in (source, made):
            shutil.rmtree(old, ignore_errors=True)
        source.mkdir()
        run(["bash", "-c", 'set -euo pipefail; git -c safe.directory="*" archive "$1" | '
             'tar -x -C "$2"; . deploy/lib.sh; cd "$2"; zig build -Doptimize=safe -p "$3"',
             "previous", found, source, made])
        made.rename(prefix)
        shutil.rmtree(source)
    return prefix / "bin" / "holdfast"
