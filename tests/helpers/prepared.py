"""The run that a command line begins, up to the moment before its training begins."""

import dataclasses
from collections.abc import Sequence

from dpgen_jax.cli import train_flags
from dpgen_jax.data import Dataset
from dpgen_jax.run import fitting, reading
from dpgen_jax.run.planning import Resolved


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run of which nothing is left open, and its data set."""

    request: Resolved
    dataset: Dataset

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.request.remarks


def read(words: Sequence[str]) -> reading.Reading:
    """How `train` would read its data; what nobody declared is bought."""
    return reading.of_source(train_flags.call(words).request)


def prepared(words: Sequence[str]) -> Prepared:
    return Prepared(*fitting.prepared(read(words)))
