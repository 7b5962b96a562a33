"""The photographs of the papers, CelebA and Places365, as every method's presets read them.

The papers state delta 1e-5, which is no protection for more than 100,000 records: the presets have
1e-6. Names: `gender-s` and `hair-s` are of 32 x 32 pixels, the others of 64 x 64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.shared.presets import Preset

DELTA = 1e-6
SMALLER_DELTA = ("delta 1e-6: the paper's 1e-5 is not below 1 / records, and a run refuses it",)
STRETCHED = ("all of an image is stretched to a square, as the paper's \"resize\" says; its "
             "authors' preprocessing is not public",)
NO_COPIES = ("the training and validation parts, as in the authors' code, without the copies of "
             "images by which it evens out the classes: a copy would be dealt to a second teacher")
SLOTS = ("images of none or several of the three hair colours are empty slots among the records",)
OUR_PLACES = ("the three classes are ours, the paper names none; of each 40,000 images are taken",)


@dataclasses.dataclass(frozen=True)
class Photographs:
    """A data set of photographs, as a paper trains on it.

    Attributes:
        kind: The kind of data set, as `data.load` knows it.
        spec: The schema.
        records: The number of training records, empty slots among them.
        options: Keywords of `data.load`.
        differs: What differs from the papers in how it is read, a line each.
    """

    kind: str
    spec: ImageSpec
    records: int
    options: Mapping[str, Any]
    differs: tuple[str, ...]


def _celeba(attribute: str, size: int) -> Photographs:
    """CelebA with the training and validation parts of the official partition."""
    hair = attribute == "hair"
    return Photographs(
        "celeba", ImageSpec(size, size, 3, 3 if hair else 2), 182637,
        {"attribute": attribute, "resize": "stretch", "split": "train+val"},
        (*SMALLER_DELTA, *STRETCHED, NO_COPIES, *SLOTS * hair))


def trained(photographs: Photographs) -> Photographs:
    """Returns CelebA with the training part only, as DP-GAN-DPAC's paper and code have it."""
    if photographs.kind != "celeba":
        return photographs
    hair = photographs.options["attribute"] == "hair"
    return dataclasses.replace(
        photographs, records=162770, options={**photographs.options, "split": "train"},
        differs=(*SMALLER_DELTA, *SLOTS * hair))


GENDER_S, GENDER_L = _celeba("gender", 32), _celeba("gender", 64)
HAIR_S, HAIR = _celeba("hair", 32), _celeba("hair", 64)
PLACES = Photographs(
    "places365", ImageSpec(64, 64, 3, 3), 120000,
    {"attribute": "home or hotel; water, ice, snow; forest, field, jungle", "resize": "stretch",
     "per_class": 40000}, (*SMALLER_DELTA, *OUR_PLACES))
ALL = {"gender-s": GENDER_S, "gender-l": GENDER_L, "hair-s": HAIR_S, "hair": HAIR,
       "places": PLACES}


def preset(config: Any, photographs: Photographs, epsilon: float, source: str,
           *differs: str) -> Preset:
    """Returns a preset for photographs.

    Args:
        *differs: What else differs from the source, a line each; nothing where that is this
            library.
    """
    lines = () if source.startswith("this library") else (*photographs.differs, *differs)
    return Preset(config, photographs.spec, epsilon, DELTA, photographs.records, source,
                  differs=lines, kind=photographs.kind, options=photographs.options)
