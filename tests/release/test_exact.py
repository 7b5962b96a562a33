"""A model that is told conditions draws what filtering its records would leave, and little else."""

import dataclasses

import numpy as np
import pytest
import seeded

from dpgen_jax.release import sampling

pytestmark = pytest.mark.slow
NAMES = ("age", "sex", "pay", "mark")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return seeded.train(seeded.SLOW["marginals table"], tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(("where", "counts", "least"), [
    ("age>=60", None, 0.99), (["pay>=0", "sex=f"], None, 0.99), ("pay=null", (5, 900, 100), 1.0),
    (["mark=low|high", "kind!=a", "age<70"], (300, 500, 200), 0.99), ("age=20|90", None, 0.0)],
    ids=str)
def test_conditions_on_any_column_are_exact(made, where, counts, least):
    release = dataclasses.replace(made, class_counts=counts)
    sampler, wanted = release.stream(6000, seed=1,
                                     where=where), sampling.parse_conditions(where, made.spec)
    x, y = map(np.concatenate, zip(*sampler, strict=True))
    assert wanted.met(x).all() and wanted.classes()[y].all()
    report = next(line for line in sampler.report() if "in this range" in line)
    assert sampler.met >= least * sampler.tries, report
    every, labels = release.arrays(60_000, seed=2)
    met = wanted.met(every)
    share = float(report.split("by the model (")[1].split(" %")[0]) / 100
    if "20|90" not in str(where):  # of which the model is told the range
        assert met.mean() == pytest.approx(share, abs=0.01)
    met &= wanted.classes()[labels]
    theirs = np.column_stack([every[met], labels[met]])
    for ours, other in zip(np.column_stack([x, y]).T, theirs.T, strict=True):
        null, codes = np.isnan(ours), ours[~np.isnan(ours)]
        assert null.mean() == pytest.approx(np.isnan(other).mean(), abs=0.05)
        other = other[~np.isnan(other)]
        for at in np.quantile(other, [0.1, 0.3, 0.5, 0.7, 0.9]) if len(other) else ():
            assert (codes <= at).mean() == pytest.approx((other <= at).mean(), abs=0.05)


def test_labels_in_equal_shares_and_conditions_on_other_columns(made):
    sampler = made.stream(900, ["c", "a"], seed=3, where={"age": ">=40", "sex": "m"})
    x, y = map(np.concatenate, zip(*sampler, strict=True))
    assert np.bincount(y, minlength=3).tolist() == [450, 0, 450]
    assert (x[:, 0] >= 40).all() and (x[:, 1] == 1).all() and sampler.tries <= 1500
