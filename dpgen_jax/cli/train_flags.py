"""The flags of a training, and the request that they state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from dpgen_jax import methods, presets
from dpgen_jax.cli import parser, runs
from dpgen_jax.cli.parser import FLAT
from dpgen_jax.core.config import DataOptions, MonitorOptions, Runtime, to_json
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.files import Json
from dpgen_jax.core.hosts import Hosts
from dpgen_jax.core.request import Request
from dpgen_jax.methods import about
from dpgen_jax.presets import choice
from dpgen_jax.run import reading, resolve
from dpgen_jax.run.purchase import SHARE

NOTHING = Request()
DESCRIPTION = ("Trains a generator under differential privacy. Every field of the method's "
               "configuration is a flag; the defaults are those of the preset.")
Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Config]):
    """The flags of `python -m dpgen_jax.train`, for a method whose configuration is a `Config`."""

    preset: str
    """the preset that gives the defaults; chosen for the data if left out"""
    epsilon: float
    """the promise; inf: no privacy"""
    delta: float
    """must lie below 1 / records"""
    class_epsilon: float
    """part of epsilon, for noisy class counts from which labels are sampled; 0: equal shares"""
    config: Annotated[Config, FLAT]
    dataset: str = "glyphs"
    """the training data: a file or folder, glyphs, or SOURCE:PLACE as the documentation lists data
    sets"""
    out: Path | None = None
    """run folder; runs/METHOD-DATASET-TIME if left out"""
    release_to: str | None = None
    """an address (gs://BUCKET/FOLDER, s3://BUCKET/FOLDER) that the finished release is copied to"""
    made_by: str | None = None
    """the person or organisation that makes the release, for its statement"""
    total_epsilon: float | None = None
    """refuse the run if all runs on these records, as far as the journal of this machine knows
    them, would exceed this epsilon together"""
    resume: bool = False
    """resume a run: `--resume RUN` needs nothing else; without RUN, the run in --out"""
    dry_run: bool = False
    """show what would be trained and with how much noise, without writing or spending anything"""
    seed: int | None = None
    """repeats a run bit for bit, WITHOUT a privacy guarantee"""
    schema_share: float = SHARE
    """part of epsilon and delta that estimates kinds, bounds and categories of undeclared
    columns"""
    accept_uncovered: bool = False
    """release public fields that were read from private records, and say so in the statement"""
    clients: int | None = None
    """number of simulated clients to deal the records to: with --federated, or for a method of
    clients"""
    alpha: float | None = None
    """with --clients: how different they are, Dirichlet(alpha) by class; evenly if left out"""
    data: Annotated[DataOptions, FLAT] = DataOptions()
    monitor: Annotated[MonitorOptions, FLAT] = MonitorOptions()
    runtime: Annotated[Runtime, FLAT] = Runtime()
    meeting: Annotated[Hosts, FLAT] = Hosts()


@dataclasses.dataclass(frozen=True)
class TrainClients(Train[Config], Generic[Config]):
    """The flags for a method whose configuration has the number of clients itself."""

    clients: Annotated[int | None, tyro.conf.Suppress] = None


@dataclasses.dataclass(frozen=True)
class Call:
    """A command line of `train`, parsed.

    Attributes:
        request: What was stated of the training.
        dry_run: Whether it is only rehearsed.
        meeting: Where the processes of the run meet.
        stated: The options that were stated, by field, which the processes of a run compare.
    """

    request: Request
    dry_run: bool
    meeting: Hosts
    stated: dict[str, str]


def call(argv: Sequence[str]) -> Call:
    """Parses the arguments of `train`.

    Args:
        argv: The arguments. With `--resume RUN` the request is that of the run, on which lies what
            is stated now.

    Raises:
        UserError: Arguments are invalid, or a folder does not record how the run was begun.
    """
    root, argv = _resumed(argv)
    method, words = parser.split_method(argv, "")
    if method and method not in methods.NAMES and Path(method).exists():
        raise UserError(f"{method!r} is a path and not a method: write --dataset {method}")
    before = NOTHING if root is None else runs.request_of(root)
    method = method or before.method or ""
    source = parser.peek(words, "--dataset") or before.source
    if source is None and root is not None:
        raise UserError(f"the data of {root} were given in Python: resume it there with "
                        f"dpgen_jax.resume({str(root)!r}, DATA)")
    if source is None:
        method = method or choice.DEMONSTRATION[0]
    elif not method:
        shown = choice.method_for(choice.kind_of(reading.with_kind(source)))[0]
    args, stated = parse(method or shown, words, before)
    fields = as_fields(stated)
    if method:
        fields["method"] = method
    if root is not None:
        fields |= {"out": root, "resume": True}
    request = before.changed(**fields)
    return Call(request, args.dry_run, args.meeting, {"method": method} | _options(stated))


def parse(method: str, words: Sequence[str], before: Request = NOTHING
          ) -> tuple[Train[Any], dict[str, Any]]:
    """Parses the flags of a method, whose defaults are those of a preset.

    The configuration of the method is a type parameter of the flags and not a tyro subcommand:
    subcommands would load all methods and all presets, whichever is trained.

    Args:
        method: The name of the method.
        words: The flags.
        before: What was stated of the run that goes on.

    Returns:
        The flags, and the values of those that were stated, by field.

    Raises:
        UserError: For an unknown method or preset, and from the parser.
    """
    module = methods.get(method)
    federated = "--federated" in words or before.settings.get("federated")
    dataset = "federated" if federated else (
        parser.peek(words, "--dataset") or before.source or choice.DEMONSTRATION[1])
    named = parser.peek(words, "--preset") or before.preset
    name, preset = presets.get(method, named or choice.provisional(method, dataset))
    config = preset.config if method != before.method else resolve.with_settings(
        preset.config, before.settings, method)
    clients = any(field.name == "clients" for field in dataclasses.fields(module.Config))
    kind: Any = TrainClients if clients else Train
    defaults = kind(name, preset.epsilon, preset.delta, preset.class_epsilon, config)
    if named is not None:
        defaults = dataclasses.replace(defaults, data=resolve.preset_options(preset, dataset))
    known = ", ".join(presets.all_of(method))
    args = parser.parse(kind[module.Config], words, program("train", method),
                        f"{DESCRIPTION} Presets of {method}: {known}.", defaults)
    stated = parser.stated(args, words)
    if "preset" in stated:
        stated["preset"] = name  # an old name is reported once
    return dataclasses.replace(args, preset=name), stated


def as_fields(stated: Mapping[str, Any]) -> Json:
    """Returns the fields of a request that flags state."""
    names = {"config": "settings", "dataset": "source"}
    parts = ("config", "data", "monitor", "runtime")
    return {names.get(name, name): to_json(value) if name in parts else value
            for name, value in stated.items() if name not in ("dry_run", "meeting")}


def _resumed(argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder of `--resume RUN`, if it is named so, and the other arguments."""
    argv = list(argv)
    at = next((i for i, word in enumerate(argv) if word.partition("=")[0] == "--resume"), None)
    if at is None:
        return None, argv
    root, length = argv[at].partition("=")[2], 1
    if not root and at + 1 < len(argv) and not argv[at + 1].startswith("-"):
        root, length = argv[at + 1], 2
    return (Path(root), argv[:at] + argv[at + length:]) if root else (None, argv)


def _options(stated: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """The options that were stated, by field, with their values as texts."""
    options: dict[str, str] = {}
    for name, value in stated.items():
        part = "" if name in ("config", "data", "monitor", "runtime", "meeting") else f"{name}."
        options |= (_options(value, before + part) if isinstance(value, dict) else
                    {before + name: str(value)})
    return options


ON_TABLES = ("marginals", "gpate", "pategan", "datalens", "dpmerf")
"""The methods whose help says what they reached on tables."""

FLAGS = {
    "--dataset D": "a file or folder (people.csv, scans), glyphs, or SOURCE:PLACE (tfds:mnist)",
    "--schema FILE": "for a table: kinds, bounds, categories; the command schema drafts one",
    "--class-names A,B": "for a folder of images, with --channels 1 or 3 and --image-size 28",
    "--epsilon E": "the promise: smaller is more private; 1 is strong, 10 is weak",
    "--delta X": "by default the preset's; for a general preset it follows from the number of "
                 "records",
    "--out RUN": "the run folder",
    "--resume RUN": "resume a run that was stopped; nothing else is needed",
    "--dry-run": "show what would be trained and with how much noise, without spending anything",
}


def help_text(program: str, method: str = "") -> str:
    """Returns the short help.

    Args:
        method: The method that the user named, whose presets are listed; empty for none.

    Raises:
        UserError: There is no such method.
    """
    if method and method not in methods.NAMES:
        raise UserError(f"unknown method {method!r}{nearest(method, methods.NAMES)}; known: "
                        f"{', '.join(methods.NAMES)}")
    named = method or "METHOD"
    flags = [f"  {flag:19}{meaning}" for flag, meaning in FLAGS.items()]
    listed = [f"\npresets of {method} (--preset NAME; one is chosen for the data if left out):",
              f"  {', '.join(presets.all_of(method))}"] if method else []
    if method in ON_TABLES:
        listed += ["", *choice.reached_on_tables(method)]
    return "\n".join([
        f"usage: {program} [METHOD] --dataset D --epsilon E [flags]\n",
        "Trains a generator under differential privacy. Method and settings are chosen for the",
        "data where they are not named; the line `method` says which.\n",
        *about.lines(), "", *flags, *listed,
        f"\nall flags, and those of one method: {program} {named} --help-all"])
