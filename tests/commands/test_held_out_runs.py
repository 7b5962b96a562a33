"""One CSV file, trained on and tested on by a share, through the commands."""

import json

import numpy as np
import pytest

from dpgen_jax import evaluate, train
from dpgen_jax.core.types import UserError

pytestmark = pytest.mark.slow
SCHEMA = """\
label: b
columns:
  a: {kind: continuous, min: 0, max: 1}
  b: {kind: categorical, categories: ["0", "1"]}
"""
N = 80


def test_training_and_evaluation_agree_on_a_share(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{a:.4f},{int(a > 0.5)}" for a in rng.uniform(size=N)]
    (tmp_path / "one.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    (tmp_path / "one.yaml").write_text(SCHEMA)
    data = ["--dataset", f"csv:{tmp_path / 'one.csv'}", "--schema", str(tmp_path / "one.yaml")]
    run, out = str(tmp_path / "run"), str(tmp_path / "new")

    train.command(["dpmerf", *data, "--test-fraction=0.25", "--out", run, "--features=12",
                   "--generator-steps=3", "--epsilon=2", "--delta=1e-3"])
    privacy = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert privacy["records"] == 60 and "a share of 0.25" in str(privacy["data_notes"])

    judged = [*data, "--samples=40", "--seeds=1", "--classifiers=lr", "--out", out]
    for place, other in ((run, ["--test-fraction=0.5"]), (f"{run}/release", [])):
        with pytest.raises(UserError, match="--test-fraction"):
            evaluate.command([place, *judged, *other])
    evaluate.command([run, *judged])  # with the share that the run recorded
    metrics = json.loads((tmp_path / "new/metrics.json").read_text())
    assert (metrics["n_test"], metrics["n_real"]) == (20, 40)
