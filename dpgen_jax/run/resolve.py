"""From a request, and what is public of the data, to a run of which nothing is left open."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, TypeVar

import numpy as np

from dpgen_jax import data, methods, presets
from dpgen_jax.core.config import (
    Budget,
    DataOptions,
    MonitorOptions,
    Runtime,
    from_json,
    to_json,
)
from dpgen_jax.core.errors import UserError, nearest, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import Request
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data import Dataset
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.presets import Preset, choice
from dpgen_jax.presets.choice import Facts
from dpgen_jax.run import planning
from dpgen_jax.run.planning import Resolved

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A choice of what a request leaves open, by public facts alone.

    Attributes:
        method: The name of the method.
        preset: The name of the preset.
        config: Its configuration, with the settings that were stated.
        budget: Its budget, with what was stated of it.
        why_method: Why the method was chosen; empty where it was stated.
        why_preset: Likewise of the preset.
    """

    method: str
    preset: str
    config: MethodConfig
    budget: Budget
    why_method: str = ""
    why_preset: str = ""


def with_settings(config: Config, settings: Json, owner: str) -> Config:
    """Returns a configuration with the settings that were stated.

    Args:
        config: The configuration of a preset, or a part of one.
        settings: Values of its fields, and objects for its parts, as JSON.
        owner: The name of the method, for errors.

    Raises:
        UserError: There is no such field, or a value is of another type or out of range.
    """
    instance: Any = config
    kinds = typing.get_type_hints(type(config))
    names = {field.metadata.get("key", field.name): field.name
             for field in dataclasses.fields(instance)}
    changes = {}
    for key, value in settings.items():
        name = names.get(key, key)
        if name not in names.values():
            raise UserError(f"unknown field {key!r} of {owner}{nearest(key, names)}")
        part = getattr(config, name)
        changes[name] = (with_settings(part, value, f"{owner}.{name}")
                         if dataclasses.is_dataclass(part) and isinstance(value, dict)
                         else from_json(kinds[name], value, name))
    changed: Config = dataclasses.replace(instance, **changes)
    return changed


def as_setting(value: Any) -> Any:
    """Returns a value of Python as a request holds it: all fields of a dataclass, plain numbers."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_setting(getattr(value, field.name))
                for field in dataclasses.fields(value)}
    return to_json(value.item() if isinstance(value, np.generic) else value)


def provisional(request: Request) -> Chosen:
    """Returns the choice before anything is known of the data but where they are.

    Raises:
        UserError: There is no such method, preset or field.
    """
    source = request.source or choice.DEMONSTRATION[1]
    method = request.method or choice.method_for(choice.kind_of(source))[0]
    methods.get(method)  # an unknown name is refused
    shown = "federated" if request.settings.get("federated") else source
    return _of_preset(request, method, *presets.get(
        method, request.preset or choice.provisional(method, shown)))


def chosen(request: Request, facts: Facts) -> Chosen:
    """Chooses the method, the preset and the budget where the request leaves them open.

    Args:
        request: The request.
        facts: What is public of the data.

    Raises:
        UserError: As `provisional`, and where no preset of the method is for such data.
    """
    method, why = (request.method, "") if request.method else choice.method_for(facts.kind)
    first = provisional(dataclasses.replace(
        request, method=method, source=request.source or facts.kind))
    if request.preset is not None or getattr(first.config, "federated", False):
        return dataclasses.replace(first, why_method=why)
    tuned = first.config != presets.get(method, first.preset)[1].config
    serving = choice.preset_for(method, facts, request.epsilon, tuned)
    made = _of_preset(request, method, serving.name, serving.preset)
    return dataclasses.replace(made, why_method=why, why_preset=serving.why)


def _of_preset(request: Request, method: str, name: str, preset: Preset) -> Chosen:
    """The choice of a preset, with the values that the request states."""
    settings = dict(request.settings)
    if request.clients is not None and _names_clients(method):
        settings["clients"] = request.clients
    budget = Budget(*(preset_value if value is None else value for value, preset_value in (
        (request.epsilon, preset.epsilon), (request.delta, preset.delta),
        (request.class_epsilon, preset.class_epsilon))))
    return Chosen(method, name, with_settings(preset.config, settings, method), budget)


def _names_clients(method: str) -> bool:
    """Whether the number of clients is a field of the method's configuration."""
    return any(field.name == "clients" for field in dataclasses.fields(methods.get(method).Config))


def facts_of(dataset: Dataset, source: str | None) -> Facts:
    """Returns what is public of a data set.

    Args:
        dataset: The data set.
        source: KIND or KIND:PLACE, from which it was read; None where it was given in Python.
    """
    kind = dataset.options.get("kind", "")
    place = source or (kind if kind in choice.NAMED_KINDS else f"{kind}:{dataset.name}")
    return Facts(choice.public_name(place, dataset.options.get("attribute")), dataset.spec,
                 dataset.count, dataset.clients is not None)


def resolved(request: Request, dataset: Dataset, remarks: tuple[str, ...] = ()
             ) -> tuple[Resolved, Dataset]:
    """Fills in what a request leaves open.

    Args:
        request: The request.
        dataset: The data, of which only public facts decide.
        remarks: Lines on how the data were read.

    Returns:
        The run, and the data set as it takes it: with simulated clients where it has any.

    Raises:
        UserError: As `chosen`, and for clients that the method or the data set cannot have.
    """
    made = chosen(request, facts_of(dataset, request.source))
    if request.preset is not None and request.source is None:
        dataset = noted_preset_data(*presets.get(made.method, made.preset), dataset)
    clients: int | None = request.clients
    if _names_clients(made.method):
        clients = request.settings.get("clients", clients)
    dataset, config = planning.federated(dataset, made.config, clients, request.alpha)
    return Resolved(
        made.method, made.preset, config, made.budget,
        from_json(Runtime, request.runtime, "runtime"), request.out, request.resume, request.seed,
        from_json(MonitorOptions, request.monitor, "monitor"), bool(request.accept_uncovered),
        request.total_epsilon, made.why_method, made.why_preset, remarks, request.release_to,
        dataclasses.replace(request, method=made.method)), dataset


def preset_options(preset: Preset, dataset: str) -> DataOptions:
    """Returns the options with which a data set is read for a preset, where the user states none.

    Args:
        preset: A preset that the user named.
        dataset: KIND or KIND:PLACE.

    Returns:
        The preset's own options for its kind of data set. For another kind it is only the size,
        where the images have none of their own.
    """
    kind = dataset.partition(":")[0]
    source = data.SOURCES.get(kind)
    if source is None or source.sized or not isinstance(preset.spec, ImageSpec):
        return DataOptions()
    own = preset.options if kind == preset.kind else {}
    return DataOptions(image_size=preset.spec.height, **own)


def data_options(request: Request) -> DataOptions:
    """Returns how the data are read: as was stated, and else as the stated preset wants."""
    stated = request.options()
    if request.preset is None or request.source is None:
        return stated
    _, preset = presets.get(provisional(request).method, request.preset)
    return dataclasses.replace(preset_options(preset, request.source), **{
        name: getattr(stated, name) for name in request.data if hasattr(stated, name)})


def require_size(name: str, preset: Preset, dataset: Dataset, image_size: int | None) -> None:
    """Refuses images of another size than the preset's, unless the user stated their size.

    Raises:
        UserError: The sizes differ; it names the option.
    """
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)) or image_size:
        return
    if (spec.height, spec.width) != (wanted.height, wanted.width):
        keep = (f", or {option('image_size', spec.height)} to keep theirs"
                ) * (spec.height == spec.width)
        raise UserError(
            f"preset {name} is for images of {wanted.height} x {wanted.width} pixels, and those of "
            f"{dataset.name} have {spec.height} x {spec.width}; pass "
            f"{option('image_size', wanted.height)} to resize them{keep}")


def noted_preset_data(name: str, preset: Preset, dataset: Dataset) -> Dataset:
    """Returns the data set with a private note on how it differs from the preset's, if it does."""
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)):
        return dataset
    ours, theirs = (f"{n:,} images of {s.height} x {s.width} x {s.channels} in {s.classes} classes"
                    for s, n in ((spec, len(dataset.y_train)), (wanted, preset.records)))
    if ours == theirs:
        return dataset
    note = f"preset {name} was chosen for {theirs}; these are {ours}"
    return dataclasses.replace(dataset, private_notes=(*dataset.private_notes, note))


def load_preset_data(name: str, preset: Preset, dataset: str, stated: DataOptions | None = None
                     ) -> Dataset:
    """Loads a data set for a preset that the user named.

    Args:
        name: The name of the preset.
        preset: The preset.
        dataset: KIND or KIND:PLACE.
        stated: The options, of which those that the user left out are as `preset_options` returns
            them; None where the user stated none.

    Raises:
        UserError: As `data.load` and `require_size`.
    """
    stated = stated or preset_options(preset, dataset)
    loaded = data.load(dataset, **vars(stated))
    require_size(name, preset, loaded, stated.image_size)
    return noted_preset_data(name, preset, loaded)
