"""Time and memory of data-dependent PATE accounting: `python -m benchmarks.pate_accounting`.

It needs no data: votes are simulated, with class probabilities of each query from a symmetric
Dirichlet distribution, whose concentration decides how far the teachers agree, and a multinomial
vote of all of them. Measured are, in one process without JAX,

- the composition of a whole run of Confident-GNMax over a grid of orders: as simulated, and with
  teachers that hardly agree (concentration 1) and every query answered, where few votes are alike;
- the smooth sensitivity of a (shorter) run at one order, and the content of a sanitised release:
  the private total, the smooth sensitivity, the cost of the release itself, the bound with both
  noises at their means, and the data-independent total beside them. The totals are private in a
  real run; here no votes are real;
- wall and processor seconds of each, and the largest resident memory.

The record is results/pate_accounting.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks import common
from dpgen_jax.accountant import pate
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser, smooth_sensitivity, total_rdp


def main(arguments: Sequence[str] | None = None) -> int:
    args, script = parse(arguments)
    print(script.save({"scipy": version("scipy"), "composition": composition(args),
                       "release": release(args), "peak_resident_bytes": common.peak_bytes()},
                      [args.seed]))
    return 0


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, common.Script]:
    script = common.Script("pate_accounting", __doc__)
    script.add_argument("--queries", type=int, default=200_000, help="of the composition")
    script.add_argument("--orders", type=int, default=40)
    script.add_argument("--release-queries", type=int, default=34_000)
    script.add_argument("--teachers", type=int, default=4000)
    script.add_argument("--classes", type=int, default=10)
    script.add_argument("--concentration", type=float, default=0.03)
    script.add_argument("--threshold", type=float, default=2500)
    script.add_argument("--sigma1", type=float, default=600, help="of the threshold test, in votes")
    script.add_argument("--sigma2", type=float, default=100, help="of the vote")
    script.add_argument("--repeats", type=int, default=3)
    script.add_argument("--seed", type=int, default=0)
    return script.begin(arguments), script


def simulate(args: argparse.Namespace, queries: int,
             concentration: float) -> tuple[np.ndarray, np.ndarray]:
    """Return votes int [queries, classes], and the outcomes of the threshold test."""
    rng = np.random.default_rng(args.seed)
    likely = rng.dirichlet(np.full(args.classes, concentration), size=queries)
    counts = rng.multinomial(args.teachers, likely)
    noise = np.rint(args.sigma1 * rng.standard_normal(queries))
    return counts, counts.max(axis=1) + noise >= args.threshold


def composition(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the composition of a whole run at both concentrations."""
    orders, cases = np.geomspace(1.5, 64, args.orders), []
    for concentration in (args.concentration, 1.0):
        counts, answered = simulate(args, args.queries, concentration)
        answered |= concentration == 1.0
        _, seconds = measure(args.repeats, lambda counts=counts, answered=answered:
                             pate.confident_gnmax_rdp(counts, answered, args.threshold, args.sigma1,
                                                      args.sigma2, orders))
        distinct = np.unique(pate.gnmax_log_q(counts[answered], args.sigma2)).size
        cases.append({"queries": args.queries, "orders": args.orders, "distinct_q": distinct,
                      "concentration": concentration, "answered": float(answered.mean()),
                      **seconds})
    return cases


def release(args: argparse.Namespace) -> dict[str, Any]:
    """Time the smooth sensitivity of one run at two orders, with the settings of `Sanitiser`."""
    counts, answered = simulate(args, args.release_queries, args.concentration)
    run = counts, answered, args.threshold, args.sigma1, args.sigma2
    cases = []
    for order in (8, 20):
        sanitiser = Sanitiser(order, beta=0.2 / order, sigma_ss=10, log_sigma=1.5 * order, z=3)
        ss, seconds = measure(1, lambda order=order, beta=sanitiser.beta: smooth_sensitivity(
            *run, order, beta, args.teachers))
        total = total_rdp(*run, order)
        independent = order * (len(counts) / (2 * args.sigma1**2)
                               + np.count_nonzero(answered) / args.sigma2**2)
        placed = sanitiser.place(total, ss, independent)
        cases.append({
            "order": order, "beta": sanitiser.beta, "sigma_ss": sanitiser.sigma_ss,
            "log_sigma": sanitiser.log_sigma, "z": sanitiser.z, "failure": sanitiser.failure,
            "data_independent_rdp": independent, "total_rdp": total, "smooth_sensitivity": ss,
            "own_rdp": sanitiser.rdp(),
            "bound_without_noise": sanitiser.upper_bound(
                placed.total, placed.log, placed.step), **seconds})
    return {"queries": args.release_queries, "answered": float(answered.mean()), "cases": cases}


def measure(repeats: int, work: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Return the last result of `work`, and its wall and processor seconds."""
    wall, processor = [], []
    for _ in range(repeats):
        clock = common.Stopwatch()
        result = work()
        wall.append(clock.seconds())
        processor.append(clock.cpu_seconds())
    return result, {"seconds": common.timing(wall), "processor_seconds": common.timing(processor)}


if __name__ == "__main__":
    raise SystemExit(main())
