"""Rows of DataLens: Wang et al., CCS 2021 (arXiv 2103.11109)."""

from __future__ import annotations

from benchmarks.papers import trainings
from benchmarks.papers.rows import Command, Nothing, Row
from benchmarks.papers.trainings import CNN, FID, SCORE, by_code, grid, hours, training

OURS = "datalens"
ALL = ("dpgan", "pategan", "gpate", "gswgan", "datalens")
TABLE_1 = """
mnist 1 0.4036 0.4168 0.5810 0.1432 0.7123
mnist 10 0.8011 0.6667 0.8092 0.8075 0.8066
fashion 1 0.1053 0.4222 0.5567 0.1661 0.6478
fashion 10 0.6098 0.6218 0.6934 0.6579 0.7061
gender-l 1 0.5330 0.6068 0.6702 0.5901 0.7058
gender-l 10 0.5211 0.6535 0.6897 0.6136 0.7287
hair 1 0.3447 0.3789 0.4985 0.4203 0.6061
hair 10 0.3920 0.3900 0.6217 0.5225 0.6224
places 1 0.3200 0.3238 0.3483 0.3375 0.4313
places 10 0.3292 0.3796 0.3883 0.3725 0.4875
"""
WITHOUT_PRIVACY = """
mnist inf 0.9653
fashion inf 0.8032
gender-l inf 0.8149
hair inf 0.7678
places inf 0.7404
"""
TABLE_2 = """
mnist 0.2 0.1104 0.2176 0.2230 0.0972 0.2344
mnist 0.4 0.1524 0.2399 0.2478 0.1029 0.2919
mnist 0.6 0.1022 0.3484 0.4184 0.1044 0.4201
mnist 0.8 0.3732 0.3571 0.5377 0.1170 0.6485
mnist 1.0 0.4046 0.4168 0.5810 0.1432 0.7123
fashion 0.2 0.1021 0.1605 0.1874 0.1000 0.2226
fashion 0.4 0.1302 0.2977 0.3020 0.1001 0.3863
fashion 0.6 0.0998 0.3698 0.4283 0.1144 0.4314
fashion 0.8 0.1210 0.3659 0.5258 0.1242 0.5534
fashion 1.0 0.1053 0.4222 0.5567 0.1661 0.6478
"""
TABLE_3 = """
mnist 1 1.00 1.19 3.60 1.00 4.37
mnist 10 1.00 1.46 5.16 8.59 5.78
fashion 1 1.03 1.69 3.41 1.00 3.93
fashion 10 1.05 2.35 4.33 5.87 4.58
gender-l 1 1.00 1.15 1.11 1.00 1.18
gender-l 10 1.00 1.16 1.12 1.00 1.42
"""
TABLE_12 = """
mnist 1 1.00 1.19 3.60 1.00 4.37 470.20 231.54 153.38 489.75 186.06
mnist 10 1.00 1.46 5.16 8.59 5.78 304.86 253.55 150.62 58.77 173.50
fashion 1 1.03 1.69 3.41 1.00 3.93 472.03 253.19 214.78 587.31 194.98
fashion 10 1.05 2.35 4.33 5.87 4.58 433.38 229.25 171.90 135.47 167.68
gender-l 1 1.00 1.15 1.11 1.00 1.18 485.92 434.47 302.45 437.33 297.73
gender-l 10 1.00 1.16 1.12 1.00 1.42 485.41 424.60 323.95 432.58 320.84
"""
EPOCHS = {  # Table 6, seconds
    "mnist": ("338.34", "492.43", "785.34"), "fashion": ("340.84", "471.02", "775.35"),
    "gender": ("1196.60", "3683.22", "2622.40"), "hair": ("1120.59", "8092.50", "2620.63")}
MEAN = "this library: the published teachers and votes, decoded by their mean, in fewer steps"


def _of_this_library() -> list[Row]:
    """Return the presets of this library for the data of Table 1."""
    return [Row(f"datalens:table1:mnist-eps{epsilon}-mean", Command(
        "images", ("--preset", f"mnist-eps{epsilon}-mean", "--dataset", "idx:mnist", "--out",
                   f"runs/mnist-eps{epsilon}-mean"), f"images-mnist-mnist-eps{epsilon}-mean",
        "mnist"), {CNN: value}, 0.5, MEAN) for epsilon, value in ((1, "0.7123"), (10, "0.8066"))]


def _epochs() -> list[Row]:
    """Return Table 6 and the running time of section 5.3."""
    return [
        *(trainings.epoch(f"datalens:table6:{data}-{case}", f"datalens-{data}-{case}", value,
                       "the paper: one Tesla T4")
          for data, values in EPOCHS.items()
          for case, value in zip(("topk", "d2p", "fetchsgd"), values, strict=True)),
        *(trainings.epoch(f"datalens:runtime:teachers-{teachers}", f"datalens-mnist-{teachers}",
                          value, "the paper: one RTX 2080 Ti")
          for teachers, value in ((2000, "149.92"), (4000, "322.17")))]


def _figure_3() -> list[Row]:
    """Return Figure 3: the curves of Table 8, and DPDL."""
    curves = [Row(f"datalens:figure3:{data}", trainings.sweep_command(f"datalens:table8:{data}"),
                  {}, trainings.sweep_hours(f"datalens:table8:{data}"), "it draws Table 8")
              for data in ("mnist", "cifar")]
    points = (("0.5", "0.90"), ("2", "0.95"), ("8", "0.97"))
    return [*curves, *(trainings.baseline(
        f"datalens:figure3:mnist-dpdl-eps{epsilon}", f"mnist-eps{epsilon}-dpdl", accuracy,
        "DPDL; the figure is Abadi et al.'s (CCS 2016), as DataLens takes it over")
        for epsilon, accuracy in points)]


def _pictures() -> list[Row]:
    """Return Figure 4, which shows samples of Table 1's runs."""
    return [Row(f"datalens:figure4:{data}-eps{epsilon}", training(OURS, data, epsilon), {},
                hours(OURS, data, epsilon),
                "a picture of samples, written beside the results of Table 1")
            for data in ("mnist", "fashion", "gender-l") for epsilon in (1, 10)]


ROWS = [
    Row("datalens:figure1:overview", Nothing("a drawing of the system; dpgen_jax/methods/"
                                             "datalens.py is what it shows")),
    *grid("datalens:table1", OURS, ALL, (CNN,), TABLE_1),
    *by_code("datalens:table1", OURS, CNN, TABLE_1),
    *grid("datalens:table1", OURS, ("dcgan",), (CNN,), WITHOUT_PRIVACY),
    *_of_this_library(),
    *grid("datalens:table2", OURS, ALL[:-1], (CNN,), TABLE_2),
    *trainings.sweep_rows("datalens:table2"),
    *grid("datalens:table3", OURS, ALL, (SCORE,), TABLE_3),
    *trainings.bounds("datalens:figure2"),
    *trainings.sweep_rows("datalens:table4"), *trainings.sweep_rows("datalens:table5"), *_epochs(),
    *trainings.sweep_rows("datalens:table7"),
    *trainings.sweep_rows("datalens:table8"), *_figure_3(),
    *trainings.sweep_rows("datalens:table9"), *trainings.sweep_rows("datalens:table10"),
    Row("datalens:table10a:setup", Nothing("it says what datalens:table10 compares")),
    Row("datalens:table11:settings", Nothing("settings found by a grid search, with which the rows "
                                             "of Tables 8 to 10 run; the search itself, by test "
                                             "accuracy, is not repeated")),
    *_pictures(),
    *grid("datalens:table12", OURS, ALL, (SCORE, FID), TABLE_12),
]
