r"""Measure what it costs to leave the schema of a table undeclared, at one epsilon or several.

    python -m benchmarks.undeclared                                   # quirks and loans, two runs
    python -m benchmarks.undeclared --tables adult --epsilon 1 --runs 5
    python -m benchmarks.undeclared --part validation --tables loans rare

Each table is trained on twice by the commands of a user: with its declared schema, and with the
name of its label alone, so that the schema is bought. Both are compared with held-out rows, and so
are real rows whose columns were shuffled, each by itself. `quirks` has what real tables have and a
purchase may lose; for it the share of cells is measured that could be cells of the real table. The
tables are public, and so nothing of what is measured is covered by an epsilon. `--part validation`
tests on a quarter of the training rows, by which settings are chosen.
"""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import common
from benchmarks.tables import cells, data, methods
from dpgen_jax.core.console import tell
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.table import schema, tables, transform
from dpgen_jax.data.table.parsing import Coded, read_csv
from dpgen_jax.evaluation import marginals, prediction

ARMS = ("declared", "undeclared")
STATES = [f"{a}{b}" for a in "ACDFGIKLMN" for b in "AEIOY"]
QUIRKS: Json = {"label": "y", "columns": {
    "id": {"kind": "integer", "min": "1", "max": "6000"},
    "year": {"kind": "integer", "min": "1990", "max": "2010"},
    "minutes": {"kind": "continuous", "min": "0", "max": "500", "decimals": "1"},
    "charge": {"kind": "continuous", "min": "0", "max": "100", "decimals": "2"},
    "state": {"kind": "categorical", "categories": STATES},
    "flag": {"kind": "integer", "min": "0", "max": "1"},
    "stage": {"kind": "ordinal", "categories": ["0.0", "0.5", "1.0"]},
    "term": {"kind": "ordinal", "categories": ["36", "60"]},
    "area_code_415": {"kind": "categorical", "categories": ["408", "415", "510"]},
    "grade": {"kind": "ordinal", "categories": list("ABCDEFG")},
    "rate": {"kind": "continuous", "min": "0", "max": "30", "decimals": "2"},
    "kappa": {"kind": "continuous", "min": "0", "max": "30", "decimals": "2"},
    "reason": {"kind": "categorical", "categories": ["price", "service", "moved"],
               "nullable": "true"},
    "y": {"kind": "categorical", "categories": ["no", "yes"]}}}
"""The schema that a user of quirks.csv could declare."""
EXACT = {"year": {str(year) for year in range(1995, 2004)}, "state": set(STATES),
         "flag": {"0", "1"}, "stage": {"0.0", "0.5", "1.0"}, "term": {"36", "60"},
         "area_code_415": {"408", "415", "510"}, "grade": set("ABCDEFG"),
         "reason": {"", "price", "service", "moved"}}
"""The cells that columns of quirks.csv may have."""
DIGITS = {"minutes": 1, "charge": 2, "rate": 2, "kappa": 2}
"""The most decimals of others."""


def quirks(work: Path) -> Dataset:
    """Write and read the table of `quirks.py`, a fifth of it held out."""
    script = Path(os.environ["DPGEN_DATA"]).resolve() / "tables" / "quirks.py"
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(script)], cwd=work, check=True)
    made = read_csv(work / "quirks.csv")
    order = np.random.default_rng(0).permutation(len(made.rows))
    declared = schema.parse(QUIRKS, "quirks")
    coded = tables.parsing.coded(declared, made)
    parts = [[Coded(coded.codes[rows], coded.y[rows], "quirks")]
             for rows in np.split(order, [int(data.TRAIN_PART * len(order))])]
    return tables.table("quirks", declared, *parts, ("public data",))


def loaded(name: str, part: str, work: Path) -> Dataset:
    """Load a table, with a part of its training rows as the test rows where that is asked for."""
    if name != "quirks":
        return data.load(name, part)
    found = quirks(work)
    if part == "test":
        return found
    count = len(found.y_train) // data.VALIDATION_PARTS
    return dataclasses.replace(
        found, x_test=found.x_train[:count], y_test=found.y_train[:count],
        x_train=found.x_train[count:], y_train=found.y_train[count:])


def codes_of(column: Column, texts: Sequence[str]) -> np.ndarray:
    """Return the codes of cells, as near as they have some.

    A text of no category is null; in a nullable column it is the last category, as it is not null.
    """
    if column.categories:
        rest = float(len(column.categories) - 1) if column.nullable else np.nan
        named = {text: float(i) for i, text in enumerate(column.categories)}
        named |= {repr(float(text)): i for text, i in named.items()
                  if transform.number(text) is not None}
        return np.array([np.nan if not text else named.get(text, named.get(
            repr(transform.number(text)), rest)) for text in texts])
    values = np.array([transform.number(text) for text in texts], np.float64)
    values = np.clip(values, column.low, column.high)
    return np.rint(values) if column.kind == "integer" else values


def read(path: Path, spec: TableSpec) -> np.ndarray:
    """Read synthetic rows as cells of the declared schema: float64 [n, K]."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return np.stack([codes_of(column, frame[column.name].tolist())
                     for column in marginals.columns(spec)], 1)


def scores(found: np.ndarray, dataset: Dataset, seed: int) -> dict[str, float]:
    """Return the error of pairs of columns, and the mean AUROC of the classifiers."""
    spec, test = dataset.spec, (dataset.x_test, dataset.y_test)
    *features, y = found.T
    y = np.nan_to_num(y, nan=-1)
    filled = [np.where(np.isnan(values) & ~column.nullable, 0.0 if column.categories else
                       column.low, values)
              for column, values in zip(spec.columns, features, strict=True)]
    rows = transform.encode(spec, np.stack(filled, 1)).astype(np.float32)[y >= 0]
    labels = y[y >= 0].astype(np.int32)
    auroc = [prediction.score(name, cells.learned((rows, labels), seed), test, spec.classes,
                              seed).auroc for name in cells.CLASSIFIERS
             ] if len(set(labels.tolist())) == spec.classes else [0.5]
    return {"pairs": marginals.two_way_tvd(found, marginals.cells(spec, test),
                                           marginals.columns(spec)),
            "auroc": statistics.fmean(auroc)}


def valid(path: Path) -> dict[str, float]:
    """Return the share of the cells of columns of quirks.csv that could be real ones."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    shares = {name: np.mean([text in known for text in frame[name]])
              for name, known in EXACT.items()}
    return {name: float(share) for name, share in (shares | {
        name: np.mean([len(text.partition(".")[2]) <= digits for text in frame[name]])
        for name, digits in DIGITS.items()}).items()}


def trained(arm: str, dataset: Dataset, folder: Path, epsilon: float, seed: int,
            flags: Sequence[str] = ()) -> dict[str, Any]:
    """Train and sample as a user does, and measure."""
    place = folder / "synthetic.csv"
    if place.exists():  # of a run of this command that was stopped
        made = scores(read(place, dataset.spec), dataset, seed)
        return made | ({"valid": valid(place)} if dataset.name == "quirks" else {})
    shutil.rmtree(folder, ignore_errors=True)
    data.write(dataset, folder)
    if dataset.name == "quirks":
        (folder / "schema.yaml").write_text(json.dumps(QUIRKS))
        frame = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
        for column in DIGITS:  # as pandas writes numbers: 22.7 and 22.75
            frame[column] = [repr(float(text)) for text in frame[column]]
        frame.to_csv(folder / "train.csv", index=False)
    env, out = {"DPGEN_STATE": str(folder / "journal")}, folder / "run"
    words = (["--schema", str(folder / "schema.yaml")] if arm == "declared" else
             ["--label", dataset.spec.label.name, *flags])
    try:
        methods.timed([
            sys.executable, "-m", "dpgen_jax.train", "marginals", "--preset", "table", "--dataset",
            f"csv:{folder / 'train.csv'}", *words, "--epsilon", str(epsilon), "--delta",
            str(cells.delta(dataset)), "--test-fraction", "0", "--out", str(out)],
            folder / "train.log", 1800, env)
        methods.timed([sys.executable, "-m", "dpgen_jax.sample", str(out), "--n",
                       str(cells.wanted(dataset)), "--seed", str(seed), "--out", str(place)],
                      folder / "sample.log", 600, env)
    except methods.Failed as error:
        return {"error": str(error).replace(str(folder), "RUN")}
    made = scores(read(place, dataset.spec), dataset, seed)
    return made | ({"valid": valid(place)} if dataset.name == "quirks" else {})


def shuffled(dataset: Dataset, seed: int) -> dict[str, float]:
    """Measure real rows of which each column was shuffled by itself."""
    rng = np.random.default_rng(seed)
    real = marginals.cells(dataset.spec, (dataset.x_train, dataset.y_train))
    rows = np.stack([rng.permutation(column) for column in real.T], 1)
    return scores(rows[:cells.wanted(dataset)], dataset, seed)


def main(argv: Sequence[str] | None = None) -> int:
    script = common.Script("undeclared", __doc__)
    script.add_argument("--tables", nargs="+", default=["quirks", "loans"],
                        choices=("quirks", *data.COMPARED))
    script.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    script.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    script.add_argument("--runs", type=int, default=2)
    script.add_argument("--part", choices=("test", "validation"), default="test")
    script.add_argument("--share", help="the part of epsilon that buys, if not the default")
    script.add_argument("--work", type=Path, default=Path("runs/undeclared"))
    args = script.begin(argv)
    share = ["--schema-share", args.share] if args.share else []
    results: dict[str, Any] = {}
    for seed in range(args.runs):
        for name in args.tables:
            dataset = loaded(name, args.part, args.work.resolve() / "quirks-source")
            made = results.setdefault(name, {
                "rows": len(dataset.y_train), "columns": len(dataset.spec.columns) + 1,
                "delta": cells.delta(dataset), "shuffled": []})
            made["shuffled"].append(shuffled(dataset, seed))
            for epsilon in args.epsilon:
                for arm in args.arms:
                    folder = args.work.resolve() / f"{name}-{arm}-{epsilon:g}-{seed}"
                    found = trained(arm, dataset, folder, epsilon, seed, share)
                    made.setdefault(f"{arm} at epsilon {epsilon:g}", []).append(found)
                    tell(f"{name}, {arm}, epsilon {epsilon:g}, run {seed}: {found}")
            tell(f"{name}, shuffled: {made['shuffled'][-1]}")
            script.save({"part": args.part, "measures": cells.ABOUT, "tables": results},
                        range(args.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
