"""Every method on embedded images, by the one command that a user types: how long it takes, from
typing it to the release, and how good that is.

    python -m benchmarks.embedded                              # glyphs, all methods: 20 minutes
    python -m benchmarks.embedded --dataset digits --methods dpgan dpmerf

Seconds are of the whole command, imports and compilation included. gen2real: accuracy of a CNN
trained on 10,000 synthetic images, tested on the real test images; of a classifier
(`topagg_sgd`), its own accuracy on them. One run each, shown whatever comes out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.privacy_utility import command
from dpgen_jax import api, data, methods
from dpgen_jax.errors import UserError
from dpgen_jax.run.folder import read_json


def trained(method: str, dataset: str, epsilon: str, run: Path) -> dict[str, Any]:
    """One run and what came out of it, or why nothing did."""
    budget = [] if method == "dcgan" else [f"--epsilon={epsilon}"]
    started = time.perf_counter()
    try:
        command("dpgen_jax.train", method, "--dataset", dataset, *budget, "--out", run)
    except UserError as error:
        return {"method": method, "error": str(error)}
    seconds = time.perf_counter() - started
    release, privacy = api.load(run), read_json(run / "release" / "privacy.json")
    return {"method": method, "preset": privacy["preset"], "seconds": seconds,
            "epsilon": privacy["epsilon"], "unit": privacy["unit"], "steps": privacy["steps"],
            "accuracy": accuracy(release, data.load(dataset)), "commit": common.git()["commit"]}


def accuracy(release: Any, loaded: data.Dataset) -> float:
    """Of the classifier that was released, or of a CNN trained on what the generator draws."""
    if release.classifies:
        return float(np.mean(release.predict(loaded.x_test) == loaded.y_test))
    found = common.usefulness(release, loaded, ("gen2real",), 1, classifiers=("cnn",))
    return found["gen2real"]["cnn"]["accuracy"]["mean"]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| method | seconds | accuracy |", "|---|---|---|"]
    lines += [f"| `{r['method']}` | {r['seconds']:.0f} | {r['accuracy']:.3f} |" if "seconds" in r
              else f"| `{r['method']}` | failed | {r['error']} |" for r in rows]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--dataset", default="glyphs", choices=("glyphs", "digits"))
    parser.add_argument("--methods", nargs="+", default=methods.NAMES, choices=methods.NAMES)
    parser.add_argument("--epsilon", default="10")
    parser.add_argument("--out", help="the results file")
    given = parser.parse_args(words)
    where, rows = common.machine(), []
    for method in given.methods:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(trained(method, given.dataset, given.epsilon, Path(folder) / "run"))
        shown = ["--dataset", given.dataset, "--methods", *given.methods, "--epsilon",
                 given.epsilon]
        rec = common.record("embedded", shown, [0], {"rows": rows}, where)
        common.write(rec, given.out or common.RESULTS / f"embedded-{given.dataset}.json")
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
