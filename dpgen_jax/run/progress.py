"""Shows the progress of a run, and stops it."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from dpgen_jax.core.console import Guarded, tell

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
                if hasattr(signal, name))
"""The signals that ask a run to stop. Windows has no SIGHUP and sends SIGBREAK for CTRL_BREAK."""
BURST = 1.0
"""Seconds within which another signal is part of the first request: a terminal that closes sends
SIGHUP twice, through the shell and by itself, and `timeout` sends SIGTERM twice."""


class Stop:
    """A request to stop, which a run looks at between blocks of steps.

    Attributes:
        signal: The signal that asked; None: nobody did.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._since = 0.0

    def __call__(self) -> bool:
        """Returns whether the run was asked to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code of a run that stopped as it was asked to.

        It is 143 after SIGTERM and 129 after SIGHUP. Ctrl-C is a person's own wish, and no failure.
        """
        return 0 if self.signal in (None, signal.SIGINT) else 128 + self.signal

    def note(self, number: int, _frame: Any) -> None:
        """Handles a signal."""
        if self.signal is None:
            self.signal, self._since = number, time.monotonic()
            tell("\nstopping after this step (Ctrl-C again to stop at once)", sys.stderr)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        elif time.monotonic() - self._since > BURST:
            raise SystemExit(128 + number)


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Notes the first Ctrl-C, SIGTERM, SIGHUP or CTRL_BREAK; a second one stops at once.

    What the parent ignores, as `nohup` does SIGHUP, stays ignored. Outside the main thread (some
    notebooks) signals are left as they are.

    Yields:
        Whether the run was asked to stop.

    Raises:
        SystemExit: At the end, with the signal's exit code, after one that was not Ctrl-C.
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


class Notices:
    """Lines on stderr for the person who runs it: what only the data holder may read, and failures.

    Attributes:
        failures: The lines about what failed without stopping the run.
    """

    def __init__(self, write: Callable[[str], None] = lambda line: tell(line, sys.stderr)):
        self._write = write
        self.failures: list[str] = []

    def private(self, line: str) -> None:
        """Writes a line that only the data holder may read."""
        self._write(f"private: {line}")

    def failure(self, line: str) -> None:
        """Writes a line about a failure, once, however often it happens."""
        if line not in self.failures:
            self.failures.append(line)
            self._write(f"warning: {line}")

    @contextmanager
    def attempt(self, what: Any) -> Iterator[None]:
        """Names what fails within, which costs no more than itself."""
        try:
            yield
        except Exception as error:  # of any kind: what was paid for must not hang on it
            self.failure(f"{what} failed ({reason(error)})")


def reason(error: Exception) -> str:
    """Returns why something failed, in a few words."""
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
        """Moves the bar by some steps, and shows values by name beside it."""
        self._bar.set_postfix(shown, refresh=False)
        first = self._bar.n == self._bar.initial
        self._bar.mininterval = 0 if first else self._every  # the first step is shown at once
        self._bar.update(steps)

    def reach(self, share: float) -> None:
        """Moves the bar up to this share of the whole."""
        self.advance(int(share * self._bar.total) - self._bar.n, {})

    def close(self) -> None:
        """Closes the bar."""
        self._bar.close()


def clock() -> Callable[[], float]:
    """Returns a function that says how many seconds have gone since this call."""
    started = time.monotonic()
    return lambda: time.monotonic() - started


def public_seconds(seconds: float) -> float:
    """Returns seconds to a tenth, as files that may be shared hold times.

    Finer digits help nobody who watches a run, and could tell of the records that were computed on.
    """
    return round(seconds, 1)
