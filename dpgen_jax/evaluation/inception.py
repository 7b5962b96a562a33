"""Features of Inception-v3, from a file of weights that the user brings.

The file is a safetensors file with the names and layouts of pytorch-fid's state dict, such as
`Conv2d_1a_3x3.conv.weight` [out, in, kh, kw] and `Mixed_5b.branch1x1.bn.running_mean` [out].
The published file (github.com/mseitzer/pytorch-fid, release fid_weights) is turned into it by

    import safetensors.torch, torch
    state = torch.load("pt_inception-2015-12-05-6726825d.pth", weights_only=True)
    safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, "fid.safetensors")
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dpgen_jax import reading
from dpgen_jax.nets.inception import FEATURES, SIDE, Inception
from dpgen_jax.types import Array, UserError

BATCH = 32
"""Images at once: the first layers take 20 MB for each."""
REPORT_EVERY = 10
"""Batches between two lines of progress."""
FIELDS = {"kernel": "conv.weight", "scale": "bn.weight", "bias": "bn.bias",
          "mean": "bn.running_mean", "var": "bn.running_var"}
CLASSIFIER = {"fc.weight": (1008, FEATURES), "fc.bias": (1008,)}
"""May be in the file and is not used; 1008 outputs are those of the graph of 2015."""
MEND = ("; expected the weights of the package pytorch-fid, converted as the documentation of "
        "dpgen_jax.evaluation.inception says")


def load(path: Path | str) -> Any:
    """The parameters of `nets.inception.Inception` from a safetensors file.

    The classifier's tensors and the counters `*.num_batches_tracked` are left out. Errors:
    UserError for a file that cannot be read, and naming the first tensor that is missing, unknown,
    of another shape, or not of finite floats.
    """
    reading.require_regular(Path(path))
    try:
        held = safetensors.numpy.load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read as a safetensors file ({error}){MEND}") from error
    held = {name: a for name, a in held.items() if not name.endswith(".num_batches_tracked")}
    names = tensors()
    for name, shape in names.items():
        if name not in held:
            raise UserError(f"{path} lacks the tensor {name}{MEND}")
        _check(path, name, held[name], shape)
    for name in sorted(held.keys() - names.keys()):
        if name not in CLASSIFIER:
            raise UserError(f"{path} holds an unknown tensor {name}{MEND}")
        _check(path, name, held[name], CLASSIFIER[name])
    return jax.tree_util.tree_map_with_path(
        lambda place, _: jnp.asarray(_to_flax(held[_name(place)]), jnp.float32), _shapes())


def tensors() -> dict[str, tuple[int, ...]]:
    """Name -> shape of all tensors that the file must hold, in the file's layout."""
    leaves = jax.tree_util.tree_leaves_with_path(_shapes())
    return {_name(place): _from_flax(leaf.shape) for place, leaf in leaves}


def features(params: Any, x: np.ndarray, say: Callable[[str], None] = lambda _: None) -> np.ndarray:
    """Images [n, H, W, ch], uint8 or float in [0, 1] -> float32 [n, 2048].

    say: gets a line of progress now and then: an image takes two CPU cores 0.1 to 0.3 s.
    """
    batches = math.ceil(len(x) / BATCH)
    found = []
    for i in range(batches):
        part = x[i * BATCH:(i + 1) * BATCH]
        # One shape, so that the network is compiled once.
        padded = np.pad(part, ((0, BATCH - len(part)), (0, 0), (0, 0), (0, 0)))
        found.append(np.asarray(_apply(params, padded))[:len(part)])
        if (i + 1) % REPORT_EVERY == 0 and i + 1 < batches:
            say(f"Inception: {(i + 1) * BATCH} of {len(x)} images")
    return np.concatenate(found)


def prepare(x: Array) -> Array:
    """Images [n, H, W, ch], uint8 or float in [0, 1] -> float32 [n, 299, 299, 3] in [-1, 1].

    Gray is repeated three times. The resize is that of pytorch-fid: bilinear, the edges of both
    images in the same place and not the centres of their outermost pixels (`align_corners=False`),
    no smoothing where an image shrinks; then 2 x - 1. The graph of 2015 places pixels differently,
    which is one reason why FIDs of the original code differ a little from these.
    """
    x = x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x.astype(jnp.float32)
    rows, cols = bilinear(x.shape[1], SIDE), bilinear(x.shape[2], SIDE)
    x = jnp.einsum("ih,nhwc,jw->nijc", rows, x, cols, precision="highest")
    return 2 * jnp.broadcast_to(x, (*x.shape[:3], 3)) - 1


def bilinear(n: int, out: int) -> np.ndarray:
    """[out, n] float32: the weights of n pixels in each of `out` pixels along an axis.

    Output i lies at s = (i + 1/2) n / out - 1/2, clipped to 0..n-1, and reads the two pixels
    around s with weights that fall linearly with the distance.
    """
    place = np.clip((np.arange(out) + 0.5) * n / out - 0.5, 0, n - 1)
    return np.maximum(0, 1 - np.abs(place[:, None] - np.arange(n))).astype(np.float32)


@jax.jit
def _apply(params, x):
    return Inception().apply(params, prepare(x))


@functools.cache
def _shapes() -> Any:
    x = jax.ShapeDtypeStruct((1, SIDE, SIDE, 3), jnp.float32)
    return jax.eval_shape(Inception().init, jax.random.key(0), x)


def _name(place: tuple) -> str:
    """The file's name of a parameter: (params, Mixed_5b, branch1x1, kernel) ->
    Mixed_5b.branch1x1.conv.weight."""
    _, *modules, field = (entry.key for entry in place)
    return ".".join([*modules, FIELDS[field]])


def _from_flax(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape


def _to_flax(tensor: np.ndarray) -> np.ndarray:
    return tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor


def _check(path: Path | str, name: str, tensor: np.ndarray, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise UserError(f"{path}: the tensor {name} has shape {list(tensor.shape)}, expected "
                        f"{list(shape)}{MEND}")
    if not (np.issubdtype(tensor.dtype, np.floating) and np.isfinite(tensor).all()):
        raise UserError(f"{path}: the tensor {name} ({tensor.dtype}) does not hold finite "
                        f"floats{MEND}")
