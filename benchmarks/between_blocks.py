"""The time between two blocks of rounds: `python -m benchmarks.between_blocks`.

It needs no data and trains nothing. For published presets it does what a run does for each block,
with a ledger and a journal on the disk, for blocks of the most rounds there are. Before a block it
reckons what the budget allows, reserves that in the ledger, draws the bits and puts them on the
device, and after it the ledger settles: meanwhile the devices wait. What comes before could be done
while another block is computed, as the digests of the bits are, which are timed too: its sum is
what drawing ahead would gain at most. The record is results/between_blocks.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import secrets
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import common
from dpgen_jax import methods, presets
from dpgen_jax.accountant.journal import Journal
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import Method
from dpgen_jax.private.teachers import Layout, spread
from dpgen_jax.run import capacity, loop, noise_digests
from dpgen_jax.run.calibrate_config import complete, with_records

ROWS = (("datalens", "mnist-eps1"), ("gpate", "mnist-eps1-sum"), ("gswgan", "mnist-published"),
        ("dpgan", "mnist-eps10-published"), ("dpcgan", "mnist-eps10-published"))
AHEAD = ("afford", "reserve", "draw", "send")
"""The parts that come before a block."""
STEPS = 1000
"""Steps of a preset that leaves them open."""


class Clock:
    """Seconds of parts of the work, by name, in the order in which they came."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time what is done within."""
        begun = time.perf_counter()
        yield
        self.seconds[part].append(time.perf_counter() - begun)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all rows, write the record and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--blocks", type=int, default=10, help="blocks that are timed, of each row")
    parser.add_argument("--out", help="the results file")
    args = parser.parse_args(arguments)
    where, rows = common.machine(), []
    for method, preset in ROWS:
        with tempfile.TemporaryDirectory(prefix="between-blocks-") as place:
            row = {"method": method, "preset": preset,
                   **measured(*built(method, preset), Path(place), args.blocks)}
        rows.append(row)
        print(f"{method} {preset}: {1e3 * row['seconds_ahead']:.1f} ms before a block of "
              f"{row['rounds']} rounds, with {row['bytes']:,} bytes of bits", flush=True)
    common.write(common.record("between_blocks", [f"--blocks={args.blocks}"], [], {"rows": rows},
                               where), args.out)
    return 0


def built(method: str, preset: str) -> tuple[Method, Layout]:
    """Return a published method with its noise, and how its units would lie."""
    _, chosen = presets.get(method, preset)
    config = with_records(chosen.config, chosen.records)
    if config.steps is None:
        config = dataclasses.replace(config, steps=STEPS)
    # A sigma that is given may prove less than the preset says; a block is the same.
    epsilon = chosen.epsilon if config.sigma is None else math.inf
    config = complete(method, config, chosen.spec, Budget(epsilon, chosen.delta))
    runtime = Runtime(moments="bfloat16")
    made = methods.get(method).build(config, chosen.spec, runtime)
    return made, capacity.choose_layout(made, runtime)


def measured(method: Method, layout: Layout, root: Path, blocks: int) -> dict[str, Any]:
    """Time so many blocks, after one that does not count; their files lie in `root`."""
    os.environ["DPGEN_STATE"] = str(root / "journal")
    witness = Journal(root / "journal").witness(secrets.token_hex(16), secrets.token_hex(16), True,
                                                root)
    header = {"epsilon": math.inf, "delta": 1e-5, "config_hash": secrets.token_hex(32)}
    clock, key = Clock(), secrets.token_bytes(32)

    def noted(first: int, bits: list[np.ndarray]) -> None:
        noise_digests.append(root / "digests", key, first, bits)

    with Ledger.create(root / "ledger.jsonl", header, witness) as ledger:
        job = loop.Job(method, layout, ledger, OsBits())
        for left in range(1 + blocks, 0, -1):
            n, size = block(job, left, clock, noted)
    timed = {part: common.timing(seconds[1:]) for part, seconds in clock.seconds.items()}
    ahead = sum(timed[part]["median"] for part in AHEAD)
    return {"rounds": n, "bytes": size, "seconds": timed, "seconds_ahead": ahead}


def block(job: loop.Job, left: int, clock: Clock, noted: Callable) -> tuple[int, int]:
    """Do what is done for the first of the blocks that are left, but for its rounds."""
    mechanism, ledger, first = job.method.mechanism, job.ledger, job.ledger.steps_charged
    with clock("afford"):
        n = loop.affordable(job.method, ledger, job.longest, left * job.longest + 1)
    with clock("reserve"):
        charged = mechanism.pending_charge(ledger.spent(), first, n)
        ticket = ledger.reserve(charged, n)
    with clock("draw"):
        source = noise_digests.Remembered(job.bits)
        draws = loop.draw(mechanism, job.layout, source, first, n, job.longest)
    with clock("send"):
        jax.block_until_ready([
            spread(draws.private_inputs, job.layout),
            *(jax.device_put(array, job.layout.replicated) for array in draws[1:])])
    with clock("digest"):
        noted(first, loop.secret_bits(mechanism, draws, source.drawn, n))
    with clock("settle"):
        ledger.settle(ticket, charged, n)
    return n, sum(array.nbytes for array in draws)


if __name__ == "__main__":
    raise SystemExit(main())
