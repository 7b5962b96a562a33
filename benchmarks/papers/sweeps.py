"""Rows of the sweeps that `benchmarks.sweep` runs, under the names that they have there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.papers import trainings
from benchmarks.papers.rows import Command, Row
from benchmarks.papers.sources import SOURCES
from benchmarks.papers.trainings import HOURS, LARGER
from benchmarks.sweep.cells import Sweep
from benchmarks.sweep.published import SWEEPS


def data_of(name: str) -> str:
    """Return the data of a sweep, a name of `sources.SOURCES`."""
    settings = SWEEPS[name].settings
    by_spec = {"idx:mnist": "mnist", "idx:fashion_mnist": "fashion", "glyphs": "none",
               "npz:features.npz": "features"}
    kind = settings.get("attribute", "")
    return by_spec.get(settings["dataset"]) or {"gender": "gender-l", "hair": "hair"}[kind]


def command(name: str) -> Command:
    """Return the command of a sweep."""
    stem = "sweep-" + re.sub(r"[^\w.]+", "-", name)
    return Command("sweep", (name, "--full"), stem, data_of(name))


def hours(name: str) -> float:
    """Return an estimate of the hours of a sweep."""
    sweep, data = SWEEPS[name], data_of(name)
    preset = sweep.settings["preset"]
    if data == "none" or sweep.method == "topagg_sgd":
        each = 0.1 if data == "none" else 0.3
    elif sweep.method in ("gswgan", "dpac"):
        each = (HOURS[sweep.method] if "rotation" in preset else 150.0 if "published" in preset
                else 0.5)
    else:
        each = trainings.hours("dpcgan-gswgan" if preset.endswith("-gswgan") else sweep.method,
                               data, 10 if "eps10" in preset else 1, preset.endswith("-code"))
    return round(each * len(sweep.cells), 1)


def printed(sweep: Sweep) -> dict[str, str]:
    """Return what a paper prints, by cell and metric."""
    return {f"{cell.label}: {metric}": f"{value:g}"
            for cell in sweep.cells for metric, value in cell.printed.items()}


def rows(place: str) -> Iterator[Row]:
    """Yield the rows of the published sweeps of one table or figure, PAPER:TABLE."""
    for name, sweep in SWEEPS.items():
        if name.startswith(f"{place}:"):
            yield Row(name, command(name), printed(sweep), hours(name), sweep.source)


SMALL_BOUND = ("--teachers", "1000", "--sigma", "1250", "--discriminator.channels1", "8",
               "--discriminator.channels2", "16", "--discriminator.hidden", "32",
               "--generator.hidden", "256", "--generator.channels", "32")
"""A quarter of the published teachers and noise, with small networks."""


def bounds(place: str) -> Iterator[Row]:
    """Yield the rows of DataLens's Figure 2: its data-dependent bound beside the other."""
    read = ("data_dependent is by the laws of the signs: Theorem 4 says nothing; it is as private "
            "as the records, and shown of public data")
    for name, data, preset, stem, more, took in (
            ("mnist", "mnist", "mnist-eps1", "published", (), HOURS["datalens"]),
            ("mnist-small", "mnist", "mnist-eps1", "mnist-eps1", SMALL_BOUND, 0.1),
            ("hair", "hair", "hair-eps1", "hair-eps1", (), HOURS["datalens"] * LARGER["hair"])):
        spec = SOURCES[data].spec
        file = f"topagg-bound-{spec.split(':')[-1]}-{stem}"
        record = () if stem == preset else ("--record", f"benchmarks/results/{file}.json")
        note = f"this library: small networks and a quarter of the teachers and the noise; {read}"
        yield Row(f"{place}:{name}", Command(
            "topagg_bound", ("--preset", preset, "--dataset", spec, *record, *more), file, data),
            {}, took, note if more else read, ("data_independent.spent", "data_dependent.epsilon"))


def norms(place: str) -> Iterator[Row]:
    """Yield the rows of GS-WGAN's Figures 2 and A1: gradient norms, before and after the clip."""
    for name, flags, took in (
            ("mnist", ("--dpcgan", "mnist-gswgan", "--gswgan", "mnist-published", "--sizes",
                       "paper"), 150.0),
            ("mnist-small", ("--steps", "150", "--critics", "60"), 0.5)):
        stem = f"norms-mnist-{'paper' if 'paper' in flags else 'small'}"
        yield Row(f"{place}:{name}", Command("norms", ("--dataset", "idx:mnist", *flags), stem,
                                             "mnist"), {}, took,
                  "norms of the last step, which are as private as the records, and are shown of "
                  "public data")


def epoch(name: str, case: str, seconds: str, note: str) -> Row:
    """Return the row of a time that a paper reports for an epoch, as `benchmarks.steps` has it.

    A fiftieth of the teachers is timed, as no laptop holds all of CelebA's; a step is linear in
    them. `python -m benchmarks.steps --epochs --share 0.02` times all such rows, one by one.
    """
    return Row(name, Command("steps", ("--epochs", case, "--share", "0.02"), "epochs", "none",
                             ("rows", case)),
               {"seconds_per_epoch": seconds}, 0.1,
               f"{note}; here of a fiftieth of the teachers, times 50")


def baseline(name: str, preset: str, accuracy: str, note: str) -> Row:
    """Return the row of DPDL, a single cell of TopAgg-SGD, on MNIST."""
    return Row(name, Command("sweep", ("topagg_sgd", "--preset", preset, "--dataset", "idx:mnist",
                                       "--full"), f"sweep-topagg_sgd-{preset}-idx-mnist", "mnist"),
               {"accuracy": accuracy}, 0.5, note)
