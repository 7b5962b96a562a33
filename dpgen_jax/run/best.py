"""The best generator of a run so far, by a public measure of its samples.

It lies in private/, as checkpoints do, so that a run that is resumed still knows it. All of it was
made of released values: the choice reads no record, and costs what was charged for all steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from dpgen_jax.core import reading
from dpgen_jax.core.atomic import write_together
from dpgen_jax.core.types import UserError
from dpgen_jax.release import model
from dpgen_jax.release.bundle import Release


class Best:
    """The best generator so far.

    Attributes:
        path: Its file, which need not exist.
        score: Its measure; below 0 before there is one.
        step: The step after which it stood so.
    """

    def __init__(self, path: Path):
        self.path, self.score, self.step = path, -1.0, 0
        if path.exists():
            self.score, self.step = _noted(path)

    def offer(self, release: Release, score: float, step: int) -> None:
        """Keeps a generator that is better than the best so far.

        Args:
            release: The generator as it stands.
            score: Its measure, 0 or above.
            step: The steps that were made.

        Raises:
            OSError: It cannot be written; the best so far is still there.
        """
        if not score > self.score:
            return
        flat = traverse_util.flatten_dict(release.model, sep="/")
        data = safetensors.numpy.save({name: np.asarray(array) for name, array in flat.items()},
                                      metadata={"score": repr(float(score)), "step": str(step)})
        write_together(self.path.parent, {self.path.name: data})
        self.score, self.step = float(score), step

    def instead_of(self, last: Release, log: Callable[[str], None]) -> Release:
        """Returns the release with the best generator, whose statement says of which step that is.

        The step is no secret: it follows from released values and the records that judge, which are
        public or were paid for.

        Args:
            last: The release with the last generator; it is returned where there is no better one.
            log: Prints a line of the run.

        Raises:
            UserError: The file is missing or damaged.
        """
        if not self.step:
            return last
        arrays = model.parse(self.path, reading.read_bytes(self.path), model.arrays(
            last.method, last.config, last.spec))
        log(f"the generator of step {self.step} is released: of all that were evaluated it did "
            f"best (public_accuracy {self.score:.3f})")
        return dataclasses.replace(last, model=arrays,
                                   privacy=last.privacy | {"kept_step": self.step})


def _noted(path: Path) -> tuple[float, int]:
    """The measure and the step that a file notes."""
    try:
        with safetensors.safe_open(path, "numpy") as stored:
            note = stored.metadata()
        return float(note["score"]), int(note["step"])
    except (safetensors.SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it, and the best generator from here "
                        "on is kept") from error
