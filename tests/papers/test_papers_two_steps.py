"""The preset of every row that trains one builds, and runs two steps at toy size on generated data
in the official layout of its data set."""

import dataclasses
import re

import pytest
import toy_rows

from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Training
from dpgen_jax import methods, presets
from dpgen_jax.core.config import to_json
from dpgen_jax.run.calibrate_config import complete, with_records

TRAININGS = {row.work.name(): row.work for row in ROWS.values()
             if isinstance(row.work, Training) and row.work.known()}
NUMBER = re.compile(r"\d+\.\d+(e-?\d+)?|\d+e-?\d+")


def alike():
    """One training of each kind that is the same at toy size but for rates, clips and noise."""
    kinds = {}
    for work in TRAININGS.values():
        preset = presets.get(work.method, work.preset)[1]
        config = dataclasses.replace(toy_rows.small(work.base()[0]), sigma=None)
        kinds.setdefault((work.method, preset.kind, str(to_json(preset.spec)),
                          NUMBER.sub("", str(config))), work)
    return list(kinds.values())


QUICK = ("dpmerf-mnist-eps10-published", "dcgan-gender-s-published", "dcgan-places-published")
"""One case of each loader, of those that compile fastest."""


def marked(work):
    """A case with its mark."""
    name = f"{work.method}-{work.preset}"
    return pytest.param(work, id=name, marks=(
        pytest.mark.slow if name in QUICK else pytest.mark.long))


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    return toy_rows.official(tmp_path_factory.mktemp("official"))


def changed():
    """Trainings whose budget or fields are not the preset's, each cost once."""
    costs = {}
    for work in TRAININGS.values():
        if work.epsilon is not None or work.fields:
            spec = presets.get(work.method, work.preset)[1].spec
            costs.setdefault((work.method, str(to_json(spec)), str(work.base())), work)
    return list(costs.values())


@pytest.mark.slow
@pytest.mark.parametrize("work", changed(), ids=lambda work: (
    f"{work.method}-{work.preset}-{work.epsilon or 'fields'}"))
def test_the_budget_of_a_row_allows_its_steps_where_it_is_not_the_presets(work):
    preset, (config, budget) = presets.get(work.method, work.preset)[1], work.request()
    config = complete(work.method, with_records(config, preset.records), preset.spec, budget)
    assert config.steps > 0 and config.sigma is not None
    assert methods.get(work.method).build(config, preset.spec).mechanism.events(1) is not None


@pytest.mark.parametrize("work", list(map(marked, alike())))
def test_every_preset_runs_two_steps_on_data_in_the_official_layout(work, specs, tmp_path):
    dataset = toy_rows.loaded(work, specs)
    assert dataset.spec == presets.get(work.method, work.preset)[1].spec
    release = toy_rows.trained(work, dataset, tmp_path / "run")
    x, y = release.arrays(dataset.spec.classes, seed=0)
    assert x.shape == (dataset.spec.classes, *dataset.spec.shape)
    assert release.privacy["steps"] == toy_rows.small(work.base()[0]).steps
