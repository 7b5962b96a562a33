"""A yardstick for every system on images: ten noisy class means and nothing else.

    python -m benchmarks.nearest_mean

One release of the sum of each class's images, each shortened to an L2 norm, and a classifier of
real images by the nearest of the ten means: no generator, no teacher, no training. What a system
makes of the same budget should teach a classifier more than that. The record,
results/nearest_mean.json, has accuracies on the real test images over several draws of the noise.
The norm is chosen on a sixth of the training images, which the sums then leave out.

Guarantee of the release: unit record, label included; relation replace-one. Pixels are never
negative, so neither is the product of two images, and two of norm C or less are sqrt(2) C or less
apart, of one class or of two. The classes are taken to be of equal size, which costs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks import common, systems, validation_part
from dpgen_jax import data
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.cli import terminal
from dpgen_jax.data.base import Dataset
from dpgen_jax.evaluation.scores import summary

NORMS = (5.0, 7.0, 9.0, 11.0, 13.0)
DELTA = 1e-5


def flat(x: np.ndarray) -> np.ndarray:
    """Return images in 0..255 as vectors in 0..1."""
    return x.reshape(len(x), -1).astype(np.float32) / 255


def sums(x: np.ndarray, y: np.ndarray, classes: int, norm: float) -> np.ndarray:
    """Return the sum of each class's images, each shortened to a norm.

    Args:
      x: Images in 0..255, [n, ...].
      y: Labels, [n].
      classes: C.
      norm: The largest L2 norm of an image in 0..1.

    Returns:
      [C, pixels]. Replacing a record moves it by at most sqrt(2) * norm.
    """
    vectors = flat(x)
    vectors *= np.minimum(1, norm / np.maximum(np.linalg.norm(vectors, axis=1), 1e-9))[:, None]
    return np.stack([vectors[y == label].sum(0) for label in range(classes)])


def accuracy(made: Dataset, norm: float, sigma: float, seed: int) -> float:
    """Return the share of the test images whose nearest mean is that of their class.

    Args:
      made: The data set, with a test part.
      norm: As for `sums`.
      sigma: Standard deviation of the noise, in units of the norm.
      seed: Of the noise.
    """
    exact = sums(made.x_train, made.y_train, made.spec.classes, norm)
    noisy = exact + norm * sigma * np.random.default_rng(seed).normal(size=exact.shape)
    means, test = noisy * len(exact) / len(made.y_train), flat(made.x_test)
    nearest = np.argmin((means**2).sum(1) - 2 * test @ means.T, axis=1)
    return float(np.mean(nearest == made.y_test))


def sigma_of(epsilon: float) -> float:
    """Return the noise of one release whose squared sensitivity is 2, in units of the norm."""
    return composition.sigma_for(lambda sigma: GaussianEvent(sigma, 2), 1, epsilon, DELTA)


def case(name: str, epsilon: float, draws: int) -> dict[str, object]:
    """Return the row of a data set at an epsilon."""
    loaded, sigma = data.load(*systems.DATA[name]), sigma_of(epsilon)
    parts = validation_part.split(loaded, 1 / 6)
    tried = {norm: summary([accuracy(parts, norm, sigma, seed) for seed in range(draws)])
             for norm in NORMS}
    norm = max(tried, key=lambda norm: tried[norm]["mean"])
    return {"dataset": name, "epsilon": epsilon, "delta": DELTA, "relation": "replace-one",
            "sigma": sigma, "norm": norm,
            "validation": [{"norm": norm, "accuracy": score} for norm, score in tried.items()],
            "accuracy": summary([accuracy(loaded, norm, sigma, seed) for seed in range(draws)])}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--draws", type=int, default=5, help="of the noise")
    args = parser.parse_args(argv)
    where = common.machine()
    rows = [case(name, epsilon, args.draws) for name in systems.DATA for epsilon in args.epsilons]
    words = ["--epsilons", *(f"{e:g}" for e in args.epsilons), "--draws", str(args.draws)]
    common.write(common.record("nearest_mean", words, range(args.draws), {"rows": rows}, where))
    for row in rows:
        print(row["dataset"], row["epsilon"], row["norm"], row["accuracy"])


if __name__ == "__main__":
    terminal.main(lambda argv: main(argv))
