"""Published steps beside what the device can do: `python -m benchmarks.accelerator`.

It needs no data. Timed is a step after the first, in the run's own block, of the published
DataLens, G-PATE and GS-WGAN presets with random records. Each row runs in a process of its own, in
which the rooflines are measured before and after: batched matrix products in float32 and bfloat16,
and a copy. Beside the seconds stand

- the operations of the products that the step asks for, counted in its jaxpr (those of the
  generator, the optimisers and the votes are not counted), as a share of the float32 products';
- the bytes that it must move at least (each queried unit's state read and written, its records
  read), as a share of the copy's.

A step near neither is limited by something else: small products, launches, or the aggregation. With
`--share` below 1 fewer teachers are timed, which the record marks. Rows with the same flags on the
same kind of device are kept, so that it goes on where it stopped. On two cores `--share .01` takes
some minutes. The record is results/accelerator.json; those of other devices, accelerator-NAME.json,
stand in the same table.
"""

import collections
import functools
import gzip
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import common, engine
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Method, Records
from dpgen_jax.private import teachers
from dpgen_jax.run import capacity
from dpgen_jax.run.capacity import inner_jaxprs

# Floating-point operations of any function, counted in its jaxpr.
#
# Counted are matrix products and convolutions, a multiplication and an addition as two; what is
# done element by element is not.

def traced_flops(function: Callable, *shapes: Any, loop_length: int | None = None) -> int:
    return _count(jax.make_jaxpr(function)(*shapes).jaxpr, loop_length)


def _count(jaxpr: Any, loop_length: int | None) -> int:
    return sum(_of(equation, loop_length) for equation in jaxpr.eqns)


def _of(equation: Any, loop_length: int | None) -> int:
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * math.prod(out.shape) * math.prod(shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        out_channels = equation.params["dimension_numbers"].rhs_spec[0]
        return 2 * math.prod(out.shape) * math.prod(kernel) // kernel[out_channels]
    inner = [_count(jaxpr, loop_length) for jaxpr in inner_jaxprs(equation.params)]
    if name == "cond":
        return max(inner)
    if name != "while" or not any(inner):
        return sum(inner) * (equation.params["length"] if name == "scan" else 1)
    if loop_length is None:
        raise ValueError("a loop with products has no length that is known before it runs")
    return sum(inner) * loop_length


# The time of a step on a CPU by kind of instruction: JAX's profiler over one call of a block.
#
# XLA's profiler times each instruction of a compiled program. An instruction is sorted by what it
# does, as the program's text says: that of a fusion by all that is fused in it.

LAYOUT = frozenset({"concatenate", "copy", "transpose", "pad", "slice", "gather", "reverse"})
"""Instructions that only move values."""
_NESTED = frozenset({"while", "call", "conditional", "tuple", "get-tuple-element", "parameter"})
"""Instructions that contain others, or that take no time."""
_FREE = frozenset({"bitcast", "reshape", "broadcast", "constant", "iota", "parameter", "fusion",
                   "tuple"})
"""Opcodes that say nothing about the kind of a fusion."""
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (?:\([^=]*\)|\S+) ([a-z-]+)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%([\w.-]+)")


def kinds(program: str) -> dict[str, str]:
    """Sort the instructions of a compiled program.

    Returns:
      By the instruction's name: "products" of matrices, "stack" where one unit's state is read from
      that of all or written to it, "layout" for copies and gathers, or "passes" over values, which
      are what is left.
    """
    inside: dict[str, set[str]] = collections.defaultdict(set)
    found: list[tuple[str, str, str | None]] = []
    computation = ""
    for line in program.splitlines():
        if line.startswith(("%", "ENTRY")):
            computation = line.split()[int(line.startswith("ENTRY"))].lstrip("%")
        elif match := _INSTRUCTION.match(line):
            name, opcode = match.groups()
            called = _CALLED.search(line) if opcode == "fusion" else None
            inside[computation].add(opcode)
            found.append((name, opcode, called.group(1) if called else None))
    return {name: _kind({opcode} | inside.get(called or "", set()))
            for name, opcode, called in found if opcode not in _NESTED}


def _kind(opcodes: Iterable[str]) -> str:
    opcodes = set(opcodes) - _FREE
    if opcodes & {"dot", "convolution"}:
        return "products"
    if opcodes & {"dynamic-slice", "dynamic-update-slice"}:
        return "stack"
    return "layout" if opcodes and opcodes <= LAYOUT else "passes"


def seconds_by_kind(step: Callable[[], Any], program: str, units: int) -> dict[str, float]:
    """Time the instructions of one step that are executed for each unit.

    Args:
      units: How many units it queries: what is executed less often is of the public half. Of one
        unit the two cannot be told apart.

    Returns:
      Seconds by kind, see `kinds`; "public" is the half that all units share.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            jax.block_until_ready(step())
        trace, = Path(folder).rglob("perfetto_trace.json.gz")
        with gzip.open(trace) as file:
            events = json.load(file)["traceEvents"]
    spent, times = collections.Counter(), collections.Counter()
    for event in events:
        if event.get("ph") == "X":
            spent[event["name"]] += event["dur"] / 1e6
            times[event["name"]] += 1
    result = dict.fromkeys(("products", "stack", "layout", "passes", "public"), 0.0)
    for name, kind in kinds(program).items():
        result[kind if times[name] >= units else "public"] += spent[name]
    return result


# One row, in a process of its own.

def unit_flops(method: Method, records: Records, local_steps: int) -> int:
    """Count the operations of one unit in one round: it learns, answers, and is bounded.

    Args:
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


def rooflines(case: dict[str, Any]) -> dict[str, float]:
    """Measure what this device does at most in a second.

    Returns:
      Operations of batched float32 and bfloat16 products, and bytes read and written by a copy.
    """
    size, batch = case["matmul"], 8
    result, product = {}, jax.jit(jnp.matmul)
    for dtype in (jnp.float32, jnp.bfloat16):
        a, b = jax.random.normal(jax.random.key(0), (2, batch, size, size)).astype(dtype)
        timed = common.side_by_side({"product": lambda a=a, b=b: product(a, b)}, case["repeats"])
        name = f"{jnp.dtype(dtype).name}_flops_per_second"
        result[name] = 2 * batch * size**3 / min(timed["product"]["all"])
    x = jnp.zeros(case["copy_bytes"] // 4, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    timed = common.side_by_side({"copy": lambda: add(x)}, case["repeats"])
    return result | {"copy_bytes_per_second": 2 * x.nbytes / min(timed["copy"]["all"])}


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Time a step after the first, on random records, between two measurements of the rooflines.

    Args:
      case: `method` and `preset` with a `share` of the units, `moments` and `compute`, `chunk`,
        `repeats`, `seed`, and the sizes of the rooflines, `matmul` and `copy_bytes`.
    """
    p = engine.problem(case["method"], case["preset"], share=case["share"],
                       moments=case["moments"], compute=case["compute"], seed=case["seed"])
    units, each = p.records.y.shape
    layout = capacity.choose_layout(p.method, Runtime(chunk=case["chunk"]),
                                    records=jax.tree.map(lambda a: a[0], p.records))
    before = rooflines(case)
    flops = unit_flops(p.method, p.records, getattr(p.config, "critic_steps", None)
                       or p.config.d_steps)
    whole = p.library(layout)
    step = common.side_by_side({"step": whole.step}, case["repeats"])["step"]
    after = rooflines(case)
    best = {name: max(before[name], after[name]) for name in before}
    queried = -(-units // layout.n_cohorts)
    parts = {} if layout.devices[0].platform != "cpu" else {"seconds_by_kind": seconds_by_kind(
        whole.step, whole.block.lower(*whole.arguments(1)).compile().as_text(), queried)}
    traffic = queried * (2 * teachers.unit_bytes(p.method) + p.records.x[0].nbytes)
    seconds = step["median"]
    return {
        "seconds_per_step": step, "units": units, "units_queried_a_step": queried,
        "records_per_unit": each, "chunk": layout.chunk, "devices": len(layout.devices),
        "device": layout.devices[0].device_kind, "backend": jax.default_backend(),
        "flops_per_step": flops * queried, "bytes_per_step": traffic, "rooflines": best,
        "of_float32_products": flops * queried / seconds / best["float32_flops_per_second"],
        "of_copies": traffic / seconds / best["copy_bytes_per_second"],
        "compile_seconds": whole.compile_seconds, "compilations": whole.compilations, **parts}


MODULE = "benchmarks.accelerator"
ROWS = {"datalens-mnist": ("datalens", "mnist-eps1"), "gpate-mnist": ("gpate", "mnist-eps1"),
        "gpate-celeba": ("gpate", "gender-l-eps1"), "datalens-celeba": ("datalens", "gender-eps1"),
        "gswgan-mnist": ("gswgan", "mnist-published"),
        "gswgan-celeba": ("gswgan", "gender-published")}


def recorded(pattern: str) -> list[dict[str, Any]]:
    """Return the rows of results files that were measured."""
    return [row for path in sorted(common.RESULTS.glob(pattern))
            for row in common.results(path.stem)["rows"] if "error" not in row]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows that are missing; return 1 where one could not be measured."""
    script = common.Script("accelerator", __doc__)
    script.add_argument("rows", nargs="*", choices=[[], *ROWS], metavar="ROW",
                        help=f"of {', '.join(ROWS)}; all if left out")
    script.add_argument("--share", type=float, default=1.0, help="share of the units")
    script.add_argument("--moments", default="bfloat16", choices=["bfloat16", "float32"])
    script.add_argument("--compute", default="float32", choices=["bfloat16", "float32"],
                        help="as in Runtime")
    script.add_argument("--chunk", type=int, default=0, help="0: as a run chooses it")
    script.add_argument("--repeats", type=int, default=5)
    script.add_argument("--matmul", type=int, default=2048, help="size of the roofline's matrices")
    script.add_argument("--copy-bytes", type=int, default=2**28, help="of the roofline's array")
    script.add_argument("--seed", type=int, default=0)
    script.add_argument("--again", action="store_true", help="measure rows anew that are there")
    args = script.begin(arguments)
    if not 0 < args.share <= 1:
        script.error("--share: above 0, at most 1")
    rows, cpu = script.earlier().get("rows", []), script.where["cpu"]
    flags = ("share", "moments", "chunk", "repeats", "seed", "matmul", "copy_bytes", "compute")
    for name in args.rows or ROWS:
        case = dict(zip(("method", "preset"), ROWS[name], strict=True)) | {
            flag: getattr(args, flag) for flag in flags}
        same = [row for row in rows if (row["case"], row["machine"]) == (case, cpu)]
        if any("error" not in row for row in same) and not args.again:
            continue
        row = {"row": name, "case": case, "machine": cpu, **common.apart(MODULE, case, {})}
        rows = [other for other in rows if other not in same] + [row]
        script.save({"rows": rows}, [args.seed])
        print(json.dumps(row), flush=True)
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    common.entry(main, measured)
