"""The store in memory (model.c), which the inner harness runs on, against Postgres: seeded schedules of
the same calls to both, each row that comes back and all rows at the end compared. See differential.c;
arguments go to it: --seed N --schedules 1 runs one again, --each compares all rows after each call."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import rig  # noqa: E402

PROGRAM = rig.PREFIX / "test" / "differential"  # zig build differential


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-differential-"))
    os.chmod(folder, 0o711)
    (folder / "pg").mkdir()
    cluster = None
    try:
        # The clock is the test's and stands in the past: nobody cleans by it.
        cluster = rig.Cluster(folder / "pg", {"autovacuum": "off"})
        subprocess.run([rig.HOLDFAST, "migrate"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "HOLDFAST_DSN": cluster.dsn()})
        return subprocess.run([PROGRAM, "--dsn", cluster.dsn(), *sys.argv[1:]],
                              check=False).returncode
    finally:
        if cluster:
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
