r"""Measure the memory in which many images are sealed and trained on: peak bytes an image.

    python -m benchmarks.large_images --images 50000 1000000

Images of 64 x 64 pixels in three colours are written to an .npz file, and `train dpgan` takes a few
steps on them in a process of its own: a fifth of them is held out, a batch has `BATCH`, and all
else stays at its default. The images are noise by a public seed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.large_table import slope, trained

MODULE = "benchmarks.large_images"
SHAPE = (64, 64, 3)
CLASSES = 10
BATCH, STEPS = 16, 2
BLOCK = 5_000
"""Images that are written at a time."""


def write_images(path: Path, images: int, seed: int) -> None:
    """Write images to a file whose arrays can be mapped."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(images) % CLASSES).astype(np.int32)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as whole:
        with whole.open("x_train.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_2_0(file, {
                "descr": "|u1", "fortran_order": False, "shape": (images, *SHAPE)})
            for first in range(0, images, BLOCK):
                file.write(rng.bytes(min(BLOCK, images - first) * int(np.prod(SHAPE))))
        with whole.open("y_train.npy", "w") as file:
            np.lib.format.write_array(file, labels)


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Train as the command line does, and return the peak of this process."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "images.npz"
        write_images(path, case["images"], case["seed"])
        return case | {"file_bytes": path.stat().st_size} | trained([
            "dpgan", "--dataset", f"npz:{path}", "--classes", str(CLASSES), "--batch", str(BATCH),
            "--steps", str(STEPS), "--sigma", "None", "--epsilon", "10", "--delta", "1e-7",
            "--out", str(Path(place) / "run")])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line says, print it and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[50_000, 1_000_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args(argv)
    where, cases = common.machine(), []
    for images in args.images:
        cases.append(common.apart(MODULE, {"images": images, "seed": args.seed}, {}))
        print(json.dumps(cases[-1]), flush=True)
        if "error" in cases[-1]:
            return 1
    results = {"cases": cases, **({"slope": slope(cases, "images")} if len(cases) > 1 else {})}
    record = common.record("large_images", ["--images", *map(str, args.images)], [args.seed],
                           results, where)
    print(common.write(record, args.out))
    return 0


if __name__ == "__main__":
    common.entry(main, measured)
