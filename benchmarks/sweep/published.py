"""Sweeps and curves that the papers print, by name: PAPER:TABLE:WHAT.

`python -m benchmarks.sweep NAME` runs one. Cells have the paper's values of what is compared and
the settings that go with them; everything else is the preset's. An epsilon that a preset promises
is proven, so that it may allow fewer steps than the paper took; `-published` presets of GS-WGAN
and DPAC promise nothing, and their runs are stamped so. What a paper prints for a cell stands
beside it.
"""

from __future__ import annotations

import dataclasses

from benchmarks.sweep import published_datalens
from benchmarks.sweep.cells import BUDGETS, CNN, Cell, Sweep, along, digits, variants

MLP = "gen2real.mlp.accuracy"
INCEPTION, FID = "fidelity.inception_score", "fidelity.fid"
BACK = ("real2gen.mlp.accuracy", "real2gen.cnn.accuracy")
QUALITY = (INCEPTION, FID, "fidelity.fid_features")
DPAC = (INCEPTION, FID, MLP, CNN, *BACK)


def _gpate() -> dict[str, Sweep]:
    """Return Tables 2 and 4 of G-PATE; projection 0 is the column "N/A"."""
    printed = {
        "mnist": ("0.2230 0.2478 0.4184 0.5377 0.5880", "0.4638 0.5880 0.5604 0.1141",
                  "0.4240 0.5218 0.5880", "0.4754 0.5880 0.5505 0.4668", "0.5880 0.5810 0.4706"),
        "fashion": ("0.1874 0.3020 0.4283 0.5258 0.5812", "0.5129 0.5812 0.5172 0.1268",
                    "0.3997 0.4874 0.5812", "0.5140 0.5567 0.5812 0.5339",
                    "0.5575 0.5812 0.5400")}
    result = {}
    for name, (budgets, projections, teachers, clips, bins) in printed.items():
        cells = {f"table2:{name}": along("epsilon", BUDGETS, budgets),
                 f"table4:{name}-projection": along("projection", "5 10 20 0", projections),
                 f"table4:{name}-teachers": along("teachers", "2000 3000 4000", teachers,
                                                  batch="30 20 15"),
                 f"table4:{name}-clip": along("clip", "5e-4 1e-4 5e-5 1e-5", clips),
                 f"table4:{name}-bins": along("bins", "5 10 20", bins)}
        for key, some in cells.items():
            source = f"Long et al. 2021, {key.partition(':')[0].replace('table', 'Table ')}"
            result[f"gpate:{key}"] = Sweep(
                "gpate", f"{source}; data-independent accounting",
                digits(name, "{}-eps1"), some, (CNN,))
    return result


def _dpac() -> dict[str, Sweep]:
    """Return Tables 4 and 5 of DP-GAN-DPAC, on Fashion-MNIST."""
    def rows(*lines: str) -> dict[str, list[float]]:
        columns = zip(*(map(float, line.split()) for line in lines), strict=True)
        return dict(zip(DPAC, map(list, columns), strict=True))

    baseline, full = "5.32 131.24 0.65 0.65 0.85 0.85", "6.60 90.77 0.75 0.73 0.97 0.98"
    parts = variants(
        {"baseline": {"method": "gswgan"}, "w/o g2r": {"fake_steps": "0"},
         "w/o r2g": {"real_steps": "0"}, "w/o seq": {"order": "parallel"},
         "w/o init": {"renewed": "false"}, "full": {}},
        rows(baseline, "6.33 88.17 0.73 0.68 0.94 0.95", "6.47 86.91 0.74 0.71 0.92 0.92",
             "4.91 128.25 0.65 0.64 0.88 0.77", "6.56 101.69 0.72 0.65 0.97 0.95", full))
    values = variants(
        {"baseline": {"method": "gswgan"}, "t_c 0": {"t_c": "0"}, "t_c 16000": {"t_c": "16000"},
         "beta 0.5": {"beta": "0.5"}, "beta 0.95": {"beta": "0.95"},
         "fakes to reals 60:10": {"fake_steps": "60"},
         "fakes to reals 10:60": {"real_steps": "60"}, "full": {}},
        rows(baseline, "6.09 93.27 0.75 0.71 0.97 0.92", "6.12 105.35 0.68 0.65 0.96 0.92",
             "6.55 105.11 0.69 0.65 0.95 0.97", "6.36 90.43 0.74 0.70 0.97 0.98",
             "6.26 106.50 0.70 0.66 0.95 0.92", "6.49 90.93 0.73 0.70 0.97 0.96", full))
    adapted = {"t_c 16000": {"t_c": "160"}}  # 200 steps for 20,000
    result = {}
    for table, cells in (("table4", parts), ("table5", values)):
        small = tuple(dataclasses.replace(cell, settings=adapted.get(cell.label, cell.settings))
                      for cell in cells)
        source = f"Chen et al. 2023, Table {table[-1]}"
        result[f"dpac:{table}:fashion"] = Sweep(
            "dpac", f"{source}; published noise", digits("fashion", "{}-published"), cells, DPAC)
        result[f"dpac:{table}:fashion-eps10"] = Sweep(
            "dpac", f"{source}; small networks at a proven epsilon of 10, shares of the steps as "
            "published", {**digits("fashion", "{}-eps10"), "t_c": "60", "real_steps": "10"}, small,
            DPAC)
    return result


def _gswgan() -> dict[str, Sweep]:
    """Return Figures 4 and A2 of GS-WGAN; the figures' values are not in its text: these are ours.

    The published settings promise nothing; where noise is compared, epsilon is proven.
    """
    result = {}
    for figure, name in (("figure4", "mnist"), ("figureA2", "fashion")):
        source = f"Chen et al. 2020, Figure {figure.removeprefix('figure')}"
        steps = Sweep("gswgan", f"{source}: iterations; published noise",
                      digits(name, "{}-published"), along("steps", "5000 10000 15000 20000"),
                      QUALITY)
        result[f"gswgan:{figure}:iterations"] = steps
        if figure == "figure4":
            result[f"gswgan:{figure}:subsets"] = dataclasses.replace(
                steps, source=f"{source}: subsets; published noise").along(
                "critics", ("500", "1000", "1500"))
        noise = along("epsilon", "1 2 5 10 20")
        result[f"gswgan:{figure}:noise"] = Sweep(
            "gswgan", f"{source}: noise; 143 critics a step",
            digits(name, "mnist-eps10-rotation"), noise, QUALITY)
        result[f"gswgan:{figure}:noise-small"] = Sweep(
            "gswgan", f"{source}: noise; small networks", digits(name, "{}-eps10"), noise, QUALITY)
        result |= {f"gswgan:{figure}:{key}": sweep for key, sweep in _baselines(
            source, name, noise).items()}
    return result


def _baselines(source: str, name: str, noise: tuple[Cell, ...]) -> dict[str, Sweep]:
    """Return the curves of the other systems in Figures 4 and A2.

    At fixed noise the budget decides how many iterations there are, as in the paper; at fixed
    iterations, those of the setting that it prints, the noise follows from the budget.
    """
    by_noise = {"gpate": ("{}-eps10-code", {"sigma": "None", "steps": "65"}),
                "dpcgan": ("{}-gswgan", {"sigma": "None"}), "dpmerf": ("{}-eps10-published", {}),
                "dpmerf_ae": ("mnist-eps10", {})}
    result = {f"noise-{method}": Sweep(method, f"{source}: noise of {method}",
                                       {**digits(name, preset), **fields}, noise, QUALITY)
              for method, (preset, fields) in by_noise.items()}
    for method, preset in (("gpate", "{}-eps10-code"), ("dpcgan", "{}-gswgan")):
        result[f"iterations-{method}"] = Sweep(
            method, f"{source}: iterations of {method} that epsilon allows at its noise",
            {**digits(name, preset), "steps": "None"}, noise, QUALITY)
    return result


SWEEPS = {**_gpate(), **published_datalens.SWEEPS, **_dpac(), **_gswgan()}
