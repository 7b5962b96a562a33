"""A file in the layout of Kaggle's creditcard.csv, with generated rows."""

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
