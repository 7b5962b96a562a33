"""All rows, by name, as rows.yaml has them."""

import re
import shlex
from typing import Any

from benchmarks import common
from benchmarks.papers.rows import Command, Nothing, Row, Training, Work
from benchmarks.sweep.published import SWEEPS
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.resnet import CriticNet, ResNetNet

TITLES = {"gpate": "G-PATE", "datalens": "DataLens", "gswgan": "GS-WGAN", "dpac": "DP-GAN-DPAC"}
"""The papers; the fifth text is G-PATE's appendix."""
NETWORKS = {"generator": ResNetNet(), "critic": CriticNet()}
NIGHTS: dict[str, dict[str, Any]] = {
    "gswgan": NETWORKS | {
        "critics": 200, "steps": 100, "critic_steps": 1, "class_weight": 10.0,
        "g_optimiser": Adam(1e-3, 0.5, 0.9), "d_optimiser": Adam(2e-3, 0.0, 0.99)},
    "dpac": NETWORKS | {
        "critics": 100, "steps": 100, "critic_steps": 2, "class_weight": 0.0, "warm_steps": 200,
        "warm_generator": ResNetNet(), "logit_slope": "sigmoid", "t_c": 20, "real_steps": 4,
        "classifier": CriticNet()}}
"""Fields of rows that name a `night`: the published networks, in what a night on two cores allows.

The slope of GS-WGAN stays straight-through, and there are no warm steps: with the sigmoid's slope,
DPAC's images stayed black (dpac:table2:mnist-night)."""


def sweep_command(name: str, data: str) -> Command:
    return Command("sweep", (name, "--full"), "sweep-" + re.sub(r"[^\w.]+", "-", name), data)


def sweep_printed(name: str) -> dict[str, str]:
    return {f"{cell.label}: {metric}": f"{value:g}"
            for cell in SWEEPS[name].cells for metric, value in cell.printed.items()}


def _work(entry: dict[str, Any]) -> Work:
    if "train" in entry:
        method, preset, data = entry["train"].split()
        fields = NIGHTS.get(entry.get("night", "")) or {
            field: int(value) for field, value in entry.get("fields", {}).items()}
        epsilon = entry.get("epsilon")
        return Training(method, preset, data, entry.get("protocol", "cnn"), fields,
                        None if epsilon is None else float(epsilon))
    if "sweep" in entry:
        return sweep_command(entry["sweep"], entry["data"])
    if "run" in entry:
        module, *argv = shlex.split(entry["run"])
        return Command(module, tuple(argv), entry["file"], entry.get("data", "none"),
                       _pick(*entry["pick"]) if "pick" in entry else None)
    return Nothing(entry["none"])


def _pick(name: str, which: Any) -> tuple[str, Any]:
    if isinstance(which, dict) and "noise" in which:
        which = which | {"noise": float(which["noise"])}
    return name, which


def _row(name: str, entry: dict[str, Any]) -> Row:
    paper, note = entry.get("paper", {}), entry.get("note", "")
    if entry.get("sweep") == name:
        paper, note = sweep_printed(name), note or SWEEPS[name].source
    return Row(name, _work(entry), paper, float(entry.get("hours", 0)), note,
               tuple(entry.get("also", ())))


ROWS = {name: _row(name, entry)
        for name, entry in common.read_yaml(__file__, "rows.yaml").items()}


def find(name: str) -> Row:
    base, _, variant = name.partition("+")
    if base not in ROWS:
        raise UserError(f"unknown row {base!r}{nearest(base, list(ROWS))}; list them with "
                        "python -m benchmarks.papers")
    return ROWS[base].with_variant(variant) if variant else ROWS[base]
