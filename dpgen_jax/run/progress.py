"""What a person sees of a run, and how it is stopped."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C sets a flag that is read between blocks of steps; a second Ctrl-C stops at once.

    Outside the main thread (some notebooks) signals are left as they are.
    """
    pressed = []

    def note(*_):
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)
        print("\nstopping after this step (Ctrl-C again to stop at once)", file=sys.stderr)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:
        yield lambda: False
        return
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class Bar:
    """A progress bar on a terminal, a line every ten seconds elsewhere; the first one at once."""

    def __init__(self, total: int, start: int, unit: str = "step"):
        live = sys.stderr.isatty()
        self._every = 0.2 if live else 10
        self._bar = tqdm(total=total, initial=start, unit=unit, dynamic_ncols=live,
                         mininterval=self._every, ascii=not live,
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
