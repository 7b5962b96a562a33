"""Presets of rows that other benchmarks train, and the variants of sweeps, run two steps at toy
size on generated data in the layout of their data sets."""

import math
import re
from typing import Any, NamedTuple

import pytest
import toy_rows

from benchmarks.papers import page
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Command, Training
from benchmarks.sweep import cells
from benchmarks.sweep.cells import VARIANT
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets
from dpgen_jax.core.config import Budget

AS_COMMANDS = {page.preset_of(ROWS[name].work) for name in toy_rows.FEDERATED + toy_rows.CREDIT}
"""Presets of which test_papers_command_steps.py runs the rows."""
AS_TRAININGS = {(row.work.method, row.work.preset) for row in ROWS.values()
                if isinstance(row.work, Training) and not row.work.fields}
"""Presets of which test_papers_two_steps.py runs the rows."""
QUICK = ("topagg_sgd-mnist-eps0.2-published", "topagg_sgd-mnist-eps0.5-dpdl",
         "topagg_sgd-features-eps8-published", "dimension 0.2, epsilon 0.05")
"""Cases of each kind that compile fastest."""


class Case(NamedTuple):
    """A training: the method, the name of the preset, the configuration and the budget."""

    method: str
    preset: str
    config: Any
    budget: Budget


def of_commands():
    """The presets of rows of other benchmarks that no other test runs, by method and name."""
    every = {page.preset_of(row.work) for row in ROWS.values() if isinstance(row.work, Command)}
    return {f"{method}-{name}": (method, name)
            for method, name in sorted(every - {None} - AS_COMMANDS - AS_TRAININGS)}


def of_sweeps():
    """One cell of each variant of the sweeps, with and without a promise, by its label.

    Other cells have another number in a field of their preset, which makes the same program at toy
    size; but for 0, which leaves a part out.
    """
    found = {}
    for name, sweep in SWEEPS.items():
        for cell in sweep.cells:
            if VARIANT in cell.point or "0" in cell.point.values():
                kind = re.sub(r"[1-9][\d.]*|0?\.\d+", "", cell.label)
                method = cell.settings.get("method", sweep.method)
                promises = not sweep.settings["preset"].endswith("-published") or (
                    method == "topagg_sgd")
                found.setdefault((method, kind, promises), (f"{name}-{cell.label}", (sweep, cell)))
    return dict(found.values())


COMMANDS, VARIANTS = of_commands(), of_sweeps()


def case_of(first, second):
    """The training of a preset by method and name, or of a sweep's cell."""
    if isinstance(first, str):
        preset = presets.get(first, second)[1]
        return Case(first, second, preset.config, Budget(
            preset.epsilon, preset.delta, preset.class_epsilon))
    args = (one := cells.job(first, second)).args
    return Case(one.method, args.preset, args.config,
                Budget(args.epsilon, args.delta, args.class_epsilon))


def marked(cases):
    """Cases with their marks."""
    return [pytest.param(named, id=name, marks=(
        pytest.mark.slow if name.endswith(QUICK) else pytest.mark.long))
        for name, named in cases.items()]


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """Generated data sets, by kind and shape."""
    root = tmp_path_factory.mktemp("official")
    made = toy_rows.official(root)
    return {("celeba", ()): made["gender-l"], ("", (28, 28, 1)): made["mnist"],
            ("", (12, 12, 1)): "glyphs", ("", (512,)): toy_rows.features(root / "cifar", (512,))}


@pytest.mark.parametrize("named", marked(COMMANDS | VARIANTS))
def test_a_row_of_another_benchmark_runs_two_steps(named, specs, tmp_path):
    case = case_of(*named)
    preset = presets.get(case.method, case.preset)[1]
    shape = () if preset.kind else preset.spec.shape
    dataset = toy_rows.read(preset, specs[preset.kind, shape])
    assert dataset.spec.shape == preset.spec.shape
    release = toy_rows.two_steps(*case, dataset, tmp_path / "run")
    assert release.privacy["steps"] == 2
    promised = not release.privacy["guarantee"].startswith("none")
    assert promised == (case.budget.epsilon < math.inf)


def test_each_variant_of_a_sweep_is_among_the_cases():
    labels = " ".join(VARIANTS)
    for variant in ("d2p-fed", "fetchsgd", "w/o top-k", "w/o stochastic signs", "w/o threshold",
                    "norm", "gm-dp", "dimension", "TopK-GM-DP", "TopK-SGD", "clipped SGD",
                    "w/o seq", "w/o init", "w/o g2r", "w/o r2g", "t_c", "beta", "projection 0"):
        assert variant in labels, variant
    assert {f"{method}-{end}" for method in ("gswgan", "dpac")
            for end in ("mnist-eps10-long", "fashion-eps10-long")} <= {*COMMANDS}
