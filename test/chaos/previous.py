"""The program of the release before, from its sources in previous.tar.xz beside this file, which need
no history of the repository. Whoever makes a release packs the one that it follows:

  git archive COMMIT api runtime worker sql deploy/lib.sh deploy/examples build.zig build.zig.zon \\
      | xz -9e > test/chaos/previous.tar.xz
"""

import hashlib
import pathlib
import shutil
import subprocess
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKED = HERE / "previous.tar.xz"


def build(source, prefix):
    done = subprocess.run(
        ["bash", "-c", 'set -euo pipefail; cd "$1"; . deploy/lib.sh; cd "$2"; '
         'zig build -Doptimize=safe -p "$3"', "previous", ROOT, source, prefix],
        stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the release before does not build: {done.stdout}{done.stderr}")


def holdfast():
    """Its path; built where it is not there yet, which takes about as long as this one's build."""
    name = hashlib.sha256(PACKED.read_bytes()).hexdigest()[:16]
    folder = ROOT / ".holdfast" / "previous"
    prefix = folder / name
    if not (prefix / "bin" / "holdfast").exists():
        source, made = folder / f"{name}.source", folder / f"{name}.new"
        for old in (source, made):
            shutil.rmtree(old, ignore_errors=True)
        source.mkdir(parents=True)
        with tarfile.open(PACKED) as packed:
            packed.extractall(source)
        build(source, made)
        made.rename(prefix)
        shutil.rmtree(source)
    return prefix / "bin" / "holdfast"
