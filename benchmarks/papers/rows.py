"""A row: one cell, curve or figure of a paper, and how it is run here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import presets
from dpgen_jax.core.config import Budget, digest, to_json
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import locate
from dpgen_jax.run.calibrate_config import complete, with_records

CNN, MLP = "gen2real.cnn.accuracy", "gen2real.mlp.accuracy"
SCORE, FID = "fidelity.inception_score", "fidelity.fid"

# The data sets that rows need: how they are loaded, and which file lies where.

@dataclasses.dataclass(frozen=True)
class Source:
    """A data set of a paper.

    Attributes:
      spec: The text that `data.load` and `--dataset` take. How photographs are read, and in what
        size, is the preset's.
      files: What must exist, under the current folder or DPGEN_DATA: a file, plain or .gz, or a
        folder; with " or " between places of which one will do.
    """

    title: str
    spec: str
    files: tuple[str, ...] = ()
    origin: str = ""

    def absent(self) -> str | None:
        """Return one line on the first file that is missing, and where to put it; or None."""
        for name in self.files:
            if not any(_exists(place + suffix) for place in name.split(" or ")
                       for suffix in ("", ".gz")):
                root = os.environ.get("DPGEN_DATA")
                where = (f"{Path(root).absolute()}, or set DPGEN_DATA to the folder that has them"
                         if root else "a folder, and set DPGEN_DATA to it")
                return (f"{self.title} is not there: put {' and '.join(self.files)} "
                        f"({self.origin}) into {where}")
        return None


def _exists(path: str) -> bool:
    try:
        return locate(path).exists()
    except UserError:
        return False


SOURCES = {name: Source(entry["title"], entry["spec"], tuple(entry.get("files", ())),
                        entry.get("origin", ""))
           for name, entry in common.read_yaml(__file__, "sources.yaml").items()}
"""Data sets by the name that rows have for them."""
VARIANTS = {
    "no-noise": "at infinite epsilon, without noise, in the steps that the row itself took; before "
                "it is measured, in those that its budget allows if all queries are answered",
    "as-published": "the paper's schedule and accounting, which proves nothing (GS-WGAN and DPAC)",
}
"""Suffixes of a row, behind "+": runs that show why a figure of a paper is missed."""


_known: dict[Any, Any] | None = None


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Read results and work out names once each, while a page is written and nothing changes."""
    global _known
    _known = {}
    try:
        yield
    finally:
        _known = None


def _once(key: Any, make: Callable[[], Any]) -> Any:
    if _known is None:
        return make()
    if key not in _known:
        _known[key] = make()
    return _known[key]


planned = functools.cache(complete)
"""`complete`, which the page asks for the same presets hundreds of times."""


@dataclasses.dataclass(frozen=True)
class Training:
    """A preset that is trained and evaluated by this runner.

    Attributes:
      protocol: Which classifiers the paper trains: "cnn", "both" (CNN and MLP) or "all".
      epsilon: The budget; None for the preset's.
    """

    method: str
    preset: str
    data: str
    protocol: str = "cnn"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    epsilon: float | None = None
    variant: str = ""

    def known(self) -> bool:
        return self.preset in presets.all_of(self.method)

    def base(self) -> tuple[Any, Budget]:
        """Return the configuration and the budget of the row without its variant."""
        preset = presets.get(self.method, self.preset)[1]
        epsilon = preset.epsilon if self.epsilon is None else self.epsilon
        return (dataclasses.replace(preset.config, **self.fields),
                Budget(epsilon, preset.delta, preset.class_epsilon))

    def request(self) -> tuple[Any, Budget]:
        """Return the configuration and the budget of the run."""
        config, budget = self.base()
        if not self.variant:
            return config, budget
        if self.variant == "no-noise":
            config = self._planned()
            changed: dict[str, Any] = {"sigma": 0.0, **self._other_steps()}
        elif hasattr(config, "critics_per_step"):
            config, changed = self._published(config), {"accounting": "as-published"}
        else:
            raise UserError(f"{self.method} has no published schedule beside the proven one; "
                            "+as-published is for gswgan and dpac")
        return (dataclasses.replace(config, **changed),
                Budget(math.inf, budget.delta))

    def _planned(self) -> Any:
        """Return the configuration without the variant, with the noise and steps of its budget."""
        (config, budget), preset = self.base(), presets.get(self.method, self.preset)[1]
        return planned(self.method, with_records(config, preset.records), preset.spec, budget)

    def _other_steps(self) -> dict[str, int]:
        """Return the steps of the row without noise, where they are not the planned ones.

        Queries without an answer leave budget for more steps: what they were is known from the
        results of the row itself.

        Returns:
          {"steps"}; nothing where these results do not exist, or have as many steps as planned.
        """
        if self.variant != "no-noise":
            return {}
        path = dataclasses.replace(self, variant="").result()
        if not path.exists():
            return {}
        took = read_json(path)["results"]["privacy"]["steps"]
        return {"steps": took} if took != self._planned().planned_steps else {}

    def _published(self, config: Any) -> Any:
        """Return the published configuration of GS-WGAN or DPAC for the preset's data.

        Noise, steps, and a critic step's fresh fakes are those of the `-published` preset. The
        small networks of this library, which nobody published, keep their own steps and pool.
        """
        published = presets.all_of(self.method).get(f"{self.preset.partition('-')[0]}-published")
        if published and self.preset.endswith("-rotation"):
            return dataclasses.replace(published.config, **self.fields)
        return dataclasses.replace(config, critics_per_step=1, sigma=1.07)

    def name(self) -> str:
        return _once(repr(self), self._name)

    def _name(self) -> str:
        """Return the name of the run folder and of the results, with a digest of the request.

        A preset that is changed, in whatever field, has another name: its results are its own. So
        has a run without noise once the row itself is known to have taken other steps.
        """
        (config, budget), preset = self.base(), presets.get(self.method, self.preset)[1]
        # Photographs are read as the preset says, in its size; other data have one of their own.
        options = {**preset.options, "shape": preset.spec.shape} if preset.kind else {}
        whole = digest({"method": self.method, "data": SOURCES[self.data].spec, "options": options,
                        "config": to_json(config), "budget": to_json(budget),
                        **self._other_steps()})
        words = (self.method, self.data, self.preset, self.variant, whole[:10])
        return "-".join(word for word in words if word)

    def result(self) -> Path:
        return common.RESULTS / f"papers-{self.name()}.json"

    def command(self, row: str) -> str:
        return f"python -m benchmarks.papers {shlex.quote(row)}"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of another benchmark, which goes on where it stopped by itself.

    Attributes:
      pick: Which entry of the results is this row's: the name of a list, and fields of the entry;
        or the name of an object, and the entry's own.
    """

    module: str
    argv: tuple[str, ...]
    file: str
    data: str = "none"
    pick: tuple[str, Mapping[str, Any] | str] | None = None

    def known(self) -> bool:
        """Return whether the module exists, or what it once wrote."""
        return self.exists() or self.result().exists()

    def exists(self) -> bool:
        here = Path(__file__).resolve().parents[1]
        return any(path.exists() for path in (here / f"{self.module}.py",
                                              here / self.module / "__main__.py"))

    def result(self) -> Path:
        return common.RESULTS / f"{self.file}.json"

    def command(self, row: str) -> str:
        return shlex.join(("python", "-m", f"benchmarks.{self.module}", *self.argv))


@dataclasses.dataclass(frozen=True)
class Nothing:
    """A row that cannot be run, such as a drawing, or a figure that this library only quotes."""

    why: str
    data: str = "none"

    def known(self) -> bool:
        return True

    def result(self) -> None:
            return

    def command(self, row: str) -> str:
        return f"({self.why})"


Work = Training | Command | Nothing


@dataclasses.dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
      paper: What the paper reports, by metric, as printed; the metrics are those that
        `page.measured` knows.
      hours: An estimate of the time on two cores, where nothing is measured.
      also: Metrics that are shown although the paper reports none.
    """

    name: str
    work: Work
    paper: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hours: float = 0.0
    note: str = ""
    also: tuple[str, ...] = ()

    def source(self) -> Source:
        return SOURCES[self.work.data]

    def results(self) -> dict[str, Any] | None:
        return _once(self.name, self._results)

    def _results(self) -> dict[str, Any] | None:
        """Return its results, or its entry where they are a list of several; None for none."""
        path = self.work.result() if self.work.known() else None
        if path is None or not path.exists():
            return None
        record: dict[str, Any] = read_json(path)["results"]
        if isinstance(self.work, Command) and self.work.pick:
            name, which = self.work.pick
            entries: Any = record.get(name, {})
            if isinstance(which, str):
                return entries.get(which)
            return next((entry for entry in entries if which.items() <= entry.items()), None)
        return record

    def measured(self) -> bool:
        return self.results() is not None

    def trained_seconds(self) -> float | None:
        """Return the seconds of the training or trainings that it measured; None for none."""
        took = (self.results() or {}).get("training_seconds")
        return sum(took) if isinstance(took, list) else took

    def with_variant(self, variant: str) -> Row:
        if variant not in VARIANTS or not isinstance(self.work, Training):
            raise UserError(f"{self.name} has no variant {variant!r}; those of a row that trains "
                            f"a preset are {', '.join(VARIANTS)}")
        return dataclasses.replace(self, name=f"{self.name}+{variant}", paper={},
                                   work=dataclasses.replace(self.work, variant=variant))
