"""Numbers that other real records would change are listed as not covered by epsilon."""

import dataclasses

import numpy as np
import pytest
import small_datalens
from people_table import SPEC, table
from test_table_evaluation import FakeRelease

from dpgen_jax.core.config import Evaluation
from dpgen_jax.data import Dataset
from dpgen_jax.evaluation import assess, fidelity, networks, utility
from dpgen_jax.evaluation.assessment import read
from dpgen_jax.evaluation.results import silent

QUICK = networks.Schedule("short", epochs=1, min_steps=20, mlp_times=1, batch=32)
UNNAMED = ("date", "seconds", "not_covered_by_epsilon")
SIZES = (60, 50), (80, 40), (60, 30)


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """A release that draws the same records whatever was trained on, and short schedules."""
    monkeypatch.setattr(assess, "Release", FakeRelease)
    monkeypatch.setattr(assess.bundle, "tables", lambda *_: ())
    rows = assess.delivered
    monkeypatch.setattr(assess, "delivered", lambda release, n, seed: (
        rows(release, n, seed) if release.spec is SPEC else small_datalens.images(n, seed)))
    monkeypatch.setitem(utility.SETTINGS, "fast", dataclasses.replace(
        utility.SETTINGS["fast"], schedule=QUICK))
    monkeypatch.setitem(fidelity.COURSES, "fast", fidelity.Course(QUICK))


def leaves(part, path=""):
    """The (dotted key, value) of all that is no dict, but for times and the list of keys."""
    for key, value in part.items():
        name = f"{path}{key}"
        if isinstance(value, dict):
            yield from leaves(value, f"{name}.")
        elif not name.startswith(UNNAMED):
            yield name, value


def differing(records, spec, options):
    """Keys that no list names and that differ between three data sets, one without some classes."""
    found = []
    for seed, (n, n_test) in enumerate(SIZES):
        x_test, y_test = records(n_test, seed + 9)
        data = Dataset("some", spec, *records(n, seed), x_test, y_test * (seed < 2))
        result = assess.evaluate(FakeRelease(spec), data, settings=options, log=silent)
        listed = read(result.json())  # as the file says it
        found.append({key: value for key, value in leaves(result.json())
                      if not listed.is_from_real(key)})
    return {key for one in found for key in one if any(
        key not in other or other[key] != one[key] for other in found)}


@pytest.mark.slow
def test_of_a_table():
    options = Evaluation(seeds=1, samples=100, classifiers=("lr", "adaboost"),
                         by=("sex", "sex,ill"), targets=("pay",))
    assert not differing(lambda n, seed: table(n, seed, signal=3.0 * seed), SPEC, options)


@pytest.mark.slow
def test_of_images():
    options = Evaluation(seeds=1, samples=90, classifiers=("mlp", "gaussian_nb"), fast=True)
    assert not differing(lambda n, seed: tuple(np.asarray(a) for a in small_datalens.images(
        n, seed)), small_datalens.SPEC, options)
