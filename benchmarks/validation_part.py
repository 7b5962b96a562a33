"""Set a part of training images aside, to choose settings by: no test image is in the file.

    python -m benchmarks.validation_part --dataset idx:mnist --out mnist_validation.npz
    python -m benchmarks.sweep dpmerf --preset mnist-eps1 --dataset npz:mnist_validation.npz \
        --set "windows=0,0 16" --set bandwidths=0.03,0.06,0.12 --metric gen2real.cnn.accuracy

The file has a share of the training images as its test part, a sixth if none is named; which ones,
a hash of each record decides, as `--test-fraction` does.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import common
from dpgen_jax import data
from dpgen_jax.cli import terminal
from dpgen_jax.data import parts
from dpgen_jax.data.base import Dataset


def split(dataset: Dataset, share: float) -> Dataset:
    """Return the training part, of which a share is the new test part."""
    return parts.hold_out(dataclasses.replace(dataset, x_test=None, y_test=None), share)


def main(argv: Sequence[str] | None = None) -> None:
    script = common.Script("validation_part", __doc__, record=None)
    script.add_argument("--dataset", required=True)
    script.add_argument("--share", type=float, default=1 / 6)
    script.add_argument("--classes", type=int, help="of an npz: file that does not state them")
    script.add_argument("--out", type=Path, required=True)
    args = script.begin(argv)
    made = split(data.load(args.dataset, classes=args.classes), args.share)
    np.savez(args.out, x_train=made.x_train, y_train=made.y_train, x_test=made.x_test,
             y_test=made.y_test, classes=made.spec.classes)
    print(f"{args.out}: {len(made.y_train):,} training and {len(made.y_test):,} validation records")


if __name__ == "__main__":
    terminal.main(main)
