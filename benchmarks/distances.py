"""How far the systems on images are from what is published: tables of `benchmarks.results_page`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import systems, systems_rows
from benchmarks.papers import registry
from benchmarks.results_systems import system_row, system_rows
from benchmarks.results_tables import DATA_NAMES, markdown, results
from benchmarks.systems_shown import shown_name

CELLS = tuple((data, epsilon) for data in systems.DATA for epsilon in systems.EPSILONS)
PUBLISHED: dict[str, tuple[float, ...]] = {
    "FETA-Pro": (0.971, 0.986, 0.823, 0.883),
    "DP-FETA": (0.956, 0.981, 0.817, 0.873),
    "DP-Kernel": (0.940, 0.936, 0.684, 0.700),
    "DP-GAN": (0.924, 0.927, 0.718, 0.703),
    "DPDM": (0.892, 0.977, 0.764, 0.856),
    "DPDM, by its authors": (0.953, 0.981, 0.794, 0.862),
    "DP-MERF": (0.803, 0.813, 0.622, 0.622),
    "GS-WGAN": (0.724, 0.753, 0.527, 0.567)}
"""Accuracies without public data, in the order of `CELLS`. The page names their sources."""

AIMS = (0.975, 0.985, 0.82, 0.875)
"""Accuracies that `mixture` was to reach in full under zero-out, in the order of `CELLS`."""

IMAGES = {("datalens", "mnist", 1.0): "images-mnist-mnist-eps1-mean",
          ("datalens", "mnist", 10.0): "images-mnist-mnist-eps10-mean",
          ("gpate", "mnist", 1.0): "gpate-mnist-mnist-eps1-topk",
          ("gpate", "fashion", 1.0): "gpate-fashion_mnist-fashion-eps1-full",
          ("gswgan", "mnist", 10.0): "gswgan-mnist-50000-mnist-eps10-long",
          ("gswgan", "fashion", 10.0): "gswgan-fashion_mnist-fashion-eps10-long",
          ("dpac", "mnist", 10.0): "dpac-mnist-mnist-eps10-long",
          ("dpac", "fashion", 10.0): "dpac-fashion_mnist-fashion-eps10-long"}
"""Results of `benchmarks.images`, of the best of presets that were compared."""
_OF_TEACHERS = {"datalens": "datalens:table1:{data}-eps{epsilon:g}",
                "gpate": "gpate:table1c:{data}-eps{epsilon:g}",
                "pategan": "gpate:table1c:{data}-eps{epsilon:g}-pategan"}
_ANSWERS = {"datalens": "signs", "gpate": "gradients", "pategan": "votes"}
ROWS = {**_OF_TEACHERS, **{f"prototypes-{_ANSWERS[method]}": row
                           for method, row in _OF_TEACHERS.items()},
        "gswgan": "gswgan:table1:{data}", "dpac": "dpac:table2:{data}"}
"""Each system's row of its paper, PATE-GAN's of G-PATE's, and of prototypes that of the paper whose
answers they have; of the last two there is one for each
data set, at epsilon 10."""
CNN = "gen2real.cnn.accuracy"
LEARNED = {"mixture": "images of `mixture`",
           "directions": "its records, in the directions that were released",
           "frequencies": "its records, in the frequencies that were released",
           "records": "its records"}
"""The images that a CNN learns from, by their names in `benchmarks.headroom`."""


def _head(*before: str) -> tuple[str, ...]:
    return (*before, *(f"{DATA_NAMES[data]}, epsilon {epsilon:g}" for data, epsilon in CELLS))


def published_table() -> str:
    """Returns what others published without public data."""
    return markdown(_head("system"), ([name, *(f"{score:.3f}" for score in scores)]
                                      for name, scores in PUBLISHED.items()))


def distance_table() -> str:
    """Returns the best of each column, our aims and how far `mixture` is from the best."""
    best = [max(scores) for scores in zip(*PUBLISHED.values(), strict=True)]
    lines = [["best published", *(f"{score:.3f}" for score in best)],
             ["aim: full, zero-out", *(f"{score:.3f}" for score in AIMS)]]
    for full, setting in ((True, "full"), (False, "fast")):
        for relation in ("zero-out", systems_rows.REPLACE_ONE):
            rows = {(row["dataset"], row["epsilon"]): row for row in system_rows(
                full=full, relation=relation) if row["method"] == "mixture"}
            lines.append([f"{setting}, {relation}", *(
                _difference(_cnn(rows[cell]), above) if cell in rows else ""
                for cell, above in zip(CELLS, best, strict=True))])
    return markdown(_head("evaluation, relation"), lines)


def _cnn(row: dict[str, Any]) -> float:
    return row["gen2real"]["cnn"]["accuracy"]["mean"]


def _difference(ours: float, theirs: float) -> str:
    return f"{ours:.3f} ({ours - theirs:+.3f})"


def headroom_table() -> str:
    """Returns what a mixture's images teach, and what its records would in its directions."""
    found = {(row["dataset"], row["epsilon"]): row["accuracy"]
             for row in results("headroom")["rows"]}
    return markdown(_head("a CNN learns from"), (
        [text, *(f"{found[cell][kind]:.3f}" if cell in found else "" for cell in CELLS)]
        for kind, text in LEARNED.items()))


def lost_within() -> str:
    """Returns the least and the largest share of the gap that lies in the released directions."""
    each = [row["accuracy"] for row in results("headroom")["rows"]]
    shares = [(row["directions"] - row["mixture"]) / (row["records"] - row["mixture"])
              for row in each]
    return f"{min(shares):.0%} to {max(shares):.0%}"


def own_papers_table() -> str:
    """Returns the systems of the papers beside their papers' rows and ten noisy class means."""
    yardstick = {(row["dataset"], row["epsilon"]): row["accuracy"]["mean"]
                 for row in results("nearest_mean")["rows"]}
    lines = [["ten noisy class means", *(f"{yardstick[cell]:.3f}" for cell in CELLS)]]
    for method, template in ROWS.items():
        cells = []
        for data, epsilon in CELLS:
            row = template.format(data=data, epsilon=epsilon)
            ours, fewer = _ours(method, data, epsilon)
            printed = epsilon == 10 or "eps" in template
            cells.append((_difference(ours, float(registry.ROWS[row].paper[CNN])) if printed
                          else f"{ours:.3f}") + "\\*" * fewer)
        name = registry.TITLES.get(method, "PATE-GAN")
        lines.append([shown_name(method) if "-" in method else name, *cells])
    return markdown(_head("system"), lines)


def _ours(method: str, data: str, epsilon: float) -> tuple[float, bool]:
    """The accuracy of a CNN by the best preset that was run, and whether in fewer steps."""
    row = system_row(method, data, epsilon)
    found = [(_cnn(row), row["steps"] < (row["preset_steps"] or 0))]
    if stem := IMAGES.get((method, data, epsilon)):
        found.append((_cnn(results(stem)["evaluation"]), False))
    return max(found)


def warp_table() -> str:
    """Returns what a CNN learns from `mixture` with and without what its presets set by hand."""
    labels = {"preset": "as the preset", "not moved": "not moved (`warp` 0)",
              "settings for any images": "the settings of other images (`images-eps...`)"}
    columns = [{row["label"]: row["metrics"][CNN] for row in results(
        f"sweep-mixture-{data}-eps{epsilon:g}-warp")["rows"]} for data, epsilon in CELLS]
    return markdown(_head("setting"), ([text, *(
        f"{column[label]['mean']:.3f} ± {column[label]['std']:.3f}" for column in columns)]
        for label, text in labels.items()))


TABLES: dict[str, Callable[[], str]] = {table.__name__: table for table in (
    published_table, distance_table, headroom_table, lost_within, own_papers_table,
    warp_table)}
