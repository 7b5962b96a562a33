"""Settings as dataclasses: budget, runtime, evaluation, data; their JSON form and ranges."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.schema import later as later
from dpgen_jax.core.types import UserError

Moments = Literal["float32", "bfloat16"]
Compute = Literal["float32", "bfloat16"]
State = Literal["device", "host", "disk"]


@dataclasses.dataclass(frozen=True)
class Budget:
    """The claim, which is fixed before the first release."""

    epsilon: float = 10.0
    delta: float = 1e-5
    class_epsilon: float = 0.0
    """part of epsilon, for noisy class counts from which labels are sampled; 0: equal shares"""

    def __post_init__(self) -> None:
        if not 0 <= self.class_epsilon < math.inf:
            raise UserError(f"class_epsilon is {self.class_epsilon}; it must be 0 or above")


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Speed and memory: nothing here changes the privacy cost of a run.

    Nor does it change results, except through the precision of moments and of products.
    """

    devices: int = 0
    """devices to use; 0: all, on a CPU as many as make the method fastest"""
    chunk: int = 0
    """teachers in one batched product; 0: chosen for the device"""
    parallel: Literal["shard_map", "pmap"] = "shard_map"
    """how the per-device function is mapped over devices"""
    moments: Moments = "float32"
    """precision in which the teachers' Adam moments are stored"""
    compute: Compute = "float32"
    """precision of the matrix products of teachers and critics on accelerators; a CPU computes in
    float32"""
    state: State = "device"
    """where the state of teachers and critics lies: on the devices; or in the host's memory, or on
    the disk of the run folder, from where the devices get a part at a time"""
    steps_per_call: int = 0
    """steps in one compiled call; 0: as many as take about a second"""
    checkpoint_minutes: float = 5.0
    """minutes between checkpoints; the default of 5 is raised where checkpoints would stop the
    training for over 5 % of the time, any other number is not; the last checkpoint is always
    written"""
    keep_checkpoints: int = 2
    """checkpoints to keep"""
    max_minutes: float = 0.0
    """minutes of training after which the run stops and writes a release; 0: no limit"""
    on_term: Literal["release", "checkpoint"] = "release"
    """what SIGTERM leaves: a release, or only a checkpoint, which is faster"""

    def __post_init__(self) -> None:
        for name, least in (("devices", 0), ("chunk", 0), ("steps_per_call", 0),
                            ("checkpoint_minutes", 0), ("keep_checkpoints", 1),
                            ("max_minutes", 0)):
            if not getattr(self, name) >= least:
                raise UserError(f"{name} is {getattr(self, name)}; it must be {least} or above")


@dataclasses.dataclass(frozen=True)
class MonitorOptions:
    """The monitor of a training: what it shows and when.

    It uses released values only. So it costs no privacy, does not affect training, and models may
    be chosen by it.
    """

    tensorboard: bool = False
    """also write metrics and sample grids to RUN/tensorboard (needs the extra `tensorboard`)"""
    evaluate_every: int | None = None
    """steps between evaluations of the samples, into metrics.jsonl; 0: none; by default cheap
    measures a few times in a run"""
    public_dataset: str | None = None
    """a PUBLIC data set of the same shape and classes on which these evaluations also test; or
    release:RUN, samples of an earlier run, whose cost is then charged to this one too"""
    keep_best: bool = False
    """release the generator that was best on --public-dataset instead of the last one"""
    progress: bool = True
    """show the progress of the training on stderr"""
    verbose: bool = False
    """also print how the data were read, the steps, the noise, the devices and the memory"""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None and self.evaluate_every < 0:
            raise UserError(f"evaluate_every is {self.evaluate_every}; it must be 0 or above")
        if self.public_dataset and not self.evaluate_every:
            raise UserError(f"{option('public_dataset')} needs {option('evaluate_every', 'N')}, "
                            "the steps between tests")
        if self.keep_best and not self.public_dataset:
            raise UserError(f"{option('keep_best')} needs {option('public_dataset')}, the images "
                            "that choose it: a public data set, or release:RUN")


Metric = Literal["gen2real", "real2gen", "real2real", "fidelity", "membership"]
METRICS: tuple[Metric, ...] = ("gen2real", "real2gen", "real2real", "fidelity", "membership")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The measures of an evaluation, and their thoroughness.

    No choice in it depends on results.
    """

    metrics: tuple[Metric, ...] = METRICS
    """gen2real: trained on synthetic records, tested on real ones; real2gen: the reverse;
    real2real: the upper bound; fidelity: similarity; membership: attacks on the release"""
    classifiers: tuple[str, ...] = ()
    """classifiers that measure usefulness; by default all of the setting"""
    targets: tuple[str, ...] = ()
    """tables: columns to predict from the others, in addition to the label, categories or numbers;
    by default those of the schema"""
    by: tuple[str, ...] = dataclasses.field(default=(), metadata={"repeats": True})
    """tables: a column, or several separated by commas, for whose values the measures are repeated;
    may be given several times"""
    fast: bool = False
    """a shorter protocol for laptops; all output says so"""
    samples: int | None = None
    """synthetic records; 60,000 images or 10,000 rows of a table, with --fast 10,000 or 2,500"""
    seeds: int | None = None
    """draws of the generator and seeds of the classifiers; 3, with --fast 2"""
    inception_weights: Path | None = None
    """a safetensors file of the Inception-v3 of FID, for `fidelity.fid` (see
    dpgen_jax/evaluation/pretrained.py)"""

    def __post_init__(self) -> None:
        for name in ("samples", "seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name} is {value}; give 1 or more")


def to_json(value: object) -> Any:
    """Converts dataclasses to plain JSON values; infinity becomes the string "inf" (strict JSON).

    A field that equality ignores is written only if it is not empty, and one that was added `later`
    only if it is not the default. So digests of values without it are the same as before the field
    existed.
    """
    if dataclasses.is_dataclass(value):
        return {f.metadata.get("key", f.name): to_json(getattr(value, f.name))
                for f in dataclasses.fields(value) if _is_written(f, getattr(value, f.name))}
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _is_written(field: dataclasses.Field[Any], value: object) -> bool:
    """Whether JSON contains the field."""
    return bool(value != field.default if "later" in field.metadata else field.compare or value)


MAX_WHOLE = 2**63
"""Whole numbers must be smaller in magnitude, so that they fit in arrays."""


def from_json(kind: Any, value: Any, name: str = "") -> Any:
    """The inverse of `to_json`: plain JSON as the type `kind`, with every part checked.

    kind: a dataclass, a TypedDict (whose other keys may have any value), or a type made of bool,
    int, float, str, None, Any, Literal, unions, tuples, lists and dicts of str. name: the name of
    the value in errors.

    Raises:
        UserError: Naming the field and what was expected.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(parts, value, name)
    if kind is Any or (origin is typing.Literal and value in parts and type(value) in (str, int)):
        return value
    if isinstance(value, dict) and typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        needed = [key for key, hint in hints.items() if typing.get_origin(hint) is typing.Required]
        return value | _fields(kind, value, needed, name)
    if isinstance(value, dict) and isinstance(kind, type) and dataclasses.is_dataclass(kind):
        names = {f.metadata.get("key", f.name): f.name for f in dataclasses.fields(kind)}
        value = {names.get(key, key): part for key, part in value.items()}
        fields = _fields(kind, value, _needed(kind, value), name)
        try:
            return kind(**fields)
        except ArithmeticError as error:  # a check of the class itself
            raise UserError(f"the fields of {name or kind.__name__} are out of range: {error}"
                            ) from error
    if isinstance(value, dict) and origin is dict:
        return {key: from_json(parts[1], part, f"{name}.{key}"[-200:])
                for key, part in value.items()}
    if isinstance(value, list) and origin in (list, tuple):
        kinds = [parts[0]] * len(value) if origin is list or ... in parts else parts
        if len(kinds) != len(value):
            raise UserError(f"{name} has {len(value)} values, expected {len(kinds)}")
        return origin(from_json(k, part, f"{name}[{i}]")
                      for i, (k, part) in enumerate(zip(kinds, value, strict=True)))
    if kind is float and isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if not _is_plain(kind, value):
        raise UserError(f"{name or 'the whole'} is {repr(value)[:60]}, expected {_called(kind)}")
    return value


def _one_of(kinds: tuple[Any, ...], value: object, name: str) -> Any:
    """The value as the first kind that fits; the error is that of the last kind other than null."""
    kinds = tuple(sorted(kinds, key=lambda kind: kind is not types.NoneType))
    for kind in kinds[:-1]:
        try:
            return from_json(kind, value, name)
        except UserError:
            continue
    return from_json(kinds[-1], value, name)


def _needed(cls: type, value: Json) -> set[str]:
    """The names of the fields without a default.

    Raises:
        UserError: For an unknown field.
    """
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise UserError(f"unknown field {unknown[0][:60]!r} in the configuration of "
                        f"{cls.__module__}")
    return {name for name, field in fields.items()
            if field.default is field.default_factory is dataclasses.MISSING}


def _fields(cls: type, value: Json, needed: typing.Collection[str], name: str) -> Json:
    before = f"{name}." if name else ""
    for missing in sorted(set(needed) - set(value)):
        raise UserError(f"{before}{missing} is missing")
    return {key: from_json(kind, value[key], f"{before}{key}")
            for key, kind in typing.get_type_hints(cls).items()
            if key in value}


def _is_plain(kind: object, value: object) -> bool:
    """Whether the value is a bool, text, null or number of the kind, and can be stored."""
    if kind in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_WHOLE
        return whole or (kind is float and isinstance(value, float) and math.isfinite(value))
    if kind is str:  # half a surrogate pair is not a text
        return isinstance(value, str) and not re.search(r"[\ud800-\udfff]", value)
    return kind in (bool, types.NoneType) and isinstance(value, kind)


def _called(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false",
             types.NoneType: "null"}
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return names.get(kind) or ("a list" if origin in (list, tuple) else "an object of fields")


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(json.dumps(to_json(value), sort_keys=True).encode()).hexdigest()


SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def require_positive(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, is a float32 above 0."""
    _require({name: SMALLEST <= value <= LARGEST for name, value in fields.items()}, fields,
             "must be above 0 and finite, as a float32")


def require_not_negative(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, is a float32 of 0 or above."""
    _require({name: 0 <= value <= LARGEST for name, value in fields.items()}, fields,
             "must be 0 or above and finite, as a float32")


def require_share(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, lies between 0 and 1."""
    _require({name: 0 <= value <= 1 for name, value in fields.items()}, fields,
             "must lie between 0 and 1")


def require_decay(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, lies in 0 <= field < 1."""
    _require({name: 0 <= value < 1 for name, value in fields.items()}, fields,
             "must lie in 0 <= {} < 1")


def _require(valid: dict[str, bool], fields: dict[str, float], rule: str) -> None:
    """Raises UserError for the first field that is not valid."""
    for name, value in fields.items():
        if not valid[name]:
            raise UserError(f"{name} is {value}; it {rule.format(name)}")


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How a data set is read: keywords of `data.load`."""

    classes: int | None = None
    """number of classes, where the data set does not declare it"""
    image_size: int | None = None
    """resize images to this many pixels a side; that of a named preset if left out, else 64 for
    celeba and places365"""
    channels: Literal[1, 3] | None = None
    """folder: 1 for grey, 3 for RGB, to which every image is converted"""
    class_names: str | None = None
    """names of the classes: a,b,c or a text file with one per line. folder, places365: the class
    folders, and no others may exist; in folder, a last name * leaves the others out"""
    schema: str | None = None
    """the schema of a csv: a YAML file, or the name of a packaged one; `train` estimates what it
    does not declare"""
    label: str | None = None
    """the column of the classes of a csv whose schema does not name it; without one, rows have no
    classes"""
    test_csv: str | None = None
    """the held-out part of a csv"""
    test_fraction: float | None = None
    """for data without a held-out part: the share to hold out, by a hash of each record; 0.2 in
    `train` by default, 0: none"""
    attribute: str | None = None
    """celeba: gender or hair; places365: the classes, separated by ;"""
    skip_bad: bool = False
    """folder, celeba, places365: leave out files that cannot be used as images, and list them on
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
    """places365: training images of each class to use; by default all"""
    unit: str | None = None
    """csv, parquet: the column that names the person, household or other unit of each row: all its
    rows are protected together; the column is not a feature"""
    rows_per_unit: int | None = None
    """with --unit: the most rows of a unit that are used, chosen by a keyed hash; set it without
    looking at the records"""
    max_gb: float | None = None
    """memory for reading the data, in GB; by default all of the machine"""
