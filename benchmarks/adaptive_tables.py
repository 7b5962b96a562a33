r"""Does `marginals` gain from a last round in the manner of AIM? A simulation, without a release.

    python -m benchmarks.adaptive_tables                       # five tables, three runs each

All ways share the releases of the first four of five steps, with the noise that epsilon 1 takes for
five. They differ in what the last step is spent on: the tables that are asked for today; or tables
of pairs that no edge of the tree holds, chosen by how far their coarse noisy tables are from the
first model. The chosen ones are counted as edges are, and fitted with all others by private-PGM in
any junction tree of at most `MOST_MEGABYTES`. NumPy's noise is a release's in its spread alone.
Classifiers learn from drawn rows, and are tested on a validation part of the training rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import common
from benchmarks.tables import cells, data
from benchmarks.tables.simulation import EPSILON, Simulation, rows_of
from dpgen_jax.cli import terminal
from dpgen_jax.core.console import tell
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.methods.shared import table_models, table_plan, table_tree
from dpgen_jax.methods.shared.table_models import LEAST, Facts
from dpgen_jax.methods.shared.table_plan import COARSE, Public

TABLES = ("adult", "loans", "dense", "rare", "breast_cancer")
MOST_MEGABYTES = 16.0
"""The most that the tables of the junction tree may take, float64, with the further ones."""
COLUMNS_A_TABLE = 3
"""There is a further table for each so many columns, at most."""
DRAWN = 50_000
"""Rows of the first model, for its coarse tables: the noise of a table of pairs is larger."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A use of the last step, in shares; the rest goes to the tables of today.

    Attributes:
      further: For the further tables.
      again: For the coarse tables of all pairs once more, which the choice then reads too.
    """

    further: float = 0.0
    again: float = 0.0


WAYS = {"all of the last step": Way(1.0), "half of the last step": Way(0.5),
        "half, and half for all pairs again": Way(0.5, 0.5)}


def drawn(run: Simulation, facts: Facts, model: Any, n: int) -> tuple[np.ndarray, ...]:
    """Return n rows of a model of mbi: groups by it, bins and cells as the tree has them.

    They are encoded rows float32 [n, F], their labels int32 [n], and their cells int32 [n, d].
    """
    p, public = run.plan, facts.public
    np.random.seed(run.seed)  # noqa: NPY002 - mbi draws by it
    with table_models.exact():
        groups = model.synthetic_data(rows=n, method="sample").to_dict()
    y = groups[p.d].astype(np.int32)
    start, width = p.grid.ends
    found = np.zeros((2, n, p.d))
    for i in range(p.d):
        inside = public.group_of[i] == groups[i][:, None]
        mass = np.cumsum(facts.within[i][y] * inside, 1)
        bins = np.asarray(table_tree.sampled_places(mass, run.rng.random(n)))
        of_bin = (public.bin_of[i] == np.arange(p.bins)[:, None]) * public.fine[i]
        cell = np.asarray(table_tree.sampled_places(np.cumsum(of_bin, 1)[bins], run.rng.random(n)))
        found[:, :, i] = cell, start[i, cell] + run.rng.random(n) * width[i, cell]
    rows = p.grid.rows(found[0].astype(np.int32), found[1].astype(np.float32))
    return np.asarray(table_plan.whole_features(run.dataset.spec,
                                                rows)), y, found[0].astype(np.int32)


def chosen(run: Simulation, facts: Facts, first: Any) -> list[tuple[int, int]]:
    """Return the pairs whose noisy coarse tables are furthest from a first model, beyond noise.

    The first model is one of mbi; rows that are drawn from it stand for its tables.
    """
    import mbi

    p, public = run.plan, facts.public
    _, _, codes = drawn(run, facts, first, DRAWN)
    coarse = np.take_along_axis(public.coarse_of.T, codes, 0)
    taken = [tuple(clique) for clique in first.potentials.cliques]
    edges = {frozenset((i, int(j))) for i, j in enumerate(public.parent) if j >= 0}
    gain = {}
    for i, j in facts.pairs:
        known = np.bincount(coarse[:, i] * COARSE + coarse[:, j], minlength=COARSE**2) / len(codes)
        gain[i, j] = float(np.sum((facts.pairs[i, j].ravel() - known)**2)) - facts.pair_noise**2 * (
            COARSE**2 + (2 * COARSE**2)**0.5)
    found: list[tuple[int, int]] = []
    domain = mbi.Domain([*range(p.d + 1)], [*[p.groups] * p.d, p.classes])
    for i, j in sorted(gain, key=lambda pair: -gain[pair]):
        clique = (p.d, i, j) if p.edge_classes > 1 else (i, j)
        if gain[i, j] <= 0 or len(found) >= max(p.d // COLUMNS_A_TABLE, 1):
            break
        fits = mbi.junction_tree.hypothetical_model_size(domain, [*taken, clique])
        if frozenset((i, j)) not in edges and fits <= MOST_MEGABYTES:
            found.append((i, j))
            taken.append(clique)
    return found


def further(run: Simulation, facts: Facts, pairs: list[tuple[int, int]], share: float) -> list[Any]:
    """Return the measurements of further tables, which have this share of a step together."""
    import mbi

    p, public = run.plan, facts.public
    bins = np.take_along_axis(public.bin_of.T, run.codes, 0)
    groups = np.take_along_axis(public.group_of.T, bins, 0)
    label, tables, measured = np.clip(run.dataset.y_train, 0, p.classes - 1), len(pairs) / share, []
    with table_models.exact():
        for pair in pairs:
            axes = [(label, p.classes)] * (p.edge_classes > 1)
            axes += [(groups[:, column], p.groups) for column in pair]
            clique = (p.d, *pair) if p.edge_classes > 1 else pair
            measured.append(mbi.LinearMeasurement(
                run.table(axes, tables).ravel(), clique,
                max(p.noise(tables) / p.records, LEAST)))
    return measured


def with_a_round(run: Simulation, public: Public, way: Way) -> tuple[Any, Facts, int]:
    """Return a model with a further round in place of a part of the last step.

    Returns:
      The model of mbi, the facts that it was fitted to, and how many further tables it has.
    """
    facts, _ = run.facts(public)
    if way.again:
        facts = run.pairs_again(facts, way.again)
    first = table_models.estimated(run.plan, table_models.measurements(
        facts, table_models.second_parents(facts)))
    pairs = chosen(run, facts, first)
    if (rest := 1 - way.further - way.again) > 0:  # goes to the tables of today
        weights = np.floor(np.asarray(public.weights) * rest**0.5).astype(np.int32)
        later, _ = run.facts(run.step(dataclasses.replace(public, weights=weights)))
        facts = dataclasses.replace(later, pairs=facts.pairs, pair_noise=facts.pair_noise)
    measured = [*table_models.measurements(facts, table_models.second_parents(facts)),
                *further(run, facts, pairs, way.further)]
    return table_models.estimated(run.plan, measured), facts, len(pairs)


def ways(run: Simulation, n: int) -> dict[str, dict[str, Any]]:
    """Return the scores of all ways, of n drawn rows each, by name."""
    dataset, spec = run.dataset, run.dataset.spec
    test = dataset.x_test, dataset.y_test
    public = run.first_four()
    last = run.step(public)
    found = {"today, a tree": cells.measured(rows_of(run, last, n), test, spec, run.seed)}
    if not run.plan.pairs:
        return found
    facts, _ = run.facts(last)
    today = table_models.estimated(run.plan, table_models.measurements(
        facts, table_models.second_parents(facts)))
    x, y, _ = drawn(run, facts, today, n)
    found["today, graphical"] = cells.measured((x, y), test, spec, run.seed)
    for name, way in WAYS.items():
        fitted, facts, tables = with_a_round(run, public, way)
        x, y, _ = drawn(run, facts, fitted, n)
        found[name] = cells.measured((x, y), test, spec, run.seed) | {"further tables": tables}
    return found


def earlier(path: Path, flags: list[str]) -> dict[str, Any]:
    """Return the tables that the same command has done already."""
    known = json.loads(path.read_text()) if path.exists() else {"command": ""}
    return known["results"]["tables"] if known["command"].endswith(" ".join(flags)) else {}


def main(argv: list[str]) -> None:
    """Simulate what is missing, print the means, and write the record after each table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=data.COMPARED)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=common.RESULTS / "adaptive_tables.json")
    args = parser.parse_args(argv)
    flags, path = ["--tables", *args.tables, "--runs", str(args.runs)], args.out
    where, found = common.machine(), earlier(path, flags)
    for name in (name for name in args.tables if name not in found):
        dataset, scores = data.load(name, "validation"), {}
        for seed in range(args.runs):
            jax.clear_caches()  # each run compiles programs of its own, which stay in memory
            run = Simulation(dataset, seed)
            for way, score in ways(run, min(len(dataset.y_train), cells.MOST_ROWS)).items():
                scores.setdefault(way, []).append(score)
        found[name] = {"rows": len(dataset.y_train), "test_rows": len(dataset.y_test),
                       "sigma": run.plan.sigma, "asks_for_pairs": run.plan.pairs, "ways": {
                           way: {key: summary([score[key] for score in of]) for key in of[0]}
                           for way, of in scores.items()}}
        for way, of in found[name]["ways"].items():
            tell(f"{name}, {way}: " + ", ".join(f"{k} {v['mean']:.3f}" for k, v in of.items()))
        made = {"epsilon": EPSILON, "delta": cells.DELTA, "part": "validation",
                "measures": cells.ABOUT, "simulated": True, "tables": found}
        common.write(common.record("adaptive_tables", flags, range(args.runs), made, where), path)


if __name__ == "__main__":
    terminal.main(main)
