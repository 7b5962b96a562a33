"""Weights of pretrained networks, from safetensors files that the user provides."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dpgen_jax.core import files
from dpgen_jax.core.types import Array, PyTree, UserError
from dpgen_jax.evaluation.scores import Log, silent

REPORT_EVERY = 10
"""Batches between two lines of progress."""


@dataclasses.dataclass(frozen=True)
class Network:
    """A network with public weights, whose features of images are computed a batch at a time.

    Attributes:
      name: Its name, for lines of progress.
      module: The flax module, from images [n, side, side, 3] to features [n, F].
      side: Pixels on a side of its input.
      batch: Images at once.
      prepare: From images [n, H, W, ch], uint8 or float in [0, 1], to its input.
      name_of: The name of a tensor in a file of weights, as for `load`.
      unused: Tensors that may be in the file, and their shapes.
      mend: The end of an error message about the file.
    """

    name: str
    module: Any
    side: int
    batch: int
    prepare: Callable[[Array], Array]
    name_of: Callable[[tuple[str, ...]], str]
    unused: Mapping[str, tuple[int, ...]]
    mend: str

    @functools.cached_property
    def shapes(self) -> PyTree:
        """The variables of the module as shapes."""
        x = jax.ShapeDtypeStruct((1, self.side, self.side, 3), jnp.float32)
        return jax.eval_shape(self.module.init, jax.random.key(0), x)

    def load(self, path: Path | str) -> PyTree:
        """Read the variables of the module, float32, from a safetensors file.

        Args:
          path: The file.

        Raises:
          UserError: As `load`.
        """
        return load(path, self.shapes, self.name_of, self.unused, self.mend)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of all tensors that a file must hold, in its layout."""
        return tensors(self.shapes, self.name_of)

    def features(self, params: PyTree, x: np.ndarray, log: Log = silent) -> np.ndarray:
        """Compute the features of images, float32 [n, F]: each depends on its own image only.

        Args:
          params: The variables that `load` returned.
          x: Images [n, H, W, ch], uint8 or float in [0, 1].
          log: A function that takes lines of progress.
        """
        return in_batches(functools.partial(self._apply, params), x, self.batch, self.name, log)

    @functools.cached_property
    def _apply(self) -> Callable[[Any, Array], Array]:
        return jax.jit(lambda params, x: cast(
            Array, self.module.apply(params, self.prepare(x))))


def load(path: Path | str, shapes: PyTree, name_of: Callable[[tuple[str, ...]], str],
         unused: Mapping[str, tuple[int, ...]], mend: str) -> PyTree:
    """Read the parameters of a network from a safetensors file in PyTorch's names and layouts.

    The `unused` tensors and the counters `*.num_batches_tracked` are left out.

    Args:
      path: The file.
      shapes: The parameters as shapes, a nest of dictionaries.
      name_of: The name of a tensor in the file, from the keys that lead to it in `shapes`.
      unused: Tensors that may be in the file, and their shapes.
      mend: What an error message ends with.

    Returns:
      The parameters, float32, as `shapes` nests them.

    Raises:
      UserError: The file cannot be read; or a tensor is missing, unknown, of another shape, or not
        of finite floats; the first such tensor is named.
    """
    files.require_regular(Path(path))
    try:
        stored = safetensors.numpy.load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read as a safetensors file ({error}){mend}") from error
    stored = {name: a for name, a in stored.items() if not name.endswith(".num_batches_tracked")}
    names = tensors(shapes, name_of)
    for name, shape in names.items():
        if name not in stored:
            raise UserError(f"{path} lacks the tensor {name}{mend}")
        _check(path, name, stored[name], shape, mend)
    for name in sorted(stored.keys() - names.keys()):
        if name not in unused:
            raise UserError(f"{path} holds an unknown tensor {name}{mend}")
        _check(path, name, stored[name], unused[name], mend)
    return jax.tree_util.tree_map_with_path(
        lambda keys, _: jnp.asarray(_to_flax(stored[name_of(_texts(keys))]), jnp.float32), shapes)


def tensors(shapes: PyTree, name_of: Callable[[tuple[str, ...]], str]
            ) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of all tensors that a file must hold, in the file's layout.

    Args:
      shapes: The parameters as shapes, a nest of dictionaries.
      name_of: As for `load`.
    """
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {name_of(_texts(keys)): _from_flax(leaf.shape) for keys, leaf in leaves}


def in_batches(apply: Callable[[Any], Array], x: np.ndarray, batch: int, name: str,
               log: Log = silent) -> np.ndarray:
    """Apply a network to images, a batch at a time.

    Args:
      apply: From images [batch, ...] to features [batch, F].
      x: Images [n, ...].
      batch: Images at once; the last batch is filled up with zeros, so that the network is
        compiled once.
      name: The network, for lines of progress.
      log: A function that takes a line of progress every `REPORT_EVERY` batches.

    Returns:
      float32 [n, F].
    """
    batches = math.ceil(len(x) / batch)
    outputs = []
    for i in range(batches):
        part = x[i * batch:(i + 1) * batch]
        padded = np.pad(part, ((0, batch - len(part)), *((0, 0),) * (x.ndim - 1)))
        outputs.append(np.asarray(apply(padded))[:len(part)])
        if (i + 1) % REPORT_EVERY == 0 and i + 1 < batches:
            log(f"{name}: {(i + 1) * batch} of {len(x)} images")
    return np.concatenate(outputs)


def resized(x: Array, side: int) -> Array:
    """Convert images to colour in [0, 1], of `side` x `side` pixels; gray is repeated three times.

    The resize is bilinear, the edges of both images in the same place and not the centres of their
    outermost pixels (`align_corners=False` in PyTorch), no smoothing where an image shrinks.

    Args:
      x: Images [n, H, W, ch], uint8 or float in [0, 1].
      side: Pixels on a side of the result.

    Returns:
      float32 [n, side, side, 3].
    """
    x = x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x.astype(jnp.float32)
    rows, cols = bilinear(x.shape[1], side), bilinear(x.shape[2], side)
    x = jnp.einsum("ih,nhwc,jw->nijc", rows, x, cols, precision="highest")
    return jnp.broadcast_to(x, (*x.shape[:3], 3))


def bilinear(n: int, out: int) -> np.ndarray:
    """Compute the matrix that resizes one axis of an image.

    Output i lies at s = (i + 1/2) n / out - 1/2, clipped to 0..n-1, and reads the two pixels
    around s with weights that fall linearly with the distance.

    Args:
      n: Pixels along the axis.
      out: Pixels along the axis of the result.

    Returns:
      float32 [out, n], the weight of each pixel in each pixel of the result.
    """
    position = np.clip((np.arange(out) + 0.5) * n / out - 0.5, 0, n - 1)
    return np.maximum(0, 1 - np.abs(position[:, None] - np.arange(n))).astype(np.float32)


def _texts(keys: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(entry.key for entry in keys)


def _from_flax(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape


def _to_flax(tensor: np.ndarray) -> np.ndarray:
    return tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor


def _check(path: Path | str, name: str, tensor: np.ndarray, shape: tuple[int, ...], mend: str
           ) -> None:
    if tensor.shape != shape:
        raise UserError(f"{path}: the tensor {name} has shape {list(tensor.shape)}, expected "
                        f"{list(shape)}{mend}")
    if not (np.issubdtype(tensor.dtype, np.floating) and np.isfinite(tensor).all()):
        raise UserError(f"{path}: the tensor {name} ({tensor.dtype}) does not hold finite "
                        f"floats{mend}")
