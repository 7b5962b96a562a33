"""What a person sees of a run, and how it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
                if hasattr(signal, name))
"""What asks a run to stop. Windows has no SIGHUP and sends SIGBREAK for CTRL_BREAK."""
BURST = 1.0
"""Seconds within which another signal is part of the first request: a terminal that closes sends
SIGHUP twice, through the shell and by itself, and `timeout` sends SIGTERM twice."""


class Stop:
    """Whether a run was asked to stop, which it reads between blocks of steps. signal: by what."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._since = 0.0

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a run that stopped as it was asked to: 143 after SIGTERM, 129 after SIGHUP. Ctrl-C is
        a person's own wish, and no failure."""
        return 0 if self.signal in (None, signal.SIGINT) else 128 + self.signal

    def note(self, number: int, _frame: Any) -> None:
        """The handler of a signal."""
        if self.signal is None:
            self.signal, self._since = number, time.monotonic()
            tell("\nstopping after this step (Ctrl-C again to stop at once)", sys.stderr)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        elif time.monotonic() - self._since > BURST:
            raise SystemExit(128 + number)


@contextmanager
def interruptible() -> Iterator[Stop]:
    """The first Ctrl-C, SIGTERM, SIGHUP or CTRL_BREAK is noted; a second one stops at once. What
    comes to its end after one that was not Ctrl-C raises SystemExit with the signal's exit code.

    What the parent ignores, as `nohup` does SIGHUP, stays ignored. Outside the main thread (some
    notebooks) signals are left as they are.
    """
    stop, before = Stop(), {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, stop.note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if stop.exit_code:
        raise SystemExit(stop.exit_code)


class Guarded:
    """A stream whose reader may be gone, as a closed terminal is, or whose disk may be full: what
    cannot be written is lost, and what comes after it as well."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        self._safely(lambda: self._stream.write(text))

    def flush(self) -> None:
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


def tell(line: str, stream: TextIO | None = None) -> None:
    """Prints a line at once, to stdout or `stream`, if anybody is there to read it."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:  # as it is without a console
        guarded = Guarded(stream)
        guarded.write(line + "\n")
        guarded.flush()


class Notices:
    """What the person who runs it is told beside the run's own lines, on stderr: what only the data
    holder may read, and what failed without stopping the run. failures: the lines of the latter.
    """

    def __init__(self, write: Callable[[str], None] = lambda line: tell(line, sys.stderr)):
        self._write = write
        self.failures: list[str] = []

    def private(self, line: str) -> None:
        self._write(f"private: {line}")

    def failure(self, line: str) -> None:
        """Said once, however often it happens."""
        if line not in self.failures:
            self.failures.append(line)
            self._write(f"warning: {line}")

    @contextmanager
    def attempt(self, what: Any) -> Iterator[None]:
        """What fails in here is named, and costs no more than itself."""
        try:
            yield
        except Exception as error:  # of any kind: what was paid for must not hang on it
            self.failure(f"{what} failed ({reason(error)})")


def reason(error: Exception) -> str:
    """Why, in a few words."""
    text = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0][:200]
    return text or type(error).__name__


class Bar:
    """A progress bar on a terminal, a line every ten seconds elsewhere; the first one at once."""

    def __init__(self, total: int, start: int, unit: str = "step"):
        live = sys.stderr.isatty()
        self._every = 0.2 if live else 10
        self._bar = tqdm(total=total, initial=start, unit=unit, dynamic_ncols=live,
                         mininterval=self._every, ascii=not live, file=Guarded(sys.stderr),
                         bar_format=None if live else "{n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                         "{elapsed} gone, {remaining} left{postfix}\n")

    def advance(self, steps: int, shown: dict[str, Any]) -> None:
        self._bar.set_postfix(shown, refresh=False)
        first = self._bar.n == self._bar.initial
        self._bar.mininterval = 0 if first else self._every  # the first step is shown at once
        self._bar.update(steps)

    def reach(self, share: float) -> None:
        """Up to this share of the whole."""
        self.advance(int(share * self._bar.total) - self._bar.n, {})

    def close(self) -> None:
        self._bar.close()


def clock() -> Callable[[], float]:
    """Seconds since the call."""
    started = time.monotonic()
    return lambda: time.monotonic() - started


def public_seconds(seconds: float) -> float:
    """To a tenth, as files that may be shared hold times: finer digits help nobody who watches a
    run, and could tell of the records that were computed on."""
    return round(seconds, 1)
