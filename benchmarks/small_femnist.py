"""A small federation of handwriting, in the layout of TensorFlow Federated's EMNIST files.

    python -m benchmarks.small_femnist FOLDER [--writers 60] [--images 24]

It writes FOLDER/fed_emnist_train.h5 and fed_emnist_test.h5, made of the digits that scikit-learn
ships, so that all that runs on Federated EMNIST can be tried without it. Upright digits have the
labels 0 to 9. Digits on one side, upside down and on the other side stand for the 26 letters: for a
capital (10 to 35) or, drawn smaller, for the small letter of the same name (36 to 61), which differ
as little as an O and an o. Each writer has a slant, a size, a weight of ink and a few preferred
characters; every fourth one writes so badly that a classifier fails, and the first one writes every
character once more. Training and test parts are made of different digits.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import common
from dpgen_jax.cli import terminal

SIDE, DIGITS, LETTERS = 28, 10, 26
LABELS = DIGITS + 2 * LETTERS
TRAIN_SHARE = 0.75
SCRAWL = 4
"""Every how many-th writer writes badly."""


def style(rng: np.random.Generator, scrawls: bool) -> dict[str, float]:
    """Return how a writer writes: angle in degrees, slant, size in pixels, ink and its noise."""
    return {"angle": rng.uniform(-8, 8), "slant": rng.uniform(-0.2, 0.2),
            "size": rng.uniform(18, 22), "ink": rng.uniform(0.8, 1.0),
            "noise": 0.45 if scrawls else 0.03}


def character(digit: np.ndarray, label: int, how: dict[str, float], rng: np.random.Generator
              ) -> np.ndarray:
    """Return an image float32 [28, 28], dark on paper 1, of a digit float [8, 8] from 0 to 16."""
    turned = np.rot90(digit, _letter(label) // DIGITS + 1 if label >= DIGITS else 0)
    size = round(how["size"] * (0.75 if label >= DIGITS + LETTERS else 1))
    image = Image.fromarray((turned * 255 / 16).astype(np.uint8)).resize(
        (size, size), Image.Resampling.BICUBIC)
    paper = Image.new("L", (SIDE, SIDE))
    paper.paste(image, ((SIDE - size) // 2, (SIDE - size) // 2))
    slant = how["slant"]
    paper = paper.rotate(how["angle"], Image.Resampling.BILINEAR).transform(
        (SIDE, SIDE), Image.Transform.AFFINE, (1, slant, -slant * SIDE / 2, 0, 1, 0),
        Image.Resampling.BILINEAR)
    ink = how["ink"] * np.asarray(paper) / 255 + rng.normal(0, how["noise"], (SIDE, SIDE))
    return (1 - np.clip(ink, 0, 1)).astype(np.float32)


def _letter(label: int) -> int:
    """Return the place in the alphabet, 0 to 25, of a label from 10 on."""
    return (label - DIGITS) % LETTERS


def rendered(digits: tuple[np.ndarray, np.ndarray], labels: np.ndarray, how: dict[str, float],
             rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return images float32 [n, 28, 28] of labels int [n], and the labels."""
    x, y = digits
    shapes = np.where(labels < DIGITS, labels, (labels - DIGITS) % LETTERS % DIGITS)
    rows = [rng.choice(np.flatnonzero(y == shape)) for shape in shapes]
    return np.stack([character(x[row], label, how, rng) for row, label in zip(
        rows, labels.tolist(), strict=True)]), labels.astype(np.int32)


def write(folder: Path, writers: int = 60, images: int = 24, seed: int = 0) -> Path:
    """Write both files.

    Args:
      images: About how many training images each has; a third as many test images.
    """
    import h5py
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, end = x.reshape(-1, 8, 8), int(TRAIN_SHARE * len(y))
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"fed_emnist_{part}.h5" for part in ("train", "test")}
    with h5py.File(paths["train"], "w") as train, h5py.File(paths["test"], "w") as test:
        for number in range(writers):
            how = style(rng, number % SCRAWL == SCRAWL - 1)
            count = int(rng.integers(images // 2, images * 3 // 2 + 1))
            preferred = rng.dirichlet(np.ones(LABELS))
            for file, part, n in ((train, slice(end), count), (test, slice(end, None), count // 3)):
                labels = rng.choice(LABELS, max(1, n), p=preferred)
                labels = labels if number else np.append(labels, np.arange(LABELS))
                pixels, labels = rendered((x[part], y[part]), labels, how, rng)
                group = file.create_group(f"examples/f{number:04}_00")
                group["pixels"], group["label"] = pixels, labels
    return paths["train"]


def main(argv: list[str] | None = None) -> None:
    script = common.Script("small_femnist", __doc__, record=None)
    script.add_argument("folder", type=Path)
    script.add_argument("--writers", type=int, default=60)
    script.add_argument("--images", type=int, default=24, help="training images of a writer")
    script.add_argument("--seed", type=int, default=0)
    args = script.begin(argv)
    print(write(args.folder, args.writers, args.images, args.seed))


if __name__ == "__main__":
    terminal.main(main)
