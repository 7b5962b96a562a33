r"""Images of 64 x 64 pixels in three colours, in folders of classes, as a user brings them.

    python -m benchmarks.scenes FOLDER --classes 10 --images 5000

It writes FOLDER/train/CLASS/*.png and, a fifth as many, FOLDER/test/CLASS/*.png. A class is a shape
in front of a background, each in a hue of its own; images of it differ in the shape's place, size
and angle, in both hues, in the light and in their grain. They follow from a public seed, so that
anybody can make the same ones.
"""

import colorsys
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from benchmarks import common
from dpgen_jax.cli import terminal
from dpgen_jax.core.errors import UserError

SIDE = 64
FINER = 2
"""An image is rendered at this many times its side, and then reduced, which smooths its edges."""
CORNERS = (3, 4, 5, 6, 40)
"""The corners of the shapes: each class has one of them; 40 make a disc."""
TEST_SHARE = 0.2
SETS: Mapping[str, tuple[int, int]] = {
    "scenes-2": (2, 500), "scenes-10": (10, 5000), "scenes-100": (100, 10000)}
"""Classes and training images of the data sets of `benchmarks.systems`."""
GOLDEN = (math.sqrt(5) - 1) / 2


def names(classes: int) -> list[str]:
    return [f"{label:03d}" for label in range(classes)]


def scene(label: int, rng: np.random.Generator) -> Image.Image:
    """Return an image of a class."""
    hue = (label * GOLDEN + rng.normal(0, 0.02)) % 1
    behind = (hue + 0.35 + 0.3 * (label // len(CORNERS) % 2) + rng.normal(0, 0.02)) % 1
    light = rng.uniform(0.6, 1)
    sky, ground = (np.array(colorsys.hsv_to_rgb(behind, 0.5, light * share)) * 255
                   for share in (0.9, 0.5))
    height = np.linspace(0, 1, SIDE * FINER)[:, None, None]
    grain = rng.normal(0, 6, (SIDE * FINER, SIDE * FINER, 1))
    pixels = sky * (1 - height) + ground * height + grain
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    corners = CORNERS[label % len(CORNERS)]
    radius, angle = rng.uniform(0.18, 0.3) * SIDE * FINER, rng.uniform(0, 2 * math.pi)
    x, y = rng.uniform(0.35, 0.65, 2) * SIDE * FINER
    colour = tuple(int(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.9, light))
    ImageDraw.Draw(image).polygon(
        [(x + radius * math.cos(angle + 2 * math.pi * i / corners),
          y + radius * math.sin(angle + 2 * math.pi * i / corners)) for i in range(corners)],
        fill=colour)
    return image.resize((SIDE, SIDE), Image.Resampling.BOX)


def write(folder: Path, classes: int, images: int, seed: int = 0) -> Path:
    """Write a data set, whose training images are dealt to the classes in equal shares."""
    if not 1 <= classes <= int(images * TEST_SHARE):
        raise UserError(f"{images} images of {classes} classes, of which one in "
                        f"{round(1 / TEST_SHARE)} is for testing as well: each class needs one "
                        "there; give more images, or another number of classes")
    if folder.exists():
        raise UserError(f"{folder} is there; name another folder, or remove it")
    made = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(made, ignore_errors=True)  # of a call that was stopped, maybe with other images
    named = names(classes)
    rng = np.random.default_rng(seed)
    for part, count in (("train", images), ("test", int(images * TEST_SHARE))):
        # Names are public and tell nothing of the class.
        for number, label in enumerate(rng.permutation(count) % classes):
            path = made / part / named[label] / f"{number:06d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            scene(int(label), rng).save(path)
    return made.rename(folder)


def main(argv: list[str] | None = None) -> None:
    script = common.Script("scenes", __doc__, record=None)
    script.add_argument("folder", type=Path)
    script.add_argument("--classes", type=int, default=10)
    script.add_argument("--images", type=int, default=5000)
    script.add_argument("--seed", type=int, default=0)
    args = script.begin(argv)
    print(write(args.folder, args.classes, args.images, args.seed))


if __name__ == "__main__":
    terminal.main(main)
