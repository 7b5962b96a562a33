"""Shows the progress of a run, also while it compiles, and stops it.

A stage of a run shows nothing until its first block is compiled and computed. Nothing predicts how
long XLA will optimise a program, so the seconds that have gone are shown, and no estimate.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from dpgen_jax.core import hosts
from dpgen_jax.core.console import Guarded, in_notebook, tell
from dpgen_jax.core.errors import INCOMPLETE, option
from dpgen_jax.core.files import Json

TICK, SILENCE = 1.0, 60.0
"""Seconds between two updates on a terminal, and between two lines elsewhere."""


class Waiting:
    """Says that the first block of a stage is being compiled, until it is there.

    On a terminal the seconds tick in one line; elsewhere there is a line a minute.
    """

    def __init__(self, unit: str, live: bool):
        self._unit, self._live = unit, live
        self._since, self._over = time.monotonic(), threading.Event()
        tell(f"compiling: the first {unit} takes between seconds and minutes", sys.stderr)
        self._thread = threading.Thread(target=self._tick, daemon=True, name="progress")
        self._thread.start()

    def _tick(self) -> None:
        """Shows the seconds that have gone."""
        while not self._over.wait(TICK if self._live else SILENCE):
            seconds = time.monotonic() - self._since
            text = f"compiling and computing the first {self._unit}: {seconds:.0f} s so far"
            tell(f"\r{text}" if self._live else text, sys.stderr, "" if self._live else "\n")

    def end(self) -> float:
        """Ends the waiting, and returns the seconds that it took."""
        seconds = time.monotonic() - self._since
        self._over.set()
        self._thread.join()
        return seconds


SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
                if hasattr(signal, name))
"""The signals that ask a run to stop. Windows has no SIGHUP and sends SIGBREAK for CTRL_BREAK."""
BURST = 1.0
"""Seconds within which another signal is part of the first request: a terminal that closes sends
SIGHUP twice, through the shell and by itself, and `timeout` sends SIGTERM twice."""

OUT_OF_TIME = 75
"""Exit code of a run that its own time limit ended and that can go on: EX_TEMPFAIL of sysexits.h,
"try again"."""


class Stop:
    """A request to stop, which a run looks at between blocks of steps.

    Attributes:
        signal: The signal that requested it; None: no signal did.
        out_of_time: Whether the run's time was over, or too short for another block.
    """

    def __init__(self, minutes: float = 0.0) -> None:
        """Starts the clock of a run of so many minutes; 0: no limit."""
        self.signal: int | None = None
        self.out_of_time = False
        self._since = 0.0
        self._end = time.monotonic() + 60 * minutes if minutes else math.inf
        self.begin_stage()

    def begin_stage(self, first_is_typical: bool = True) -> None:
        """Forgets how long blocks took: those of another stage are to come.

        Args:
            first_is_typical: Whether the first block tells how long another one takes. It does not
                where all but it are short, since it waits for the compiler.
        """
        self._last_look, self._untimed = 0.0, 1 if first_is_typical else 2

    def __call__(self) -> bool:
        """Returns whether the run must stop.

        It is called between blocks: the time from one call to the next is what a further block
        would take, and a block that would end too late is not begun.
        """
        now = time.monotonic()
        block = 0.0 if self._untimed else max(0.0, now - self._last_look)
        self._last_look, self._untimed = now, max(0, self._untimed - 1)
        self.out_of_time |= now + block > self._end
        number = hosts.signal_of_others()
        if self.signal is None and number:
            self.note(number, None)
        return self.signal is not None or self.out_of_time

    @property
    def reason(self) -> str:
        """Why the run was stopped, in words; empty where it was not."""
        if self.signal is not None:
            return "you interrupted it"
        return f"the time limit ({option('max_minutes')}) is reached" if self.out_of_time else ""

    @property
    def exit_code(self) -> int:
        """The exit code of a run that stopped as it was asked to.

        It is 143 after SIGTERM and 129 after SIGHUP. Ctrl-C is a person's own wish, and no failure.
        """
        return 0 if self.signal in (None, signal.SIGINT) else 128 + self.signal

    def note(self, number: int, _frame: object) -> None:
        """Handles a signal."""
        if self.signal is None:
            self.signal, self._since = number, time.monotonic()
            tell("\nstopping after this step (Ctrl-C again to stop at once)", sys.stderr)
        elif number == signal.SIGINT:
            hosts.end_at_once(130)
            raise KeyboardInterrupt
        elif time.monotonic() - self._since > BURST:
            hosts.end_at_once(128 + number)
            raise SystemExit(128 + number)


@contextmanager
def interruptible(minutes: float = 0.0) -> Iterator[Stop]:
    """Notes the first Ctrl-C, SIGTERM, SIGHUP or CTRL_BREAK; a second one stops at once.

    What the parent ignores, as `nohup` does SIGHUP, stays ignored. Outside the main thread (some
    notebooks) signals are left as they are.

    After `minutes`, unless they are 0, the run is to stop by itself.

    Raises:
        SystemExit: At the end, with the signal's exit code, after one that was not Ctrl-C.
    """
    stop, before = Stop(minutes), {}
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
        out_of_time: Whether the run ended early because its time was over.
    """

    def __init__(self, write: Callable[[str], None] = lambda line: tell(line, sys.stderr)):
        self._write = write
        self.failures: list[str] = []
        self.out_of_time = self.interrupted = False

    @property
    def exit_code(self) -> int:
        """The exit code of a run that has left its release."""
        return INCOMPLETE if self.failures else OUT_OF_TIME if self.out_of_time else 0

    def private(self, line: str) -> None:
        """Writes a line that only the data holder may read."""
        self._write(f"private: {line}")

    def failure(self, line: str) -> None:
        """Writes a line about a failure, once, however often it happens."""
        if line not in self.failures:
            self.failures.append(line)
            self._write(f"warning: {line}")

    @contextmanager
    def attempt(self, what: object) -> Iterator[None]:
        """Names what fails within, which costs no more than itself."""
        try:
            yield
        except Exception as error:  # of any kind: what was paid for must not depend on it
            self.failure(f"{what} failed ({reason(error)})")


def reason(error: Exception) -> str:
    """Returns why something failed, in a few words."""
    text = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0][:200]
    return text or type(error).__name__


class Bar:
    """A bar on a terminal and in a notebook, a line every ten seconds elsewhere; or nothing.

    The first block is compiled, so its time does not predict that of the others: until it is there
    no time is estimated, and it enters no estimate. `Waiting` shows that it still runs.
    """

    def __init__(self, total: int | None, start: int, unit: str = "step", shown: bool = True):
        """Begins a bar at `start` steps; a `total` of None is not known, as the answers decide."""
        self._total, self._n, self._unit = total, start, unit
        self._live = sys.stderr.isatty() or in_notebook()
        self._bar: tqdm | None = None
        self._timed_from: tuple[float, int] | None = None
        self._waiting = (Waiting(unit, self._live and not in_notebook())
                         if shown and (total is None or start < total) else None)

    def advance(self, steps: int, shown: Json) -> None:
        """Moves the bar by some steps, and shows values by name next to it."""
        self._n += steps
        if self._waiting is None:
            return
        if self._timed_from is None:
            self._timed_from = time.time(), self._n
            values = "".join(f", {name}={value}" for name, value in shown.items())
            start = "\r" * (self._live and not in_notebook())
            total = "?" if self._total is None else self._total
            tell(f"{start}{self._n}/{total} {self._unit}s, {self._waiting.end():.0f} s "
                 f"including compilation{values}", sys.stderr)
            return
        if self._bar is None:
            self._bar = self._begun(*self._timed_from)
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(steps)

    def _begun(self, since: float, done: int) -> tqdm:
        """The bar of all blocks but the first, which ended at `since` with so many steps done."""
        live = self._live
        bar = tqdm(total=self._total, initial=done, unit=self._unit,
                   dynamic_ncols=live and not in_notebook(), ncols=80 if in_notebook() else None,
                   mininterval=0.2 if live else 10, ascii=not live, file=Guarded(sys.stderr),
                   delay=1e-3,  # so that nothing is shown before the second block
                   bar_format=None if live else "{n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                   "{elapsed} elapsed, {remaining} left{postfix}\n")
        bar.start_t, bar.last_print_t, bar.delay = since, since, 0
        return bar

    def reach(self, share: float) -> None:
        """Moves the bar up to this share of the whole, which is known."""
        assert self._total is not None
        self.advance(int(share * self._total) - self._n, {})

    def close(self) -> None:
        """Closes the bar."""
        if self._waiting is not None:
            self._waiting.end()
        if self._bar is not None:
            self._bar.close()


def clock() -> Callable[[], float]:
    """Returns a function that says how many seconds have gone since this call."""
    started = time.monotonic()
    return lambda: time.monotonic() - started


def public_seconds(seconds: float) -> float:
    """Returns seconds to a tenth, as files that may be shared hold times.

    Finer digits do not help to watch a run, and could depend on the records that were computed on.
    """
    return round(seconds, 1)
