"""How useful rows of noisy marginals are, as floors: a fault in what is learnt shows here first."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpgen_jax import data, presets
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.evaluation import marginals as distances
from dpgen_jax.run import lifecycle, stages

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once", "no_pictures")]
ADULT = Path(os.environ.get("DPGEN_DATA", "data")) / "adult"


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing thirty columns takes longer than learning them, and nobody looks at them here."""
    monkeypatch.setattr(stages, "write_pictures", lambda *_: None)


def synthetic(dataset, preset, root, epsilon=1.0):
    config = presets.get("marginals", preset)[1].config
    request = lifecycle.Resolved(
        "marginals", preset, config, Budget(epsilon, 1e-5), Runtime(), root)
    return lifecycle.run(request, dataset, lambda line: None).encoded(10_000)


def auroc(rows, dataset):
    model = LogisticRegression(max_iter=300).fit(*rows)
    return roc_auc_score(dataset.y_test, model.predict_proba(dataset.x_test)[:, 1])


def test_breast_cancer_at_epsilon_1(tmp_path):
    dataset = data.load("breast_cancer")
    scores = [auroc(synthetic(dataset, "breast_cancer", tmp_path / str(run)), dataset)
              for run in range(5)]
    assert np.mean(scores) >= 0.97, scores


@pytest.mark.long
@pytest.mark.skipif(not ADULT.is_dir(), reason="DPGEN_DATA/adult holds UCI's files")
def test_adult_at_epsilon_1(tmp_path):
    """Also the shares of classes, columns and pairs."""
    dataset = data.load(f"adult:{ADULT}")
    rows = synthetic(dataset, "adult", tmp_path / "run")
    made, real = (distances.cells(dataset.spec, part)
                  for part in (rows, (dataset.x_test, dataset.y_test)))
    columns = distances.columns(dataset.spec)
    assert auroc(rows, dataset) > 0.86
    assert distances.two_way_tvd(made, real, columns) < 0.075
    assert max(distances.one_way_tvd(made, real, columns)) < 0.06
