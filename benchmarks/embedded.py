"""Time and accuracy of every method on embedded images, by the one command that a user types.

    python -m benchmarks.embedded                              # glyphs, all methods: 20 minutes
    python -m benchmarks.embedded --dataset digits --methods dpgan dpmerf

Seconds are of the whole command, imports and compilation included. Accuracy is that of a CNN
trained on 10,000 synthetic images and tested on the real test images; of a released classifier
(`topagg_sgd`) its own on them. Each method runs once and is shown whatever the result. The record
is results/embedded-DATA.json.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from dpgen_jax import data, methods
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.run import lifecycle


def trained(method: str, dataset: str, epsilon: str, run: Path) -> dict[str, Any]:
    """Train once; return the row of the run, or why it failed."""
    budget = [] if method == "dcgan" else [f"--epsilon={epsilon}"]
    clock = common.Stopwatch()
    try:
        common.command("dpgen_jax.train", method, "--dataset", dataset, *budget, "--out", run)
    except UserError as error:
        return {"method": method, "error": str(error)}
    seconds = clock.seconds()
    release, privacy = lifecycle.load(run), read_json(run / "release" / "privacy.json")
    return {"method": method, "preset": privacy["preset"], "seconds": seconds,
            "epsilon": privacy["epsilon"], "unit": privacy["unit"], "steps": privacy["steps"],
            "accuracy": accuracy(release, data.load(dataset)), "commit": common.git()["commit"]}


def accuracy(release: Any, dataset: data.Dataset) -> float:
    """Return the accuracy of the released classifier, or of a CNN trained on synthetic images."""
    if release.classifies:
        return float(np.mean(release.predict(dataset.x_test) == dataset.y_test))
    evaluation = common.utility_of(release, dataset, ("gen2real",), 1, classifiers=("cnn",))
    return evaluation["gen2real"]["cnn"]["accuracy"]["mean"]


def main(argv: list[str] | None = None) -> None:
    script = common.Script("embedded", __doc__)
    script.add_argument("--dataset", default="glyphs", choices=("glyphs", "digits"))
    script.add_argument("--methods", nargs="+", default=methods.NAMES, choices=methods.NAMES)
    script.add_argument("--epsilon", default="10")
    args, rows = script.begin(argv), list[dict[str, Any]]()
    for method in args.methods:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(trained(method, args.dataset, args.epsilon, Path(folder) / "run"))
        script.save({"rows": rows}, [0], f"embedded-{args.dataset}")
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
