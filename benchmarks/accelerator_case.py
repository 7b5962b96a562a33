"""One row of `benchmarks.accelerator` in a process: `python -m benchmarks.accelerator_case JSON`.

The last line of its output has the measurements as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from benchmarks.step_case import Library
from benchmarks.step_profile import seconds_by_kind
from benchmarks.traced_flops import traced_flops
from dpgen_jax import methods, presets
from dpgen_jax.core.config import Budget, Compute, Runtime
from dpgen_jax.core.types import Method, Private, Records
from dpgen_jax.private import teachers
from dpgen_jax.run import capacity
from dpgen_jax.run.calibrate_config import complete
from dpgen_jax.run.capacity import units_in_precision


@dataclasses.dataclass(frozen=True)
class Case:
    """A timed preset, with this share of its units."""

    method: str
    preset: str
    share: float
    moments: str
    chunk: int
    repeats: int
    seed: int
    matmul: int
    copy_bytes: int
    compute: Compute = "float32"


def built(case: Case) -> tuple[Method, Any, tuple[int, int]]:
    """Return the method, the preset, and how many units have how many records each.

    Raises:
      SystemExit: Where the units' state does not fit into memory.
    """
    _, preset = presets.get(case.method, case.preset)
    field = "critics" if hasattr(preset.config, "critics") else "teachers"
    units = getattr(preset.config, field)
    count = max(getattr(preset.config, "bins", 1), round(case.share * units))
    # No budget: what is timed is a step, however many of them are proven to be affordable.
    config = complete(case.method,
                      dataclasses.replace(preset.config, steps=10, **{field: count}),
                      preset.spec, Budget(float("inf"), preset.delta))
    method = units_in_precision(methods.get(case.method).build(
        config, preset.spec, Runtime(moments=case.moments)), case.compute)
    needed, free = teachers.unit_bytes(method) * count, common.available_bytes()
    if jax.default_backend() == "cpu" and free is not None and needed + 2**29 > free:
        raise SystemExit(f"the units' state takes {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are "
                         "available; time fewer of them with --share")
    return method, preset, (count, preset.records // units)


def unit_flops(method: Method, records: Records, local_steps: int) -> int:
    """Count the operations of one unit in one round: it learns, answers, and is bounded.

    Args:
      method: The method.
      records: Of all units.
      local_steps: How many steps its network takes in a round after the first.
    """
    key = jax.random.key(0)
    query = jax.eval_shape(method.ask, key, jax.eval_shape(method.init, key))
    unit = jax.eval_shape(functools.partial(teachers.one_unit, method, key), jnp.int32(0))
    own = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), records)
    private_input = jnp.zeros(0, jnp.int32)  # no unit is sampled
    return traced_flops(functools.partial(teachers.query_unit, method), unit, own, query,
                        jnp.int32(1), private_input, loop_length=local_steps)


def rooflines(case: Case) -> dict[str, float]:
    """Measure what this device does at most: float32 and bfloat16 products, and a copy.

    Returns:
      Operations a second of batched products of each type, and
      bytes read and written a second by a sum of an array and a number.
    """
    size, batch = case.matmul, 8
    result, product = {}, jax.jit(jnp.matmul)
    for dtype in (jnp.float32, jnp.bfloat16):
        a, b = jax.random.normal(jax.random.key(0), (2, batch, size, size)).astype(dtype)
        timed = common.side_by_side({"product": lambda a=a, b=b: product(a, b)}, case.repeats)
        name = f"{jnp.dtype(dtype).name}_flops_per_second"
        result[name] = 2 * batch * size**3 / min(timed["product"]["all"])
    x = jnp.zeros(case.copy_bytes // 4, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    timed = common.side_by_side({"copy": lambda: add(x)}, case.repeats)
    return result | {"copy_bytes_per_second": 2 * x.nbytes / min(timed["copy"]["all"])}


def measured(case: Case) -> dict[str, Any]:
    """Time a step after the first, on random records, between two measurements of the rooflines."""
    method, preset, shape = built(case)
    rng = np.random.default_rng(case.seed)
    records = Records(rng.integers(0, 256, (*shape, *preset.spec.shape), np.uint8),
                      rng.integers(0, preset.spec.classes, shape, np.int32))
    layout = capacity.choose_layout(method, Runtime(chunk=case.chunk),
                                    records=jax.tree.map(lambda a: a[0], records))
    config = preset.config
    local_steps = config.critic_steps if hasattr(config, "critic_steps") else config.d_steps
    before, flops = rooflines(case), unit_flops(method, records, local_steps)
    whole = Library(method, Private(records), jax.random.key(case.seed), layout, case.seed)
    step = common.side_by_side({"step": whole.step}, case.repeats)["step"]
    after = rooflines(case)
    best = {name: max(before[name], after[name]) for name in before}
    queried = -(-shape[0] // layout.n_cohorts)
    parts = {} if layout.devices[0].platform != "cpu" else {"seconds_by_kind": seconds_by_kind(
        whole.step, whole.block.lower(*whole.arguments(1)).compile().as_text(), queried)}
    traffic = queried * (2 * teachers.unit_bytes(method) + records.x[0].nbytes)
    seconds = step["median"]
    return {
        "seconds_per_step": step, "units": shape[0], "units_queried_a_step": queried,
        "records_per_unit": shape[1], "chunk": layout.chunk, "devices": len(layout.devices),
        "device": layout.devices[0].device_kind, "backend": jax.default_backend(),
        "flops_per_step": flops * queried, "bytes_per_step": traffic, "rooflines": best,
        "of_float32_products": flops * queried / seconds / best["float32_flops_per_second"],
        "of_copies": traffic / seconds / best["copy_bytes_per_second"],
        "compile_seconds": whole.compile_seconds, "compilations": whole.compilations, **parts}


def main() -> None:
    """Measure the case of the command line and print it as JSON."""
    print(json.dumps(measured(Case(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
