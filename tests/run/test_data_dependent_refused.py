"""Runs whose votes cannot be published: nothing is drawn, charged or written."""

import dataclasses
import math
import shutil

import pytest
import small_datalens
from test_data_dependent import CONFIG, STEPS, finished, snapshot

from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.core.types import UserError
from dpgen_jax.run import costs

pytestmark = pytest.mark.slow


# Refused, with nothing drawn, charged or written.

def check_refused(files, call, text):
    before = snapshot(files.root)
    with pytest.raises(UserError, match=text) as caught:
        call(files.root)
    assert "\n" not in str(caught.value) and snapshot(files.root) == before


PUBLISHED = pytest.mark.parametrize("call", [costs.publish, costs.publication_price])
ALL = pytest.mark.parametrize("call", [costs.data_dependent_reading, costs.publish,
                                       costs.publication_price])


@ALL
@pytest.mark.parametrize("aggregate", ["mean", "sum", "topk"])
def test_runs_that_released_noisy_sums_are_refused(tmp_path, call, aggregate):
    config = dataclasses.replace(CONFIG, aggregate=aggregate)
    check_refused(finished(tmp_path / "run", config), call, "noisy sums .* gpate")


@ALL
def test_runs_of_datalens_are_refused(tmp_path, call):
    files = finished(tmp_path / "run", small_datalens.CONFIG, method="datalens")
    check_refused(files, call, "noisy sums .* datalens")


@ALL
def test_runs_without_noise_are_refused(tmp_path, call):
    config = dataclasses.replace(CONFIG, sigma=0.0)
    check_refused(finished(tmp_path / "run", config, epsilon=math.inf), call, "without noise")


@ALL
def test_runs_that_kept_no_votes_are_refused(tmp_path, call):
    files = finished(tmp_path / "run")
    files.votes.unlink()
    check_refused(files, call, "kept no votes|the votes of 0 are here")


@PUBLISHED
def test_runs_that_lost_votes_are_not_published(tmp_path, call):
    check_refused(finished(tmp_path / "run", lost=2), call,
                  f"{STEPS + 2} steps are charged and the votes of {STEPS}")


@PUBLISHED
def test_runs_whose_votes_do_not_meet_the_conditions_are_not_published(tmp_path, call):
    config = dataclasses.replace(CONFIG, sigma=20.0, sigma_ratio=4.0, bins=10,
                                 sanitiser=Sanitiser(25.0, 0.01, 10.0, 12.0, 3.0))
    files = finished(tmp_path / "run", config, epsilon=9.0)
    check_refused(files, call, "no sanitised release")


@PUBLISHED
def test_runs_that_promise_nothing_are_not_published(tmp_path, call):
    """The statement of a seeded run got a finite epsilon beside its stamp `none`."""
    files = finished(tmp_path / "run")
    path = files.release / "privacy.json"
    stated = read_json(path) | {"guarantee": "none: a seed", "epsilon": "inf",
                                "noise_source": "seeded: no privacy claim"}
    write_json(path, stated)
    check_refused(files, call, "promises nothing .'none: a seed'")
    shown = costs.data_dependent_reading(files.root).record()
    assert shown["data_independent"]["epsilon"] == math.inf
    assert costs.of_run(files.root).claimed.epsilon == math.inf


def test_a_folder_without_a_run_is_refused(tmp_path):
    check_refused(RunFolder(tmp_path), costs.data_dependent_reading, "is no folder of a run")


def test_of_two_copies_one_publishes(tmp_path):
    """Each would have charged its own ledger for one of two draws."""
    files = finished(tmp_path / "run")
    copy = RunFolder(shutil.copytree(files.root, tmp_path / "copy"))
    costs.publish(copy.root)
    check_refused(files, costs.publish, "an older state or a copy")
