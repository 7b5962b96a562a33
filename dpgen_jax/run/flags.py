"""The flags of a training, how its data are read, and the words that started it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from dpgen_jax import methods, presets
from dpgen_jax.accountant.events import Events
from dpgen_jax.core import cli
from dpgen_jax.core.config import Budget, DataOptions, MonitorOptions, Runtime, from_json
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.files import Json, exists
from dpgen_jax.core.hosts import Hosts
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.core.types import Spec
from dpgen_jax.data import parts
from dpgen_jax.presets import choice


def folder_of_first_word(word: str) -> Path | None:
    """Returns the folder that a word names, or None where it is the name of a method.

    Args:
        word: The first word of the command; the name of a method wins over a folder.

    Raises:
        UserError: It is neither; with the method or the folder that is named most like it.
    """
    path = Path(word)
    if word in methods.NAMES:
        return None
    if path.is_dir():
        return path
    if path.is_file():
        raise UserError(f"{word} is a file; name the folder of a run")
    likely = nearest(word, [*methods.NAMES, *_folders_beside(path)])
    raise UserError(f"there is no folder {word!r}, and no method of that name{likely}; methods: "
                    f"{', '.join(methods.NAMES)}")


def _folders_beside(path: Path) -> list[str]:
    """Sibling folders, as they would be typed, to suggest in an error."""
    with contextlib.suppress(OSError):
        return sorted(str(path.parent / other.name) for other in path.parent.iterdir()
                      if other.is_dir())
    return []


Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Config]):
    """The flags of `python -m dpgen_jax.train`, for a method whose configuration is a `Config`."""

    preset: str
    """whose values are the defaults; chosen for the data if left out"""
    epsilon: float
    """the promise; inf: no privacy"""
    delta: float
    """must lie below 1 / records"""
    class_epsilon: float
    """of epsilon, for noisy class counts by which labels are sampled; 0: classes in equal shares"""
    config: Annotated[Config, cli.FLAT]
    dataset: str = "glyphs"
    """what to train on: a file or folder, glyphs, or SOURCE:PLACE as the documentation lists data
    sets"""
    out: Path | None = None
    """run folder; runs/METHOD-DATASET-TIME if left out"""
    release_to: str | None = None
    """an address (gs://BUCKET/FOLDER, s3://BUCKET/FOLDER) that the finished release is copied to"""
    total_epsilon: float | None = None
    """refuse a run with which all runs on these records, as far as this machine's journal knows
    them, would go beyond this epsilon"""
    resume: bool = False
    """go on: `--resume RUN` needs nothing else; without RUN, with the run in --out"""
    dry_run: bool = False
    """say what would be trained, and with what noise; nothing is written or spent"""
    seed: int | None = None
    """repeats a run bit for bit; then there is NO privacy claim"""
    schema_share: float = 0.1
    """of epsilon and delta, for kinds, bounds and categories of a csv that nobody declared"""
    accept_uncovered: bool = False
    """release public fields that were read from private records, and say so in the statement"""
    clients: int | None = None
    """simulated clients to deal the records to: with --federated, or for a method of clients"""
    alpha: float | None = None
    """with --clients: how much they differ, Dirichlet(alpha) by class; evenly if left out"""
    data: Annotated[DataOptions, cli.FLAT] = DataOptions()
    monitor: Annotated[MonitorOptions, cli.FLAT] = MonitorOptions()
    runtime: Annotated[Runtime, cli.FLAT] = Runtime()
    meeting: Annotated[Hosts, cli.FLAT] = Hosts()


@dataclasses.dataclass(frozen=True)
class TrainClients(Train[Config], Generic[Config]):
    """The flags for a method whose configuration has the number of clients itself."""

    clients: Annotated[int | None, tyro.conf.Suppress] = None


PATHS = ("--schema", "--test-csv", "--class-names")
"""Flags whose value may be the path of a file."""
LOCAL = ("--out", "--resume", "--dry-run", "--coordinator", "--processes", "--process-id",
         "--join-seconds")
"""Flags that belong to one start, and not to the run."""


def kept_words(method: str, words: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a command as a run keeps them: its method first, and paths in full.

    Args:
        method: The name of the method.
        words: The flags, without the method.
    """
    flags = _by_flag(words)
    return (method, *(word for name, group in flags.items() if name not in LOCAL
                      for word in _in_full(name, group)))


def resumed_words(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a command, with `--resume RUN` replaced by those of that run.

    Args:
        argv: The arguments; options after RUN replace those that were stated then.

    Raises:
        UserError: As `words`.
    """
    argv = list(argv)
    at = next((i for i, word in enumerate(argv) if word.partition("=")[0] == "--resume"), None)
    if at is None:
        return argv
    root, length = argv[at].partition("=")[2], 1
    if not root and at + 1 < len(argv) and not argv[at + 1].startswith("-"):
        root, length = argv[at + 1], 2
    if not root:
        return argv
    rest = argv[:at] + argv[at + length:]
    method, *before = words(Path(root))
    if rest and not rest[0].startswith("-"):
        method, rest = rest[0], rest[1:]
    return [method, *merged_words(before, rest), "--resume", f"--out={root}"]


def next_steps(files: RunFolder, typed: Sequence[str], tested: bool) -> list[str]:
    """Returns the last lines of a run: where its samples are, and the command that measures them.

    Args:
        files: The run folder.
        typed: The words of the command; none from Python.
        tested: Whether records are held out.
    """
    if not typed:
        return []
    lines = [f"samples: {path}" for path in (files.release / "samples.png",
                                             files.release / "samples.csv") if path.is_file()]
    if tested:
        lines.append(f"measure it: {program('evaluate', files.root)} (--fast: in less time)")
    return lines


def words(root: Path) -> list[str]:
    """Returns the words by which a run was started, the method first.

    Args:
        root: The run folder.

    Raises:
        UserError: There is no run, or one that Python or an earlier version began.
    """
    files = RunFolder(root)
    if not files.config.is_file():
        raise UserError(f"{root} holds no run to resume (no config.json); name the folder of a run")
    typed = read_json(files.config).get("typed")
    if not (isinstance(typed, list) and typed and all(isinstance(word, str) for word in typed)):
        raise UserError(f"{root} does not say by which command it was started, as it was from "
                        "Python or by an earlier version: repeat that with resume, or --resume")
    typed = [typed[0], *without_words(typed[1:], _removed(typed, root))]
    if not files.answer.is_file() or files.waiting:
        return typed
    bought = [f"{flag}={path.absolute()}" for flag, path in (  # wherever they are now
        ("--schema", files.schema), ("--class-names", files.class_names)) if path.is_file()]
    return [typed[0], *merged_words(typed[1:], bought)]


def _removed(typed: Sequence[str], root: Path) -> list[str]:
    """The flags of an earlier version that this one does not have, and the run does not need.

    Raises:
        UserError: The run needs them.
    """
    config = read_json(RunFolder(root).config).get("config")
    if isinstance(config, dict) and (config.get("nearest") or {}).get("images"):
        raise UserError(f"{root} was begun when teachers without networks were a setting of "
                        f"{typed[0]}, which is the method prototypes now: go on with that version, "
                        "or start a new run, whose epsilon adds to this one's; what it has "
                        "released stays as it is")
    return [word.partition("=")[0] for word in typed
            if word.startswith(("--nearest.", "--parallel")) or (
                typed[0] == "pategan" and word.startswith(("--frequencies", "--step-size")))]


def data_options(root: Path) -> Json:
    """Returns the options with which a run read its data; none where an earlier version began it.

    Args:
        root: A run folder.
    """
    options = read_json(RunFolder(root).config).get("data_options")
    return options if isinstance(options, dict) else {}


def as_read(options: DataOptions, known: Json, kind: str) -> DataOptions:
    """Returns options of a data set, in which those count that a run read it with.

    Args:
        options: Those that the user names now, which come first.
        known: As `data_options` returns them.
        kind: The kind of data set that is read now, such as "csv".

    Raises:
        UserError: What the run holds is damaged.
    """
    known = dict(known)
    if options.test_csv:  # the held-out part is this file
        known.pop("test_fraction", None)
    if known.pop("kind", None) != kind:
        return options
    read = from_json(DataOptions, known, "data_options")
    return dataclasses.replace(options, **{
        name: getattr(read, name) for name in known if getattr(options, name) is None})


def data_words(root: Path, options: Sequence[str]) -> list[str] | None:
    """Returns the flags by which a run read its data set; None where they are not noted.

    Args:
        root: The run folder.
        options: The names of the options of data sets.
    """
    if not (root / "config.json").is_file() or "typed" not in read_json(root / "config.json"):
        return None
    flags = _by_flag(words(root)[1:])
    wanted = {"--dataset", *(f"--{name.replace('_', '-')}" for name in options)}
    return [word for name, group in flags.items() if name in wanted for word in group]


def merged_words(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Returns the words of a command, where those of now take the place of earlier ones.

    Args:
        before: Flags and their values.
        now: Likewise, behind words that are no flags; all of them stay, also of a flag that is
            given several times.
    """
    flags = next((i for i, word in enumerate(now) if word.startswith("--")), len(now))
    return [*now[:flags], *without_words(before, list(_by_flag(now))), *now[flags:]]


def without_words(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the words of a command without some flags and their values.

    Args:
        words: Flags and their values.
        names: The flags to leave out, with their dashes.
    """
    return [word for name, group in _by_flag(words).items() if name not in names
            for word in group]


def _by_flag(words: Sequence[str]) -> dict[str, list[str]]:
    """The words of each flag, by its name with dashes; a flag that comes twice counts once."""
    flags: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            flags[name] = []
        flags.setdefault(name, []).append(word)
    return flags


def _in_full(name: str, group: list[str]) -> list[str]:
    """The words of a flag, in which the path of what exists here is a full one."""
    if name not in ("--dataset", *PATHS):
        return group
    value: Any = group[0].partition("=")[2] or (group[1] if len(group) > 1 else "")
    kind, colon, place = value.partition(":") if name == "--dataset" else ("", "", value)
    if place and not Path(place).is_absolute() and exists(place):
        value = f"{kind}{colon}{Path(place).resolve()}"
    return [f"{name}={value}"]


@dataclasses.dataclass(frozen=True)
class Supposed:
    """A rehearsal that ends before the data are typed, and data as they could be.

    Attributes:
        kind: `table` or `images`.
        what: What is supposed of them, in words.
        spec: Their schema, if it is so.
        records: The public number of training records.
        budget: The budget of the run, without class counts.
        events: What the purchase costs, with what was bought before it.
        prices: Lines on what would be bought.
    """

    kind: str
    what: str
    spec: Spec
    records: int
    budget: Budget
    events: Events
    prices: tuple[str, ...]


Refuse = Callable[[Supposed], None]
"""Raises UserError where a run on such data would be refused."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a data set is read.

    Attributes:
        place: KIND or KIND:PLACE.
        words: The flags, with what was added to them.
        remarks: Lines on what was added.
        bought: What was bought, as `Dataset.bought` holds it.
        supposed: In a rehearsal, what would be bought, without which nothing more is known of the
            data.
    """

    place: str
    words: list[str]
    remarks: tuple[str, ...] = ()
    bought: tuple[Json, ...] = ()
    supposed: Supposed | None = None


def budget_for(reading: Reading, method: str, args: Train[Any], spec: Spec, n: int) -> Budget:
    """Returns the budget of a run whose data are not typed yet.

    Where the flags do not state it, it is that of the preset that will be used for the data.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        spec: A schema of the kind that the data will have.
        n: The public number of all records.

    Returns:
        The budget, without class counts.

    Raises:
        UserError: No preset of the method is for such data.
    """
    epsilon, delta = args.epsilon, args.delta
    if cli.peek(reading.words, "--preset") is None:
        stated = epsilon if cli.peek(reading.words, "--epsilon") is not None else None
        tuned = args.config != presets.get(method, args.preset)[1].config
        preset = choice.preset_for(method, choice.Facts("", spec, n), stated, tuned).preset
        epsilon = preset.epsilon if stated is None else stated
        delta = delta if cli.peek(reading.words, "--delta") is not None else preset.delta
    return Budget(epsilon, delta)


def trained_on(args: Train[Any], n: int, tested: bool) -> int:
    """Returns the number of records that are left for the training, before the data are typed.

    Args:
        args: The flags of `train`, parsed.
        n: The public number of all records, without those of a held-out part that the data bring.
        tested: Whether they bring one.

    Raises:
        UserError: As `parts.hold_out`.
    """
    share = args.data.test_fraction
    if share is None:
        share = 0.0 if tested or n < parts.FEWEST else parts.HELD_OUT_SHARE
    if not share:
        return n
    parts.check(share, tested, "the data set")
    return n - parts.count(share, n)
