"""Operations of a GS-WGAN round whose critics share a pool of fakes, or draw their own anew.

    python -m benchmarks.fakes [--answering 1 143]

Two parts of a round of the preset `mnist-published` are lowered, each with a pool of 32 fakes a
class and with none, and XLA counts their operations without compiling them: the query, which
generates the pool, and one step of one critic, which draws 32 fakes from the pool or generates
them, as in Algorithm 1 (`methods/shared/critics.py`). A round with n critics is one query and n
times
5 steps. The record is results/fakes.json.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import common
from dpgen_jax import presets
from dpgen_jax.cli import terminal
from dpgen_jax.core.types import Records
from dpgen_jax.methods import gswgan

RECORDS = 60
POOLS = {"pool": 32, "anew": 0}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--answering", type=int, nargs="+", default=[1, 143],
                        help="critics that answer in a round")
    parser.add_argument("--out")
    return parser.parse_args()


def operations(pool: int) -> dict[str, float]:
    """Return the operations of a query and of one critic step.

    XLA counts the body of a loop once, whatever the number of its turns.
    """
    _, preset = presets.get("gswgan", "mnist-published")
    config = dataclasses.replace(preset.config, warm_steps=0, pool=pool)
    method, key = gswgan.build(config, preset.spec), jax.random.key(0)
    records = Records(jnp.zeros((RECORDS, *preset.spec.shape), jnp.uint8),
                      jnp.zeros(RECORDS, jnp.int32))
    public, unit = jax.eval_shape(method.init, key), jax.eval_shape(method.init_unit, key)
    query = jax.eval_shape(method.ask, key, public)
    lowered = {"query": jax.jit(method.ask).lower(key, public),
               "critic step": jax.jit(method.learn).lower(key, unit, records, query)}
    return {name: float(part.cost_analysis()["flops"]) for name, part in lowered.items()}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Count both ways, and add the parts up for each number of critics."""
    counted = {name: operations(pool) for name, pool in POOLS.items()}
    steps = presets.get("gswgan", "mnist-published")[1].config.critic_steps
    rounds = {str(n): {name: part["query"] + n * steps * part["critic step"]
                       for name, part in counted.items()} for n in args.answering}
    return {"operations": counted, "operations_of_a_round": rounds,
            "ratio": {n: row["anew"] / row["pool"] for n, row in rounds.items()}}


def main() -> None:
    """Run the benchmark and write its record."""
    args = arguments()
    where = common.machine()
    out = args.out or common.RESULTS / "fakes.json"
    print(common.write(common.record("fakes", [], [], measure(args), where), out))


if __name__ == "__main__":
    terminal.main(lambda argv: main())
