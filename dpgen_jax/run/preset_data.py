"""The data set of a preset: read as the preset says, and of the size for which it was chosen."""

from __future__ import annotations

import dataclasses

from dpgen_jax import data
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.presets import Preset


def options(preset: Preset, dataset: str) -> DataOptions:
    """Returns the options with which a data set is read for a preset, where the user states none.

    Args:
        preset: A preset that the user named.
        dataset: KIND or KIND:PLACE.

    Returns:
        The preset's own options for its kind of data set. For another kind it is the size alone,
        and that only where the images have none of their own.
    """
    kind = dataset.partition(":")[0]
    source = data.SOURCES.get(kind)
    if source is None or source.sized or not isinstance(preset.spec, ImageSpec):
        return DataOptions()
    own = preset.options if kind == preset.kind else {}
    return DataOptions(image_size=preset.spec.height, **own)


def require_size(name: str, preset: Preset, dataset: data.Dataset, image_size: int | None) -> None:
    """Refuses images of another size than the preset's, unless the user stated their size.

    Args:
        name: The name of a preset that the user named.
        preset: The preset.
        dataset: The data set.
        image_size: The size that was stated, by the user or for the preset.

    Raises:
        UserError: The sizes differ; it names the option.
    """
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)) or image_size:
        return
    if (spec.height, spec.width) != (wanted.height, wanted.width):
        keep = f", or --image-size {spec.height} to keep theirs" * (spec.height == spec.width)
        raise UserError(
            f"preset {name} is for images of {wanted.height} x {wanted.width} pixels, and those of "
            f"{dataset.name} have {spec.height} x {spec.width}; pass --image-size {wanted.height} "
            f"to resize them{keep}")


def noted(name: str, preset: Preset, dataset: data.Dataset) -> data.Dataset:
    """Returns the data set with a private note on how it differs from the preset's, if it does.

    Args:
        name: The name of a preset that the user named.
        preset: The preset.
        dataset: The data set.
    """
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)):
        return dataset
    ours, chosen = (f"{n:,} images of {s.height} x {s.width} x {s.channels} in {s.classes} classes"
                    for s, n in ((spec, len(dataset.y_train)), (wanted, preset.records)))
    if ours == chosen:
        return dataset
    note = f"preset {name} was chosen for {chosen}; these are {ours}"
    return dataclasses.replace(dataset, private_notes=(*dataset.private_notes, note))


def load(name: str, preset: Preset, dataset: str, stated: DataOptions | None = None
         ) -> data.Dataset:
    """Loads a data set for a preset that the user named.

    Args:
        name: The name of the preset.
        preset: The preset.
        dataset: KIND or KIND:PLACE.
        stated: The options, of which those that the user left out are as `options` returns them;
            None where the user stated none.

    Returns:
        The data set.

    Raises:
        UserError: As `data.load` and `require_size`.
    """
    stated = stated or options(preset, dataset)
    loaded = data.load(dataset, **vars(stated))
    require_size(name, preset, loaded, stated.image_size)
    return noted(name, preset, loaded)
