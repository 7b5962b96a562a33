"""Time of gradients of single records, beside one gradient of their mean and beside other ways.

    python -m benchmarks.gradients
    python -m benchmarks.gradients --opacus        # the same networks in PyTorch, if it is there

The ways, timed in turns on the same discriminator and batch, are `plain`, the gradient of the mean,
as a run without privacy takes it; `records`, the library's: per-record gradients by `vmap`, clipped
and rounded to integers that are checked and summed, a few records at a time; and `ghost`, norms
first and then one gradient of the clipped losses' sum (Li, Tramer, Liang and Hashimoto, ICLR 2022),
which needs less memory, and sums floats: no bound on it is proven, so that the library uses it on
fakes alone, which are public. The record is results/gradients.json.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from benchmarks import common
from dpgen_jax.aggregation.clip import MOST_GRADIENT_LEVELS, GradientL2
from dpgen_jax.core.types import Array, ImageSpec
from dpgen_jax.methods.shared.dpsgd import length
from dpgen_jax.nets.pair import Conv, ConvNet, Mlp

SPEC = ImageSpec(28, 28, 1, 10)
NETS = {"conv-16-32": Conv(ConvNet(16, 32), SPEC), "conv-32-64": Conv(ConvNet(32, 64), SPEC),
        "mlp-128": Mlp((128,), SPEC)}


def of_record(net: Any, d: Any, x: Array, y: Array) -> Any:
    """Return the gradient on one record."""
    return jax.grad(lambda d: jax.nn.softplus(-net.apply(d, x[None], y[None]))[0])(d)


def in_chunks(n: int, chunk: int, one: Callable, zero: Any) -> Any:
    """Return the sum of one(first record) over chunks."""
    return lax.fori_loop(0, n // chunk, lambda i, t: jax.tree.map(
        jnp.add, t, one(i * chunk)), zero)


def ways(net: Any, n: int, chunk: int) -> dict[str, Callable[[], Any]]:
    """Return compiled functions without arguments, of the same parameters and records."""
    d = net.init(jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (n, *SPEC.shape))
    y = jnp.arange(n) % SPEC.classes
    bound = GradientL2(1.0, length(net), MOST_GRADIENT_LEVELS)

    def part(first):
        return (lax.dynamic_slice_in_dim(x, first, chunk),
                lax.dynamic_slice_in_dim(y, first, chunk))

    def plain(d):
        def one(first):
            return jax.grad(lambda d: jnp.sum(jax.nn.softplus(-net.apply(d, *part(first)))))(d)

        return in_chunks(n, chunk, one, jax.tree.map(jnp.zeros_like, d))

    def records(d):
        def one(first):
            rows = lax.optimization_barrier(jax.vmap(
                lambda x, y: ravel_pytree(of_record(net, d, x, y))[0][None])(*part(first)))
            return jax.vmap(lambda row: bound.project(None, row))(rows).sum(0)

        return in_chunks(n, chunk, one, jnp.zeros((1, bound.columns), jnp.int32))

    def ghost(d):
        def one(first):
            x, y = part(first)
            norms = jax.vmap(lambda x, y: jnp.sqrt(sum(
                jnp.sum(g * g) for g in jax.tree.leaves(of_record(net, d, x, y)))))(x, y)
            share = jnp.minimum(1, 1 / norms)
            return jax.grad(lambda d: jnp.sum(share * jax.nn.softplus(-net.apply(d, x, y))))(d)

        return in_chunks(n, chunk, one, jax.tree.map(jnp.zeros_like, d))

    return {way.__name__: functools.partial(jax.jit(way), d) for way in (plain, records, ghost)}


def torch_networks() -> dict[str, Callable[[], Any]]:
    """Return networks of NETS in PyTorch, as functions of (images, labels)."""
    import torch
    from torch.nn import functional

    class Mlp128(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear0, self.linear1 = torch.nn.Linear(794, 128), torch.nn.Linear(138, 1)

        def forward(self, x, y):
            onehot = functional.one_hot(y, SPEC.classes).float()
            h = self.linear0(torch.cat([x.flatten(1), onehot], 1))
            return self.linear1(torch.cat([functional.leaky_relu(h, 0.2), onehot], 1))[:, 0]

    class Conv1632(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(1, 16, 5, stride=2)
            self.conv2 = torch.nn.Conv2d(16, 32, 5, stride=2)
            self.score = torch.nn.Linear(49 * 32, 1)
            self.classes = torch.nn.Embedding(SPEC.classes, 49 * 32)

        def forward(self, x, y):
            same = (1, 2, 1, 2)
            h = functional.leaky_relu(self.conv1(functional.pad(x, same)), 0.2)
            h = functional.leaky_relu(self.conv2(functional.pad(h, same)), 0.2).flatten(1)
            return self.score(h)[:, 0] + (h * self.classes(y)).sum(1)

    return {"conv-16-32": Conv1632, "mlp-128": Mlp128}


def opacus(n: int, repeats: int) -> dict[str, Any]:
    """Time the same networks in PyTorch, plain and with Opacus' per-record gradients.

    Returns:
      The versions and the seconds, or {"skipped": reason}. The sums are float32 and not checked.
    """
    try:
        import torch
        from opacus import GradSampleModule
    except ImportError as error:
        return {"skipped": f"{error.name} is not installed; pip install torch opacus"}
    torch.set_num_threads(common.cores())
    x, y = torch.rand(n, 1, 28, 28), torch.arange(n) % SPEC.classes

    def step(model):
        model.zero_grad()
        torch.nn.functional.softplus(-model(x, y)).sum().backward()

    def clipped(model):
        step(model)
        grads = [p.grad_sample.flatten(1) for p in model.parameters()]
        share = (1 / torch.cat([g.norm(dim=1, keepdim=True) for g in grads], 1).norm(dim=1)).clamp(
            max=1)
        clipped_sums = [share @ g for g in grads]
        for p in model.parameters():
            p.grad_sample = None
        return float(clipped_sums[0].sum())

    def plain(model):
        step(model)
        return float(next(model.parameters()).grad.sum())

    return {"versions": {"torch": torch.__version__,
                         "opacus": importlib.metadata.version("opacus")},
            **{name: common.side_by_side(
                {"plain": functools.partial(plain, make()),
                 "records": functools.partial(clipped, GradSampleModule(make()))}, repeats)
               for name, make in torch_networks().items()}}


def main(argv: list[str] | None = None) -> None:
    script = common.Script("gradients", __doc__)
    script.add_argument("--batch", type=int, default=640)
    script.add_argument("--chunk", type=int, default=64)
    script.add_argument("--repeats", type=int, default=7)
    script.add_argument("--nets", nargs="+", default=list(NETS), choices=NETS)
    script.add_argument("--opacus", action="store_true")
    args, results = script.begin(argv), dict[str, Any]()
    for name in args.nets:
        timed = common.side_by_side(ways(NETS[name], args.batch, args.chunk), args.repeats)
        plain = timed["plain"]["median"]
        results[name] = {"parameters": length(NETS[name]), "seconds": timed, "ratio_to_plain": {
            way: t["median"] / plain for way, t in timed.items()}}
        print(name, results[name]["ratio_to_plain"], flush=True)
    if args.opacus:
        results["opacus"] = opacus(args.batch, args.repeats)
    print(script.save(results, [0]))


if __name__ == "__main__":
    main()
