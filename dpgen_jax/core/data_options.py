"""DataOptions: how a data set is read, as flags of the commands that read one."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How a data set is read: keywords of `data.load`."""

    classes: int | None = None
    """number of classes, where the data set does not declare it"""
    image_size: int | None = None
    """resize images to this many pixels a side; that of a named preset if left out, else 64 for
    celeba and places365"""
    channels: Literal[1, 3] | None = None
    """folder: 1 for gray, 3 for RGB, to which every image is converted"""
    class_names: str | None = None
    """names of the classes: a,b,c or a text file with one a line. folder, places365: the class
    folders, of which there may be no others; in folder, after a last *, the others are left out"""
    schema: str | None = None
    """the schema of a csv: a YAML file, or the name of a packaged one; `train` buys what it does
    not declare"""
    label: str | None = None
    """the column of the classes of a csv whose schema does not say; without one, rows have none"""
    test_csv: str | None = None
    """the held-out part of a csv"""
    test_fraction: float | None = None
    """for data without a held-out part: the share that is held out, by a hash of each record; 0.2
    where `train` is told none, 0: none"""
    attribute: str | None = None
    """celeba: gender or hair; places365: the classes, with ; between them"""
    skip_bad: bool = False
    """folder, celeba, places365: leave out files that cannot be used as images, and name them on
    the terminal; each leaves an empty slot, so that nothing public depends on them"""
    background: Literal["white", "black"] | None = None
    """folder, celeba, places365: the colour that transparent pixels show; white if left out"""
    download: bool = False
    """tfds: download and prepare what is not prepared yet, without a question"""
    resize: Literal["crop", "stretch"] | None = None
    """folder, celeba, places365: how an image becomes a square, by cropping its centre (if left
    out) or by stretching all of it"""
    split: Literal["train", "train+val"] | None = None
    """celeba: the official parts that are trained on; train if left out"""
    per_class: int | None = None
    """places365: training images that are taken of each class; all if left out"""
    unit: str | None = None
    """csv, parquet: the column that names the person, household or other unit of each row: all its
    rows are protected together; it is no feature"""
    rows_per_unit: int | None = None
    """with --unit: the most rows of a unit that are kept, by a keyed hash; choose it without
    looking at the records"""
    max_gb: float | None = None
    """memory that reading the data may take, in GB; what the machine has, if left out"""
