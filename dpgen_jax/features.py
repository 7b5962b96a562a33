"""Turns images into features by a network whose weights you have.

    python -m dpgen_jax.features --dataset cifar10:DIR --weights resnet18.safetensors --out F.npz
    python -m dpgen_jax.train topagg_sgd --dataset npz:F.npz --preset features-eps8-published

The features of an image depend only on that image and are clipped to a public bound, so that a
guarantee on them is one on the images. The weights must be public: none of these records may have
been used to train them. How to get them: `evaluation.pretrained`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core import files
from dpgen_jax.core.config import DataOptions
from dpgen_jax.core.errors import UserError

if TYPE_CHECKING:
    from dpgen_jax.evaluation.pretrained import Network

DESCRIPTION = ("Turns images into features with a network whose public weights you have. The "
               "features are a data set for every method for tables.")


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags."""

    dataset: str
    """images: a data set as for train"""
    weights: Path
    """safetensors file of the network's public weights; they must not have been trained on these
    records"""
    out: Path
    """npz file to write, for --dataset npz:FILE; must not exist. As private as the images"""
    network: Literal["resnet18", "inception"] = "resnet18"
    """resnet18: torchvision's, 512 features; inception: pytorch-fid's Inception-v3, 2,048"""
    bound: float = 4.0
    """features are clipped to [0, bound]; choose it from public images, never from these"""
    data: Annotated[DataOptions, parser.FLAT] = DataOptions()


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    run(parser.parse(Flags, argv, "python -m dpgen_jax.features", DESCRIPTION))


def run(flags: Flags, log: Callable[[str], None] = print) -> None:
    """Writes the features to `out`, readable by its owner only, or nothing on an error.

    Args:
        flags: The parsed flags.
        log: Prints a line.

    Raises:
        UserError: One line. An `out` that exists is refused.
    """
    from dpgen_jax.release import contents

    contents.refuse_shared(flags.out, "features are those of real records")
    if flags.out.exists() or not flags.out.parent.is_dir() or flags.out.suffix != ".npz":
        raise UserError(f"--out {flags.out} must be a new .npz file in an existing folder")
    if not 0 < flags.bound < float("inf"):
        raise UserError(f"--bound is {flags.bound}; it must be a number above 0")
    network, params = _network(flags)  # read first: a wrong file must not cost minutes
    from dpgen_jax import data
    from dpgen_jax.core.types import ImageSpec
    from dpgen_jax.data.images import npz
    from dpgen_jax.run.progress import Notices

    dataset = data.load(flags.dataset, **vars(flags.data))
    if not isinstance(dataset.spec, ImageSpec):
        raise UserError(f"{dataset.name} is a table; features are computed from images")
    notices = Notices()
    for line in dataset.private_notes:
        notices.private(line)

    def encoded(x: np.ndarray) -> np.ndarray:
        files.require_memory(f"{len(x):,} records' features", 4 * len(x) * network.width)
        values = network.features(params, x, log)
        notices.private(f"{np.mean(values > flags.bound):.2%} of the features of {len(x):,} images "
                        f"are above the bound {flags.bound:g} and clipped")
        return npz.encode_features(values, flags.bound)

    train = encoded(dataset.x_train)
    test = None if dataset.x_test is None else encoded(dataset.x_test)
    arrays = npz.feature_arrays(dataset, train, test, flags.bound, (_note(flags),))
    descriptor = os.open(flags.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError:  # a full disk
        flags.out.unlink()
        raise
    for part in dataset.uncovered:
        log(f"note: not covered by epsilon: {part.what} (declare it: {part.declare})")
    log(f"features: {flags.out}")


def _network(flags: Flags) -> tuple[Network, object]:
    """Returns the network, and its parameters."""
    terminal.use_all_cores()
    from dpgen_jax.evaluation.pretrained import INCEPTION, RESNET18

    network = {"resnet18": RESNET18, "inception": INCEPTION}[flags.network]
    return network, network.load(flags.weights)


def _note(flags: Flags) -> str:
    """Returns the public line on how the features were made."""
    digest = hashlib.sha256(files.read_bytes(flags.weights)).hexdigest()
    return (f"records are features of {flags.network}, clipped to [0, {flags.bound:g}]; it is "
            f"assumed that none of these records trained its weights (SHA-256 {digest})")


if __name__ == "__main__":
    terminal.main(command)
