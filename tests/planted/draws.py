"""Noise and secret draws as a run uses them: fresh bits for each number, and laws as charged."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.noise import OsBits, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FixedSizeSampling, FullParticipation, PoissonSampling
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.audit.findings import ALARM
from dpgen_jax.run import loop
from planted import toy

ROUNDS = 400
"""rounds whose samples are looked at"""


class NoBits(SeededBits):
    """Bits of 0, of which every noise makes 0."""

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns zeros."""
        return np.zeros(shape, np.uint32)


def fresh(devices: int = 1) -> str:
    """Looks at the noise of a run that is resumed: what it released, less what it would have.

    Returns where noise is used twice or has another spread.
    """
    where = toy.layout(2 if devices == 1 else 1, devices)
    method, data = toy.build(), toy.neighbours()[0]
    half = toy.STEPS // 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger")
        state, _ = toy.train(path, method, data, where, bits=OsBits(), steps=half,
                                   steps_per_call=3)
        with Ledger.open(path) as ledger, patch.object(loop, "compile_block", toy.block):
            job = loop.Job(method, where, ledger, OsBits(), 3)
            state = loop.train(job, toy.placed(data, where), state, toy.STEPS)
        seen = np.asarray(state.public.seen)
        previous = seen.copy()
        previous[-1] = 0  # which the first query reads, when nothing is there yet
        silent, _ = toy.train(Path(folder, "silent"), method, data, where, planted=previous,
                                    bits=NoBits(0))
    rows = (seen - np.asarray(silent.public.seen)).reshape(-1, toy.SHAPE[1])
    if again := len(rows) - len(np.unique(rows, axis=0)):
        return f"{again} of {len(rows)} rows have the noise of another"
    spread, slack = rows.std() / toy.SIGMA, 6 / math.sqrt(2 * rows.size)
    return "" if abs(spread - 1) < slack else (
        f"noise has {spread:.3g} of the standard deviation that is charged, of {rows.size} numbers")


def fresh_on_devices() -> str:
    """Returns what `fresh` finds on two devices."""
    return fresh(2)


def of_clients() -> str:
    """Returns which clients that add noise themselves have the same bits."""
    local = LocalMechanism(
        bound=TopKSign(toy.TOP_K, toy.ROWS), noise=RoundedGaussian(toy.SIGMA),
        schedule=FullParticipation(), n_units=toy.UNITS, shape=toy.SHAPE,
        decode=lambda noised, n: noised.astype(jnp.float32))
    bits = local.private_inputs(OsBits(), np.zeros(3, np.int32), 0)
    rows = bits.reshape(-1, bits.shape[-2] * bits.shape[-1])
    again = len(rows) - len(np.unique(rows, axis=0))
    return f"{again} of {len(rows)} rows of noise bits are another's" if again else ""


def secret() -> str:
    """Returns where secret draws can be foretold, or have another law than is charged."""
    return _poisson(PoissonSampling(60, 12)) or _fixed(FixedSizeSampling(40, 8))


def _poisson(schedule: PoissonSampling) -> str:
    """The sizes of Poisson samples: each is binomial."""
    drawn, again = (schedule.participation(OsBits(), schedule.units, 0, ROUNDS) for _ in "ab")
    if np.array_equal(drawn, again):
        return "PoissonSampling draws the same units for the same rounds: anybody can foretell them"
    sizes = (drawn >= 0).sum(0)
    rate = schedule.rate
    variance = schedule.units * rate * (1 - rate)
    spread = float(((sizes - schedule.units * rate)**2).sum() / variance)
    low, high = (float(chi2.isf(p, ROUNDS)) for p in (1 - ALARM / 4, ALARM / 4))
    return "" if 0.8 * low < spread < 1.2 * high else (
        f"sizes of Poisson samples have {spread / ROUNDS:.3g} of their variance")


def _fixed(schedule: FixedSizeSampling) -> str:
    """Samples of fixed size: each has it, and others are drawn each time."""
    drawn, again = (schedule.participation(OsBits(), schedule.units, 0, ROUNDS) for _ in "ab")
    if np.array_equal(drawn, again):
        return ("FixedSizeSampling draws the same units for the same rounds: anybody can foretell "
                "them")
    return "" if (drawn.sum(0) == schedule.sampled).all() else "samples have another size"
