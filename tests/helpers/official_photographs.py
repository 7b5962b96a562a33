"""CelebA and Places365 in their official layouts, with a few generated images."""

from __future__ import annotations

import numpy as np
from PIL import Image

ATTRIBUTES = ["Black_Hair", "Blond_Hair", "Brown_Hair", "Male"]
LEVEL_2 = ("home or hotel", "water, ice, snow", "forest, field, jungle")
CATEGORIES = ("/b/bedroom", "/k/kitchen", "/b/beach", "/g/glacier", "/j/jungle", "/w/wheat_field")


def _draw(path, rng, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    corners = rng.integers(0, 256, (2, 2, 3), dtype=np.uint8)
    Image.fromarray(corners).resize(size, Image.Resampling.BILINEAR).save(path)


def celeba(root, train=12, validation=4, test=4):
    """Every fifth face has no hair colour, and so an empty slot; returns the data set's name."""
    rng, rows, parts = np.random.default_rng(0), [], []
    for i in range(train + validation + test):
        name = f"{i + 1:06d}.jpg"
        _draw(root / "Img" / "img_align_celeba" / name, rng, (178, 218))
        flags = [i % 5 == colour for colour in range(3)] + [i % 2 == 0]
        flags[0] |= i % 5 == 3
        rows.append(f"{name} " + " ".join(str(2 * flag - 1).rjust(2) for flag in flags))
        parts.append(f"{name} {0 if i < train else 1 if i < train + validation else 2}")
    for folder, name, lines in (("Anno", "list_attr_celeba.txt", [
            str(len(rows)), " ".join(ATTRIBUTES), *rows]), (
            "Eval", "list_eval_partition.txt", parts)):
        (root / folder).mkdir()
        (root / folder / name).write_text("\n".join(lines) + "\n")
    return f"celeba:{root}"


def places(root, images=4):
    """Six categories, two in each of three classes of level 2; returns the data set's name."""
    rng, train, val, table = np.random.default_rng(0), [], [], [f"category,{quoted(LEVEL_2)}"]
    for k, category in enumerate(CATEGORIES):
        for i in range(images):
            _draw(root / f"data_256{category}" / f"{i + 1:08d}.jpg", rng, (64, 64))
            train.append(f"{category}/{i + 1:08d}.jpg {k}")
        _draw(root / "val_256" / f"Places365_val_{k + 1:08d}.jpg", rng, (64, 64))
        val.append(f"Places365_val_{k + 1:08d}.jpg {k}")
        table.append(f"'{category}'," + ",".join(str(int(k // 2 == j)) for j in range(3)))
    names = [f"{category} {k}" for k, category in enumerate(CATEGORIES)]
    for name, lines in (("categories_places365.txt", names), ("places365_val.txt", val),
                        ("places365_train_standard.txt", train),
                        ("Scene hierarchy - Places365.csv", table)):
        (root / name).write_text("\n".join(lines) + "\n")
    return f"places365:{root}"


def quoted(names):
    return ",".join(f'"{name}"' for name in names)
