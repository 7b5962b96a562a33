"""Convolutions as matrix products against the backend's own, in the shapes of the presets.

    python -m benchmarks.convolutions [--units 8] [--repeats 7] [--cases CASE ...]

Each case is a convolution of `nets.convolution` with the input of one published network for MNIST.
Measured is what a training step takes of it: the value and the gradients with respect to input and
kernel, under `vmap` over units with a kernel each (networks of units) or with one kernel (public
ones), inside a compiled loop. Both forms are timed in turns. A backend belongs in
`nets.convolution.FASTER_ON` if the backend's own form is the faster one in total. The record is
written after every case, and a measurement that was stopped goes on with the next one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import common
from dpgen_jax.cli import terminal
from dpgen_jax.nets import convolution
from dpgen_jax.nets.convolution import Convolution

FORMS = ("product", "backend")
ITERATIONS = 4
"""passes of the compiled loop in one call"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A convolution with the shapes of one unit, or of a public network's batch."""

    form: Convolution
    x: tuple[int, ...]
    kernel: tuple[int, ...]
    per_unit: bool


CASES = {
    "datalens discriminator, first": Case(
        convolution.convolve_image, (15, 28, 28, 1), (5, 5, 1, 11), True),
    "datalens discriminator, second": Case(
        convolution.convolve, (15, 7, 7, 44), (5, 5, 11, 42), True),
    "gs-wgan critic, first": Case(
        convolution.convolve_image, (64, 28, 28, 1), (5, 5, 1, 64), True),
    "gs-wgan critic, second": Case(
        convolution.convolve, (64, 7, 7, 256), (5, 5, 64, 128), True),
    "datalens generator, first": Case(
        convolution.deconvolve, (165, 7, 7, 138), (5, 5, 128, 138), False),
    "datalens generator, second": Case(
        convolution.deconvolve, (165, 14, 14, 138), (5, 5, 1, 138), False),
    "gs-wgan generator, doubled": Case(
        convolution.convolve3_doubled, (64, 8, 8, 256), (3, 3, 256, 256), False),
    "gs-wgan generator, 3x3": Case(
        convolution.convolve3, (64, 16, 16, 256), (9 * 256, 256), False),
    "gs-wgan generator, last": Case(
        convolution.convolve3_few, (64, 32, 32, 256), (3, 3, 256, 1), False),
    "dp-merf generator, 5x5": Case(
        convolution.convolve_valid, (100, 18, 18, 16), (5, 5, 16, 8), False),
    "judging cnn, 3x3": Case(
        convolution.convolve_valid, (64, 13, 13, 32), (3, 3, 32, 64), False),
}


def step(apply: Callable[[Any, Any], Any], per_unit: bool, x: Any, kernel: Any) -> Any:
    """Passes over the same input, each with the kernel that the gradients of the last one left."""
    def loss(x: Any, kernel: Any) -> Any:
        return jnp.sum(apply(x, kernel) ** 2)

    grads = jax.grad(loss, (0, 1))
    grads = jax.vmap(grads) if per_unit else grads

    def one(_: Any, state: Any) -> Any:
        g_x, g_kernel = grads(*state)
        return state[0] - 1e-6 * g_x, state[1] - 1e-6 * g_kernel

    return jax.lax.fori_loop(0, ITERATIONS, one, (x, kernel))


def arrays(case: Case, units: int) -> tuple[Any, Any]:
    lead = (units,) if case.per_unit else ()
    k_x, k_kernel = jax.random.split(jax.random.key(0))
    return (jax.random.normal(k_x, lead + case.x),
            0.05 * jax.random.normal(k_kernel, lead + case.kernel))


def measured(name: str, units: int, repeats: int) -> dict[str, Any]:
    """The seconds of both forms of a case, and their ratio: above 1, the product is faster."""
    case = CASES[name]
    inputs = arrays(case, units)
    forms = {form: functools.partial(
        jax.jit(functools.partial(step, getattr(case.form, form), case.per_unit)), *inputs)
        for form in FORMS}
    timed = common.side_by_side(forms, repeats)
    medians = {form: timed[form]["median"] for form in FORMS}
    return {"x": case.x, "kernel": case.kernel, "per_unit": case.per_unit, "seconds": timed,
            "ratio": medians["backend"] / medians["product"]}


def summary(cases: dict[str, Any], units: int) -> dict[str, Any]:
    """The results of the cases so far, with totals of both forms."""
    totals = {form: sum(case["seconds"][form]["median"] for case in cases.values())
              for form in FORMS}
    return {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind,
            "units": units, "iterations": ITERATIONS, "cases": cases,
            "not_measured": [name for name in CASES if name not in cases],
            "total_seconds": totals, "ratio": totals["backend"] / totals["product"],
            "faster": min(totals, key=lambda form: totals[form])}


def main(argv: list[str]) -> None:
    script = common.Script("convolutions", __doc__)
    script.add_argument("--units", type=int, default=8)
    script.add_argument("--repeats", type=int, default=7)
    script.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES),
                        metavar="CASE", help="names of cases; all if left out")
    args, backend = script.begin(argv), jax.default_backend()
    stem = "convolutions" if backend == "cpu" else f"convolutions-{backend}"
    before = script.earlier(stem)  # of a measurement that was stopped, with as many units
    goes_on = before.get("not_measured") and before["units"] == args.units
    cases = dict(before["cases"]) if goes_on else {}
    for name in (name for name in args.cases if name not in cases):
        cases[name] = measured(name, args.units, args.repeats)
        print(f"{name:32} backend / product {cases[name]['ratio']:.2f}", flush=True)
        script.save(summary(cases, args.units), [0], stem)


if __name__ == "__main__":
    terminal.main(main)
