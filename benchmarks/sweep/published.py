"""Sweeps and curves that the papers print, by name: PAPER:TABLE:WHAT.

`python -m benchmarks.sweep NAME` runs one. Cells have the paper's values of what is compared and
the settings that go with them; everything else is the preset's. An epsilon that a preset promises
is proven, so that it may allow fewer steps than the paper took; `-published` presets of GS-WGAN
and DPAC promise nothing, and their runs are stamped so. What a paper prints for a cell stands
beside it.
"""

from __future__ import annotations

import dataclasses

from benchmarks.sweep.cells import BUDGETS, CNN, VARIANT, Cell, Sweep, along, digits, variants

# The sweeps of DataLens (Wang et al. 2021): Tables 2, 4, 5 and 7 to 10.

WANG = "Wang et al. 2021"
ACCURACY = "accuracy"
LEAST = "1e-30"
"""As a threshold, a single vote; as a clip, signs without chance."""
FACES = {name: {"preset": f"{name}-eps1", "dataset": "celeba:celeba", "attribute": name,
                "delta": "1e-6"} for name in ("gender", "hair")}
SETTINGS = {**{name: digits(name, "{}-eps1") for name in ("mnist", "fashion")}, **FACES}
BETAS = "1e-30 0.1 0.3 0.5 0.7 0.9"
"""Table 4's first threshold is 0: any vote."""
STEPS = {"mnist": "149", "fashion": "149", "gender": "54", "hair": "108"}
"""Those that the paper's noise allows TopAgg."""
FEATURES = {"mnist": "784", "fashion": "784", "gender": "12288", "hair": "12288"}


def _table2(name: str, printed: str) -> Sweep:
    return Sweep("datalens", f"{WANG}, Table 2", SETTINGS[name],
                 along("epsilon", BUDGETS, printed), (CNN,))


def _table4() -> dict[str, Sweep]:
    """Return k, teachers and threshold, each with the preset's values of the others."""
    small = ("100 200 300", "2000 3000 4000", "30 20 15", BETAS)
    rows = {
        "mnist": (*small, "0.5889 0.7123 0.6753", "0.5841 0.7061 0.7123",
                  "0.6361 0.6450 0.6890 0.6921 0.7123 0.6956"),
        "fashion": (*small, "0.5738 0.6478 0.6088", "0.5608 0.5952 0.6478",
                    "0.5859 0.6103 0.6060 0.6122 0.6213 0.6478"),
        "gender": ("500 700 900", "4000 6000 8000", "30 30 20", "0.5 0.6 0.7 0.8 0.85 0.9",
                   "0.6922 0.7058 0.6811", "0.6378 0.7058 0.6936",
                   "0.6440 0.6789 0.6922 0.6861 0.7058 0.6381"),
        "hair": ("500 700 900", "4000 6000 8000", "30 20 15", "0.5 0.6 0.7 0.8 0.85 0.9",
                 "0.5792 0.6061 0.5769", "0.5669 0.5835 0.6061",
                 "0.4957 0.5669 0.5612 0.6022 0.5835 0.6061")}
    result = {}
    for name, (ks, teachers, batches, betas, by_k, by_teachers, by_beta) in rows.items():
        cells = {"k": along("top_k", ks, by_k),
                 "teachers": along("teachers", teachers, by_teachers, batch=batches),
                 "threshold": along("threshold", betas, by_beta)}
        for what, some in cells.items():
            result[f"datalens:table4:{name}-{what}"] = Sweep(
                "datalens", f"{WANG}, Table 4", SETTINGS[name], some, (CNN,))
    return result


def _tables_5_and_7() -> dict[str, Sweep]:
    """Return the compressions, and the parts of the pipeline left out one by one."""
    printed = {"mnist": ((0.7123, 0.1424, 0.6935), (0.7123, 0.5170, 0.6741, 0.6361)),
               "fashion": ((0.6478, 0.1667, 0.6387), (0.6478, 0.4775, 0.6159, 0.5859)),
               "gender": ((0.7058, 0.4445, 0.6552), (0.7058, 0.6134, 0.6889, 0.6860)),
               "hair": ((0.6061, 0.2893, 0.4926), (0.6061, 0.3318, 0.5325, 0.5504))}
    result = {}
    for name, (compressions, parts) in printed.items():
        columns = str(-(-int(FEATURES[name]) // 3))  # three rows of them: as many as a fake has
        rows = {"topagg": {}, "d2p-fed": {"aggregate": "d2p"},
                "fetchsgd": {"aggregate": "fetchsgd", "sketch_columns": columns}}
        table5 = Sweep("datalens", f"{WANG}, Table 5; the paper's noise", SETTINGS[name],
                       variants(rows, {CNN: compressions}), (CNN,))
        result[f"datalens:table5:{name}"] = table5
        result[f"datalens:table5:{name}-same-steps"] = Sweep(
            "datalens", f"{WANG}, Table 5; the steps of topagg for all, noise found",
            {**SETTINGS[name], "sigma": "None", "steps": STEPS[name]}, table5.cells, (CNN,))
        without = {"datalens": {}, "w/o top-k": {"top_k": FEATURES[name]},
                   "w/o stochastic signs": {"clip": LEAST}, "w/o threshold": {"threshold": LEAST}}
        result[f"datalens:table7:{name}"] = Sweep(
            "datalens", f"{WANG}, Table 7", SETTINGS[name], variants(without, {CNN: parts}), (CNN,))
    return result


def _glyphs() -> dict[str, Sweep]:
    """Return Table 5 in minutes: 500 teachers on glyphs, by both ways to spend the budget."""
    rows = variants({
        "topagg, mean": {"decode": "mean"}, "d2p-fed": {"aggregate": "d2p"},
        "fetchsgd": {"aggregate": "fetchsgd", "sketch_columns": "48"},
        "topagg, threshold": {"decode": "threshold", "threshold": "0.3"}})
    shared = {"preset": "glyphs", "dataset": "glyphs", "teachers": "500"}
    source = f"{WANG}, Table 5, on glyphs"
    return {
        "datalens:table5:glyphs": Sweep(
            "datalens", f"{source}; the noise of 60 steps of topagg",
            {**shared, "sigma": "232.4", "steps": "None"}, rows, (CNN,)),
        "datalens:table5:glyphs-same-steps": Sweep(
            "datalens", f"{source}; 60 steps for all, noise found",
            {**shared, "sigma": "None", "steps": "60"}, rows, (CNN,))}


# Of Table 11, by k: clip, noise, batch, learning rate; the last of GM-DP.
KS = ("0.6", "0.7", "0.8", "1")
TABLE_11 = {
    "mnist 0.05": ("10 5.8 128 0.01", "5 6.6 128 0.01", "5 7.4 128 0.01", "3 8.2 128 0.01"),
    "mnist 0.2": ("12 3.6 512 0.1", "10 3.6 512 0.1", "10 3.6 512 0.1", "10 3.4 512 0.08"),
    "cifar 0.025": ("1 6 24 0.0008", "1.5 7 32 0.001", "0.8 6 24 0.001", "0.3 7 32 0.002"),
    "cifar 0.4": ("1 2.5 96 0.005", "1 2.5 96 0.005", "1 2.5 96 0.005", "1.5 3 96 0.005"),
    "cifar 8": ("0.5 2.5 2048 0.2", "0.5 2.5 2048 0.2", "0.5 3 2048 0.2", "2.5 2.5 2048 0.04")}
TABLE_8 = {
    "mnist 0.05": {"0.05": "73.87 75.81 77.15 78.40", "0.1": "85.67 86.12 85.88 84.55"},
    "mnist 0.2": {"0.2": "89.84 90.25 90.80 91.17", "0.3": "91.21 91.85 92.35 93.31",
                  "0.5": "92.83 93.50 93.82 94.38", "0.7": "94.41 94.61 94.65 95.08",
                  "1": "95.13 95.22 95.42 95.41", "inf": "97.94 98.58 98.79 99.08"},
    "cifar 0.025": {"0.025": "42.18 44.32 45.87 41.58", "0.05": "65.10 71.47 72.03 71.29",
                    "0.075": "74.70 75.22 75.62 75.13", "0.1": "75.56 76.91 77.65 77.05"},
    "cifar 0.4": {"0.2": "79.44 80.23 80.76 80.37", "0.3": "80.19 81.70 82.15 82.19",
                  "0.4": "81.91 82.86 82.82 82.80", "0.6": "82.56 82.91 83.44 83.46",
                  "0.8": "83.40 83.67 84.10 84.44"},
    "cifar 8": {"2": "84.34 84.80 85.18 85.97", "4": "84.82 85.11 85.40 86.63",
                "8": "85.13 85.37 85.62 87.05", "inf": "85.19 85.42 85.80 87.85"}}
TABLE_9 = {"0.05": "74.25 78.45 73.55", "0.1": "83.65 85.59 86.41", "0.2": "89.10 90.48 89.30"}
SGD = {"mnist": {"preset": "mnist-eps0.2-published", "dataset": "idx:mnist"},
       "cifar": {"preset": "features-eps8-published", "dataset": "npz:features.npz"}}
EPOCHS_20 = {"mnist": "2350", "cifar": "490"}


def _tuned(settings: str, kappa: str, epsilon: str) -> dict[str, str]:
    """Return the paper's settings for a share of the norm."""
    clip, sigma, batch, rate = TABLE_11[settings][KS.index(kappa)].split()
    private = epsilon != "inf"
    steps = "None" if private else EPOCHS_20[settings.partition(" ")[0]]
    return {"kappa": kappa, "epsilon": epsilon, "clip": clip, "batch": batch,
            "learning_rate": rate, "sigma": sigma if private else "0", "steps": steps,
            "relation": "zero-out"}


def _cell(name: str, epsilon: str, settings: dict[str, str], percent: str) -> Cell:
    return Cell({VARIANT: name, "epsilon": epsilon}, settings,
                {ACCURACY: round(float(percent) / 100, 4)})


def _tables_8_and_9() -> dict[str, Sweep]:
    """Return TopAgg-SGD by norm, which Figure 3 draws, and by dimension."""
    cells: dict[str, list[Cell]] = {"mnist": [], "cifar": []}
    for settings, rows in TABLE_8.items():
        for epsilon, printed in rows.items():
            for kappa, percent in zip(KS, printed.split(), strict=True):
                name = "gm-dp" if kappa == "1" else f"norm {kappa}"
                cells[settings.partition(" ")[0]].append(
                    _cell(name, epsilon, _tuned(settings, kappa, epsilon), percent))
    result = {f"datalens:table8:{name}": Sweep(
        "topagg_sgd", f"{WANG}, Table 8 and Figure 3", SGD[name], tuple(some), (ACCURACY,))
        for name, some in cells.items()}
    by_dimension = [cell for cell in cells["mnist"] if cell.point["epsilon"] in TABLE_9]
    for epsilon, printed in TABLE_9.items():  # with the settings of GM-DP, whose noise it needs
        tuned = _tuned("mnist 0.2" if epsilon == "0.2" else "mnist 0.05", "1", epsilon)
        by_dimension += [_cell(f"dimension {kappa}", epsilon,
                               {**tuned, "kappa": kappa, "keep": "dimension"}, percent)
                         for kappa, percent in zip(("0.2", "0.4", "0.6"), printed.split(),
                                                   strict=True)]
    result["datalens:table9:mnist"] = Sweep("topagg_sgd", f"{WANG}, Table 9", SGD["mnist"],
                                            tuple(by_dimension), (ACCURACY,))
    return result


TABLE_10 = {  # clip, noise, its part when all of it is added, batch, rate; steps; in percent
    "0.1": ("5 7.4 8.2734 128 0.01", "12557", {"TopK-GM-DP": 83.86, "TopAgg": 85.88,
            "TopK-SGD": 91.96, "GM-DP": 85.05, "clipped SGD": 94.26}),
    "1": ("10 3.6 4.0249 512 0.1", "12189", {"TopK-GM-DP": 94.95, "TopAgg": 95.42,
          "TopK-SGD": 98.03})}
"""Clip and noise are those of k 0.8 for all, and the steps those that GM-DP and TopAgg can afford;
noise relative to the bound, which is smaller by sqrt(0.8) where a part is left out."""


def _table10() -> dict[str, Sweep]:
    """Return compression with all noise, with as much as it needs and with none, and without it."""
    cells = []
    for epsilon, (settings, steps, printed) in TABLE_10.items():
        clip, sigma, full, batch, rate = settings.split()
        shared = {"clip": clip, "batch": batch, "learning_rate": rate, "relation": "zero-out"}
        private, free = {"epsilon": epsilon}, {"epsilon": "inf", "sigma": "0", "steps": steps}
        rows = {"TopK-GM-DP": {"kappa": "0.8", "sigma": full, "steps": steps, **private},
                "TopAgg": {"kappa": "0.8", "sigma": sigma, "steps": "None", **private},
                "TopK-SGD": {"kappa": "0.8", **free},
                "GM-DP": {"kappa": "1", "sigma": sigma, "steps": "None", **private},
                "clipped SGD": {"kappa": "1", **free}}
        cells += [Cell({VARIANT: name, "budget": epsilon}, {**shared, **row},
                       {ACCURACY: round(printed[name] / 100, 4)} if name in printed else {})
                  for name, row in rows.items()]
    return {"datalens:table10:mnist": Sweep("topagg_sgd", f"{WANG}, Table 10", SGD["mnist"],
                                            tuple(cells), (ACCURACY,))}


DATALENS = {"datalens:table2:mnist": _table2("mnist", "0.2344 0.2919 0.4201 0.6485 0.7123"),
          "datalens:table2:fashion": _table2("fashion", "0.2226 0.3863 0.4314 0.5534 0.6478"),
          **_table4(), **_tables_5_and_7(), **_glyphs(), **_tables_8_and_9(), **_table10()}


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


SWEEPS = {**_gpate(), **DATALENS, **_dpac(), **_gswgan()}
