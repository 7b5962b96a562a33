"""From a system, a data set and an epsilon to the preset that has the paper's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.papers.rows import SOURCES, Command, Row, Training
from benchmarks.sweep.cells import Sweep
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets

# Rows of the sweeps that `benchmarks.sweep` runs, under the names that they have there.

def data_of(name: str) -> str:
    """Return the data of a sweep, a name of `rows.SOURCES`."""
    settings = SWEEPS[name].settings
    by_spec = {"idx:mnist": "mnist", "idx:fashion_mnist": "fashion", "glyphs": "none",
               "npz:features.npz": "features"}
    kind = settings.get("attribute", "")
    return by_spec.get(settings["dataset"]) or {"gender": "gender-l", "hair": "hair"}[kind]


def sweep_command(name: str) -> Command:
    """Return the command of a sweep."""
    stem = "sweep-" + re.sub(r"[^\w.]+", "-", name)
    return Command("sweep", (name, "--full"), stem, data_of(name))


def sweep_hours(name: str) -> float:
    """Return an estimate of the hours of a sweep."""
    sweep, data = SWEEPS[name], data_of(name)
    preset = sweep.settings["preset"]
    if data == "none" or sweep.method == "topagg_sgd":
        each = 0.1 if data == "none" else 0.3
    elif sweep.method in ("gswgan", "dpac"):
        each = (HOURS[sweep.method] if "rotation" in preset else 150.0 if "published" in preset
                else 0.5)
    else:
        each = hours("dpcgan-gswgan" if preset.endswith("-gswgan") else sweep.method,
                               data, 10 if "eps10" in preset else 1, preset.endswith("-code"))
    return round(each * len(sweep.cells), 1)


def sweep_printed(sweep: Sweep) -> dict[str, str]:
    """Return what a paper prints, by cell and metric."""
    return {f"{cell.label}: {metric}": f"{value:g}"
            for cell in sweep.cells for metric, value in cell.printed.items()}


def sweep_rows(place: str) -> Iterator[Row]:
    """Yield the rows of the published sweeps of one table or figure, PAPER:TABLE."""
    for name, sweep in SWEEPS.items():
        if name.startswith(f"{place}:"):
            yield Row(name, sweep_command(name), sweep_printed(sweep), sweep_hours(name),
                      sweep.source)


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


CNN, MLP = "gen2real.cnn.accuracy", "gen2real.mlp.accuracy"
SCORE, FID = "fidelity.inception_score", "fidelity.fid"

HOURS = {"datalens": 2.3, "gpate": 3.7, "gswgan": 570.0, "dpac": 1500.0, "dpgan": 3.0,
         "pategan": 2.0, "dcgan": 1.0, "dpmerf": 0.3, "dpmerf_ae": 0.5, "dpcgan": 1.1,
         "dpcgan-gswgan": 3.3, "projected_dpgan": 2.0}
"""Estimates for MNIST on two quick cores."""
FROM_THE_DISK = {1: 21.0, 10: 3.5}
"""The same of G-PATE with its paper's own networks, by epsilon: the disk reads and writes 52 GB in
each of 400 steps, or 26 GB in each of 115, at the rate of results/state_places-8000.json. Epsilon
allows 226 and 65 if all queries are answered; the code's settings took 400 in place of 226."""
WITHOUT_PRIVACY = ("the networks as published; the number of steps is this library's, and what "
                   "else differs stands at the preset")
"""Note on rows without privacy."""
LARGER = {"gender-s": 4, "gender-l": 16, "hair": 16, "places": 16}
"""How many times as long a data set takes, about: pixels, channels and records."""
PRESETS = {
    "datalens": "{face}-eps{epsilon}",
    "gpate": "{data}-eps{epsilon}",
    "gswgan": "{critics}-eps10-rotation",
    "dpac": "{critics}-eps10-rotation",
    "dpgan": "{data}-eps{epsilon}-{dpgan}",
    "pategan": "{digits}-eps{ten}-published",
    "dcgan": "{data}-published",
    "dpmerf": "{data}-eps{epsilon}-published",
    "dpmerf_ae": "{digits}-eps{epsilon}",
    "dpcgan": "{digits}-eps{epsilon}-published",
    "projected_dpgan": "{digits}-eps{epsilon}",
}
"""Templates of the presets. DP-GAN has the fully connected networks of G-PATE's appendix E, and for
photographs, of which no paper prints any, those of Xie et al. Presets of MNIST are
tried on Fashion-MNIST where there are no others. The critics' rotation is the published networks,
critics and steps at a true epsilon."""


def small_critics(system: str, data: str, epsilon: float) -> bool:
    """Return whether a row of GS-WGAN or DPAC has the small networks of this library.

    They published nothing for larger photographs; and below epsilon 10 the published 20,000 steps
    need more noise than can be drawn, so that fewer are taken.
    """
    return system in ("gswgan", "dpac") and (
        data not in ("mnist", "fashion", "gender-s") or epsilon < 10)


def training(system: str, data: str, epsilon: float, protocol: str = "cnn") -> Training:
    """Return the training of a system as a paper ran it.

    Args:
      system: The method.
      data: A name of `rows.SOURCES`.
      epsilon: The budget, of which the paper's classifiers were measured.
      protocol: As in `Training`.

    Returns:
      The training; its epsilon is `epsilon` where the preset is for another one. Below 1 critics
      take 50 steps: at 0.2 the preset's 100 need more noise than the mechanism has a table for.
    """
    digits = "mnist" if data in ("mnist", "fashion") else data
    template = "{small}-eps{epsilon}" if small_critics(system, data, epsilon) else PRESETS[system]
    named = 1 if epsilon < 1 else int(epsilon) if epsilon < 100 else 10
    preset = template.format(
        data=data, digits=digits, epsilon=named, ten=10 if digits == "mnist" else named,
        face=data.removesuffix("-l"), critics="gender" if data == "gender-s" else "mnist",
        small="gender" if data == "gender-s" else data,
        dpgan="linear" if digits == "mnist" else "published")
    known = presets.all_of(system).get(preset)
    same = system == "dcgan" or (known is not None and known.epsilon == epsilon)
    fewer = {"steps": 50} if epsilon < 1 and small_critics(system, data, epsilon) else {}
    return Training(system, preset, data, protocol, fewer, None if same else float(epsilon))


def hours(system: str, data: str, epsilon: float = 10, code: bool = False) -> float:
    """Return an estimate of the hours that a training and its evaluation take on two cores.

    Args:
      system: The method.
      data: A name of `rows.SOURCES`.
      epsilon: The budget.
      code: Whether the networks are those of the authors' code, where the paper prints others.
    """
    if system == "gpate" and data in ("mnist", "fashion") and not code:
        return FROM_THE_DISK[10 if epsilon > 1 else 1]
    each = 0.5 if small_critics(system, data, epsilon) else HOURS[system]
    if system == "gpate" and epsilon > 1:  # as many records a step, and a third of the steps
        each /= 3
    return round(each * LARGER.get(data, 1), 1)


def grid(place: str, system: str, columns: Sequence[str], metrics: Sequence[str], text: str,
         protocol: str = "cnn") -> Iterator[Row]:
    """Yield the rows of a table of systems.

    Args:
      place: PAPER:TABLE.
      system: The paper's own system, whose rows have no system in their names.
      columns: The systems of the columns.
      metrics: The metrics that follow each other in a line, each with all columns; or, where a line
        names one metric, just that.
      text: A line for each data set and epsilon: both, and the printed values; - for none.
      protocol: As in `Training`.
    """
    for line in text.strip().splitlines():
        data, epsilon, *values = line.split()
        each = [values[i * len(columns):(i + 1) * len(columns)] for i in range(len(metrics))]
        for i, column in enumerate(columns):
            printed = {metric: row[i] for metric, row in zip(metrics, each, strict=True)
                       if row[i] != "-"}
            if not printed:
                continue
            eps = "" if column == "dcgan" else f"-eps{epsilon}"
            name = f"{place}:{data}{eps}" + (f"-{column}" if column != system else "")
            yield Row(name, training(column, data, float(epsilon), protocol), printed,
                      hours(column, data, float(epsilon)),
                      WITHOUT_PRIVACY if column == "dcgan" else "")


def by_code(place: str, system: str, metric: str, text: str) -> Iterator[Row]:
    """Yield rows of the settings in the README of a system's authors, where the paper has others.

    Args:
      place: PAPER:TABLE.
      system: The paper's system.
      metric: The metric.
      text: The table, as for `grid`, whose last column is the system.
    """
    for line in text.strip().splitlines():
        data, epsilon, *values = line.split()
        if data in ("mnist", "fashion"):
            yield Row(f"{place}:{data}-eps{epsilon}-code",
                      Training(system, f"{data}-eps{epsilon}-code", data), {metric: values[-1]},
                      hours(system, data, float(epsilon), code=True),
                      "the command line in the authors' README")


def small_rows(place: str, system: str, data: str, printed: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of GS-WGAN's or DPAC's small networks at epsilon 10."""
    spec = SOURCES[data].spec
    for end, preset, time in (("small", f"{data}-eps10", 0.3),
                              ("long", f"{data}-eps10-long", 3.0)):
        config = presets.get(system, preset)[1].config
        yield Row(f"{place}:{data}-{end}", Command(
            "images", ("--method", system, "--preset", preset, "--dataset", spec,
                       "--out", f"runs/{system}-{preset}"),
            f"{system}-{spec.removeprefix('idx:')}-{preset}", data), printed, time,
            f"this library: small networks, all {config.critics:,} critics in each of "
            f"{config.steps} steps, epsilon 10")
