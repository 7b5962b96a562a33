"""Who is told what: lines of a run go to stdout, what is the data holder's alone to stderr."""

import dataclasses
import errno

import pytest
import runs

from dpgen_jax.core import run_folder
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle
from dpgen_jax.run.progress import Notices, public_seconds

pytestmark = pytest.mark.usefixtures("compiled_once")
NOTE = "secret.png could not be read"


@pytest.mark.slow
def test_private_notes_never_go_to_stdout_or_into_the_run(tmp_path, capsys):
    """Whoever is sent the output of a run, or its folder, would read them there."""
    data = dataclasses.replace(from_arrays(*runs.images(), 3), private_notes=(NOTE,))
    lifecycle.run(runs.request(tmp_path / "run"), data)
    out, err = capsys.readouterr()
    assert "note: " in out and "release: " in out and NOTE not in out
    assert f"private: {NOTE}\n" in err
    assert not any(NOTE.encode() in content for content in runs.snapshot(tmp_path / "run").values())


@pytest.mark.slow
def test_times_in_public_files_are_coarse(tmp_path):
    """Finer ones are a side channel that anybody who reads the metrics could use."""
    runs.train(tmp_path / "run", steps=2)
    rows = run_folder.read(tmp_path / "run/metrics.jsonl")
    assert len(rows) == 2 and all(row["seconds"] == round(row["seconds"], 1) for row in rows)
    assert public_seconds(71.6499999) == 71.6


def test_a_failure_is_said_once_and_kept():
    said = []
    notices = Notices(said.append)
    for _ in range(3):
        with notices.attempt("writing metrics.jsonl"):
            raise OSError(errno.ENOSPC, "No space left on device")
    with notices.attempt("writing curves.png"):
        raise RuntimeError("first line\nsecond line")
    with notices.attempt("nothing"):
        pass
    with pytest.raises(KeyboardInterrupt), notices.attempt("a second Ctrl-C"):
        raise KeyboardInterrupt
    assert notices.failures == ["writing metrics.jsonl failed (No space left on device)",
                                "writing curves.png failed (first line)"]
    assert said == [f"warning: {line}" for line in notices.failures]
