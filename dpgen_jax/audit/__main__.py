"""Attacks what is promised: the mechanism, a whole training, a run folder, and planted faults.

    python -m dpgen_jax.audit METHOD [--preset NAME] [--seconds S]   the mechanism; no data
    python -m dpgen_jax.audit METHOD --dataset D --canaries N        a whole training, one run
    python -m dpgen_jax.audit METHOD --dataset D --canaries N --black-box   and its samples only
    python -m dpgen_jax.audit RUN [--dataset D] [--seconds S]        a run folder
    python -m dpgen_jax.audit --faults         planted faults, in a clone of the repository

It exits with 0 only where all checks were made and hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from dpgen_jax import methods, presets
from dpgen_jax.audit import of_method
from dpgen_jax.audit.findings import Log, Report, quiet, require_folder
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.audit.mechanism import Attack, Target
from dpgen_jax.cli import parser, runs, terminal
from dpgen_jax.core.config import DataOptions, to_json
from dpgen_jax.core.console import program, tell
from dpgen_jax.core.errors import UserError

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class OfMethod(Generic[Config]):
    """The flags of `audit METHOD`; the method's configuration is part of them."""

    preset: str
    """a preset of the method, which gives the defaults of all other flags"""
    epsilon: float
    """the promise"""
    delta: float
    """of the same promise"""
    config: Annotated[Config, parser.FLAT]
    seconds: float = Attack.seconds
    """how long the mechanism is attacked; more time certifies more"""
    dataset: str | None = None
    """train on this data set, with canaries among its records; no data are read if left out"""
    canaries: int | None = None
    """with --dataset: how many canaries are put among the records"""
    black_box: bool = False
    """with --canaries: also attack the samples of a release, without its other values"""
    out: Path | None = None
    """folder for audit.json and the picture; audits/METHOD-PRESET if left out"""
    json: bool = False
    """print JSON"""
    data: Annotated[DataOptions, parser.FLAT] = DataOptions()


@dataclasses.dataclass(frozen=True)
class OfFolder:
    """The flags of `audit RUN`."""

    dataset: str | None = None
    """the data set of the training, to replay the run on its neighbours"""
    seconds: float = 0.0
    """how long the mechanism of the run is attacked too; its curves are then in the report"""
    out: Path | None = None
    """folder for audit.json; RUN/audit if left out"""
    json: bool = False
    """print JSON"""
    data: Annotated[DataOptions, parser.FLAT] = DataOptions()


@dataclasses.dataclass(frozen=True)
class OfFaults:
    """The flags of `audit --faults`."""

    faults: bool = True
    """plant every fault, and show which attack catches it"""
    only: tuple[str, ...] = ()
    """names of faults; all if left out"""
    out: Path | None = None
    """folder for audit.json; audits/faults if left out"""
    json: bool = False
    """print JSON"""


def command(argv: list[str]) -> int | None:
    """Runs the audit that the arguments name, prints it and writes audit.json.

    Returns:
        The exit code: 0, `findings.FAILED` or `findings.UNDECIDED`.

    Raises:
        UserError: Arguments are bad, the folder is not a run, or data cannot be read.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__.strip())
        print(f"\nflags of each: {program('audit')} METHOD --help")
        raise SystemExit(0)
    terminal.use_all_cores()
    if any(word == "--faults" or word.startswith("--only") for word in argv):
        return _faults(argv)
    name, rest = parser.split_method(argv, "")
    if not name:
        raise UserError(f"name a method, a run folder or --faults first, got {' '.join(argv)}")
    root = runs.folder_of(name)
    return _method(name, rest) if root is None else _folder(root, rest)


def _method(method: str, argv: list[str]) -> int:
    flags: Any = OfMethod  # whose configuration is known only at run time
    module = methods.get(method)
    name, preset = presets.get(method, parser.peek(argv, "--preset"))
    args = parser.parse(
        flags[module.Config], argv, program("audit", method),
        "Attacks the mechanism of a method as a run would compile it; with --dataset and "
        f"--canaries a whole training. Presets: {', '.join(presets.all_of(method))}.",
        default=OfMethod(name, preset.epsilon, preset.delta, preset.config))
    out, log = _out(args.out, Path("audits") / f"{method}-{name}"), _log(args.json)
    target = Target(method, preset, args.config, args.epsilon, args.delta)
    attack = Attack(args.seconds, args.dataset, args.data, args.canaries, args.black_box)
    return _finish(of_method(target, attack, log), out, args.json)


def _folder(root: Path, argv: list[str]) -> int:
    args = parser.parse(OfFolder, argv, program("audit", "RUN"),
                     "Checks whether everything that a run folder states is true; with "
                     "--dataset also that one record moves only its own unit.")
    out = _out(args.out, root / "audit")
    if not 0 <= args.seconds < float("inf"):
        raise UserError(f"--seconds is {args.seconds}; give a number, or 0 to skip this attack")
    request = None
    with contextlib.suppress(UserError):  # the audit itself reports what is wrong with the folder
        request = runs.request_of(root)
    report = of_folder(root, args.dataset, args.data, _log(args.json), args.seconds, request)
    return _finish(report, out, args.json)


def _faults(argv: list[str]) -> int:
    args = parser.parse(OfFaults, argv, program("audit"),
                     "Plants every fault of the catalogue, and shows which attack catches it.")
    out = _out(args.out, Path("audits") / "faults")
    tests = Path(__file__).parents[2] / "tests"
    if not (tests / "planted").is_dir():
        raise UserError("--faults needs a clone of the repository, whose tests contain the faults; "
                        "clone it, install it with pip install -e '.[dev]' and run this there")
    sys.path.insert(0, str(tests))
    planted = importlib.import_module("planted")
    return _finish(planted.all_of(args.only, _log(args.json)), out, args.json)


def _out(stated: Path | None, default: Path) -> Path:
    """The folder of the files, checked before minutes are spent."""
    require_folder(out := stated or default)
    return out


def _log(as_json: bool) -> Log:
    """Prints lines to stdout; none where JSON is printed."""
    return quiet if as_json else tell


def _finish(report: Report, out: Path, as_json: bool) -> int:
    """Writes and prints a report; its exit code."""
    path = report.save(out)
    if as_json:
        print(json.dumps(to_json(report.record()), indent=1))
    else:
        for line in (str(path), *report.lines()):
            tell(line)
    return report.exit_code


if __name__ == "__main__":
    terminal.main(command)
