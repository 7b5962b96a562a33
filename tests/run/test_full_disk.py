"""The end of a run on a disk that is full."""

import re
import shutil
import subprocess
import sys

import pytest
from test_finish import STEPS, nth, run, totals, whole

from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.types import UserError
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import checkpoint, lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]


# --- a disk that is really full

@pytest.fixture
def disk(tmp_path):
    """A file system of 4 MB."""
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(tmp_path / "disk")]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


@pytest.mark.parametrize("left", [300_000, 0])
def test_a_disk_that_is_full(disk, monkeypatch, capfd, left):
    """From the third step on, when the first has its checkpoint, there is room for a release and
    for no other checkpoint; or for nothing, until somebody makes some: then a resume goes on."""
    def filled(real):
        def fill_first(*args):
            (disk / "other").write_bytes(b"")
            free = shutil.disk_usage(disk).free
            (disk / "other").write_bytes(bytes(max(0, free - left)))
            return real(*args)
        return fill_first

    with monkeypatch.context() as patch:
        nth(patch, OsBits, "draw", 3, filled(OsBits.draw))
        # Again: a checkpoint that fails beside the third step makes room where it was begun.
        patch.setattr(Release, "save", filled(Release.save))
        if left:
            _, failures = run(disk / "run")
            assert any(re.search("checkpoint .* cannot be written .No space", f) for f in failures)
            whole(disk / "run")
        else:
            with pytest.raises(UserError, match="cannot be written .No space left on device"):
                run(disk / "run")
    err = capfd.readouterr().err
    assert "Traceback" not in err
    (disk / "other").unlink()
    charged = totals(disk / "run").steps
    run(disk / "run", resume=True)
    assert totals(disk / "run").steps == max(charged, STEPS)
    lifecycle.load(disk / "run")


SAVES = """
import pathlib, sys
import numpy as np
from dpgen_jax.run import checkpoint
large = {str(i): np.random.rand(500_000) for i in range(8)}
for step in range(5):
    try:
        checkpoint.save(pathlib.Path(sys.argv[1]), step, [("part", large)], {}, keep=2)
    except ValueError as error:
        print(error)
"""


def test_a_failed_checkpoint_is_one_line(disk):
    done = subprocess.run([sys.executable, "-c", SAVES, str(disk / "checkpoints")], check=True,
                          capture_output=True, text=True)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 5
    assert all("cannot be written (No space left on device)" in line
               for line in done.stdout.splitlines())
    assert not checkpoint.steps(disk / "checkpoints")
