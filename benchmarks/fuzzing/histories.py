"""A true run, as its folder looked before each draw and at its end.

All of it is the package's own but for the compiled step, which learns nothing here: what it would
learn takes long to compile, and no reader looks at it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.fuzzing import read_runs
from benchmarks.fuzzing.process import environment
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.types import Private
from dpgen_jax.run import lifecycle, loop, stages

Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Moment:
    """files: path in the run folder -> bytes; n_sampled: steps whose noise was drawn by then."""

    files: Files
    n_sampled: int


@functools.cache
def moments() -> tuple[Moment, ...]:
    """Before each draw of a step, and at the end of the run."""
    found: list[Moment] = []
    real = OsBits.draw
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "run"

        def draw(self, shape):
            if (root / "class_counts.json").exists():  # bought first, by draws of their own
                found.append(Moment(snapshot(root), len(found)))
            return real(self, shape)

        with mock.patch.object(OsBits, "draw", draw), \
                mock.patch.object(loop, "compile_block", lambda method, layout: idle), \
                mock.patch.object(stages, "write_pictures", lambda *_: None), \
                mock.patch.dict(os.environ, environment(Path(place) / "home")):
            lifecycle.run(
                read_runs.request(root, False), read_runs.records(), log=lambda line: None)
        found.append(Moment(snapshot(root), len(found)))
    return tuple(found)


def idle(public, units, records, secrets, bits, groups, key, step, n):
    """In place of a compiled block: its state as it was, and no votes."""
    answered = np.zeros((len(bits), 0), np.int32)
    return public, units, {"loss": np.float32(step)}, answered, Private(answered)


def snapshot(root: Path) -> Files:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*"))
            if path.is_file()}
