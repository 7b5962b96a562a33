"""Files in the layout of Kaggle's creditcard.csv and of a sample of it, with generated rows."""

import gzip

import numpy as np

NAMES = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]


def write(folder, rows=50):
    """Write FOLDER/creditcard.csv, of which every tenth row is a fraud."""
    rng = np.random.default_rng(0)
    lines = [",".join(f'"{name}"' for name in NAMES)]
    for i in range(rows):
        numbers = [f"{x:.12f}" for x in rng.normal(size=28)]
        lines.append(",".join([str(i), *numbers, f"{rng.gamma(2.0):.2f}", f'"{int(i % 10 == 0)}"']))
    (folder / "creditcard.csv").write_text("\n".join(lines) + "\n")


def write_sample(folder, rows=50):
    """Write FOLDER/train.csv.gz and test.csv.gz, without Time and quotes; a tenth are frauds."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for part in ("train", "test"):
        lines = [",".join(NAMES[1:])]
        for i in range(rows):
            numbers = [f"{x:.4g}" for x in rng.normal(size=28)]
            lines.append(",".join([*numbers, f"{rng.gamma(2.0):.2f}", str(int(i % 10 == 0))]))
        with gzip.open(folder / f"{part}.csv.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
