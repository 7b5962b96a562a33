"""Lines on a terminal, which may be closed while a run continues."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class Guarded:
    """A stream whose reader may be gone, such as a closed terminal, or whose disk may be full.

    Text that cannot be written is lost, and so is everything after it.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        """Writes a text if possible."""
        self._safely(lambda: self._stream.write(text))

    def flush(self) -> None:
        """Flushes the stream if possible."""
        self._safely(self._stream.flush)

    def _safely(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except RuntimeError:  # a signal's handler came in the middle of another write
            pass
        except (OSError, ValueError):
            # Also what is written at the end of the process, which would change its exit code.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self._stream.fileno())


def program(command: str, *words: object, **options: object) -> str:
    """Returns a command as the user can type it, in the form in which this process was started.

    Args:
        command: The name of the command.
        *words: Its arguments, which are quoted if a shell needs it.
        **options: Its flags, by the names of their fields.
    """
    flags = [part for name, value in options.items()
             for part in (f"--{name.replace('_', '-')}", str(value))]
    return as_typed(shlex.join(["python", "-m", f"dpgen_jax.{command}", *map(str, words), *flags]))


def as_typed(text: str) -> str:
    """Returns a text with its first command in the form in which this process was started."""
    if Path(sys.argv[0]).stem != "dpgen":
        return text
    return text.replace("python -m dpgen_jax.", "dpgen ", 1)


def confirm(question: str) -> bool | None:
    """Asks the user at the terminal.

    Args:
        question: One line.

    Returns:
        Whether the answer is yes; None without a terminal.
    """
    streams = (sys.stdin, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    tell(f"{question} [y/N]", sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def in_notebook() -> bool:
    """Returns whether this is the kernel of a notebook, which can show a progress bar."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def tell(line: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Prints a line at once, to stdout or `stream`, if somebody can read it."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:  # as it is without a console
        guarded = Guarded(stream)
        guarded.write(line + end)
        guarded.flush()
