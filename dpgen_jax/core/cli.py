"""The command line: flags from dataclasses, one clear line for an error, exit codes, printing."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tyro

from dpgen_jax.core import files
from dpgen_jax.core.config import to_json
from dpgen_jax.core.console import as_typed, tell
from dpgen_jax.core.errors import UserError, nearest, one_line, worded
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import at_most

T = TypeVar("T")
INCOMPLETE = 4
"""exit code if a release was written but something else failed"""
FLAT = tyro.conf.arg(name="")
"""marks a field whose own fields are flags without a prefix"""


def main(command: Callable[[list[str]], int | None]) -> None:
    """Runs a command on the arguments of the process, and exits as it ended.

    The exit code is 0, or 2 on a usage or data error, 3 without budget for a step, 4 (which the
    command returns) where a release was written but something else failed, 75 (likewise)
    where a time limit ended a run that can go on, 130 after a second Ctrl-C, and 143 (129) where
    SIGTERM (SIGHUP) ended it.

    Args:
        command: From the arguments to an exit code, None for 0.
    """
    for stream in (sys.stdout, sys.stderr):  # a name that cannot be shown ends no run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with worded(on_command_line=True):
            code = command(sys.argv[1:])
        if code:
            sys.exit(code)
    except UserError as error:
        tell(f"error: {one_line(error)}", sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        tell(f"error: {one_line(error)}", sys.stderr)
        sys.exit(UserError.exit_code)
    except KeyboardInterrupt:
        tell("interrupted", sys.stderr)
        sys.exit(130)


def split_method(argv: Sequence[str], default: str) -> tuple[str, list[str]]:
    """Splits the name of a method off the arguments.

    Args:
        argv: The arguments.
        default: The method where the first argument starts with '-'.

    Returns:
        The name, and the other arguments.
    """
    if argv and not argv[0].startswith("-"):
        return argv[0], list(argv[1:])
    return default, list(argv)


def peek(argv: Sequence[str], flag: str) -> str | None:
    """Returns the value of a flag before the real parsing: the preset decides the defaults.

    Args:
        argv: The arguments.
        flag: The flag, with its dashes; the last one counts, as in the parser.
    """
    value = None
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            value = argv[i + 1]
        if word.startswith(flag + "="):
            value = word.split("=", 1)[1]
    return value


def without_flag(argv: Sequence[str], flag: str) -> list[str]:
    """Returns the arguments with a flag taken out and its value, or values, put first."""
    rest = [word.removeprefix(f"{flag}=") for word in argv if word != flag]
    start = next(i for i, word in enumerate(argv) if word == flag or word.startswith(f"{flag}="))
    return [*rest[start:], *rest[:start]]


def renamed(old: str, new: str) -> None:
    """Says on stderr that an old spelling of a command has a new name."""
    tell(f"note: `{old}` is now `python -m dpgen_jax.{new}`", sys.stderr)


def parse(cls: type[T], argv: Sequence[str], prog: str, description: str, default: T | None = None
          ) -> T:
    """Parses arguments into a dataclass; `--help` prints and exits.

    Args:
        cls: The dataclass of the flags.
        argv: The arguments.
        prog: The program, as the help names it.
        description: One or two sentences for the help.
        default: The values of flags that are left out; by default the dataclass's own.

    Returns:
        The dataclass.

    Raises:
        UserError: With the parser's message in one line.
    """
    args, prog = cls if default is None else default, as_typed(prog)
    stated: dict[str, Any] = {} if default is None else {"default": default}
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            parsed, unknown = tyro.cli(
                cls, args=_with_new_names(argv, args), prog=prog, description=description,
                return_unknown_args=True, **stated)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(f"{_in_words(_first_message(box.getvalue()))} (see: {prog} --help)"
                        ) from None
    if unknown:
        name = unknown[0].lstrip("-").partition("=")[0].replace("_", "-")
        known = nearest(name, _flags(args)) if unknown[0].startswith("-") else ""
        known = known.replace("mean '", "mean '--")
        raise UserError(f"Unrecognized options: {', '.join(unknown)}{known} (see: {prog} --help)")
    return typing.cast(T, parsed)


def _first_message(box: str) -> str:
    """The first message of the parser's framed text.

    tyro's hooks for errors (`tyro._errors`) are private and may change in any version, so the text
    that it prints is read instead.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # colours, where the terminal has them
    rows = [line.strip("\u2502 ") for line in plain.splitlines()[1:]]
    if rows and _is_rule(rows[0]):  # under the title, where the terminal has ASCII only
        del rows[0]
    message = itertools.takewhile(lambda row: not _is_rule(row), rows)
    return " ".join(row for row in message if row)


def _in_words(message: str) -> str:
    """A message of the parser without its layout, and without words of Python."""
    missing = re.fullmatch(r"Missing from [^:]*: (.*)", message)
    if missing:
        items = missing[1].replace("(required)", "\0").strip("\0 ").split("\0")
        return "missing: " + ", ".join(
            re.sub(r"^((?:--\S+ )?\S+) (.*)$", r"\1 (\2)", item.strip()) for item in items)
    message = re.sub(r"^Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)$",
                     r"\1 \2: a whole number is needed", message)
    return re.sub(r"^Error parsing (\S+): could not convert string to float: (.*)$",
                  r"\1 \2: a number is needed", message)


def _is_rule(row: str) -> bool:
    return bool(row) and not set(row) - set("\u2500\u2570\u256f-")


def _with_new_names(argv: Sequence[str], args: Any) -> list[str]:
    """The arguments with the flags of fields that were renamed; an old name is reported."""
    renames = {f"--{field.metadata['key']}": f"--{field.name}" for field in _fields(args)
               if "key" in field.metadata}
    words = [word.partition("=") for word in argv]
    for old in {flag for flag, _, _ in words} & renames.keys():
        tell(f"note: {old} is now {renames[old]}", sys.stderr)
    return [renames.get(flag, flag) + equals + value for flag, equals, value in words]


def _fields(args: Any) -> Iterator[dataclasses.Field[Any]]:
    """The fields of an instance of a dataclass, and those of its fields."""
    for field in dataclasses.fields(args):
        yield field
        nested = getattr(args, field.name, None)
        if dataclasses.is_dataclass(nested):
            yield from _fields(nested)


def _flags(args: Any, prefix: str = "") -> Iterator[str]:
    """The names of the flags of a dataclass, or of an instance of it."""
    hints = typing.get_type_hints(args if isinstance(args, type) else type(args),
                                  include_extras=True)
    for field in dataclasses.fields(args):
        name = prefix + field.name.replace("_", "-")
        hint, *marks = typing.get_args(hints[field.name]) or (hints[field.name],)
        nested = hint if isinstance(args, type) else getattr(args, field.name)
        if dataclasses.is_dataclass(nested):
            yield from _flags(nested, prefix if FLAT in marks else f"{name}.")
        else:
            yield name


def use_all_cores() -> None:
    """Makes one JAX device a CPU core: small networks do not use more than one core each.

    It must run before JAX touches a backend. Settings of the user in the environment stay.
    """
    import jax

    # On a busy machine one device may wait minutes for another; XLA's own patience is 40 s.
    os.environ["XLA_FLAGS"] = " ".join(filter(None, (
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600",
        "--xla_cpu_collective_call_terminate_timeout_seconds=3600",
        # Another process may write, evaluate or post-train for longer than the usual half hour.
        "--xla_cpu_collective_timeout_seconds=86400", os.environ.get("XLA_FLAGS"))))
    if ("JAX_NUM_CPU_DEVICES" not in os.environ
            and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")):
        with contextlib.suppress(RuntimeError):  # a backend is already up: keep its devices
            jax.config.update("jax_num_cpu_devices", min(16, files.cores()))


BOUNDS = ("epsilon", "delta", "epsilon_without_it", "spent", "own_cost_rdp",
          "may_be_too_low_with_probability", "independent", "laws of the entries")
"""Names of numbers that are upper bounds"""


def print_record(record: Json, as_json: bool) -> None:
    """Prints a record to stdout.

    Args:
        record: Names and values; a value may itself be a dictionary.
        as_json: Whether to print strict JSON, in which an infinite number is "inf".
    """
    if as_json:
        print(json.dumps(to_json(record), indent=1))
        return
    for name, value in record.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(key, part)}" for key, part in value.items())
        print(f"{name.replace('_', ' ') + ':':14} {value}")


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return at_most(value) if name in BOUNDS else f"{value:.6g}"
    return str(value)
