"""Public networks whose weights the user provides: Inception-v3 for FID, and ResNet-18.

A file of weights is a safetensors file with the names and layouts of a PyTorch state dict, such as
`Conv2d_1a_3x3.conv.weight` [out, in, kh, kw], `Mixed_5b.branch1x1.bn.running_mean` [out] or
`layer1.0.bn1.running_mean`. Two published files are turned into it as follows.

Inception-v3 of the package pytorch-fid (github.com/mseitzer/pytorch-fid, release fid_weights):

    import safetensors.torch, torch
    state = torch.load("pt_inception-2015-12-05-6726825d.pth", weights_only=True)
    safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, "fid.safetensors")

ResNet-18 of torchvision, which DataLens used, trained on ImageNet
(https://download.pytorch.org/models/resnet18-f37072fd.pth, 46,830,571 bytes, SHA-256
f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec): the same lines, with its name.
"""

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
from dpgen_jax.evaluation.results import Log, silent
from dpgen_jax.nets import classifiers as nets

REPORT_EVERY = 10
"""Batches between two lines of progress."""
BATCH = 32
"""Images at once: the first layers take 10 to 20 MB for each."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's channels: public constants ResNet-18 was trained with."""


@dataclasses.dataclass(frozen=True)
class Network:
    """A network with public weights, whose features of images are computed a batch at a time."""

    name: str
    module: Any
    """The flax module, from images [n, side, side, 3] to features [n, F]."""
    side: int
    """Pixels on a side of its input."""
    width: int
    """The number F of features."""
    prepare: Callable[[Array], Array]
    """From images [n, H, W, ch], uint8 or float in [0, 1], to its input."""
    name_of: Callable[[tuple[str, ...]], str]
    """The name of a tensor in a file, from the keys that lead to the parameter."""
    unused: Mapping[str, tuple[int, ...]]
    """Tensors that may be in the file, and their shapes."""
    source: str
    """The expected content of a file, for error messages."""
    batch: int = BATCH

    @functools.cached_property
    def shapes(self) -> PyTree:
        """The variables of the module as shapes."""
        x = jax.ShapeDtypeStruct((1, self.side, self.side, 3), jnp.float32)
        return jax.eval_shape(self.module.init, jax.random.key(0), x)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of all tensors that a file must hold, in its layout."""
        leaves = jax.tree_util.tree_leaves_with_path(self.shapes)
        return {self.name_of(_texts(keys)): _from_flax(leaf.shape) for keys, leaf in leaves}

    def load(self, path: Path | str) -> PyTree:
        """Read the variables of the module, float32, from a safetensors file.

        The `unused` tensors and the counters `*.num_batches_tracked` are left out.

        Raises:
          UserError: The file cannot be read; or a tensor is missing, unknown, of another shape, or
            not of finite floats; the first such tensor is named.
        """
        mend = (f"; expected the weights of {self.source}, converted as the documentation of "
                "dpgen_jax.evaluation.pretrained says")
        files.require_regular(Path(path))
        try:
            stored = safetensors.numpy.load_file(path)
        except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path} cannot be read as a safetensors file ({error}){mend}"
                            ) from error
        stored = {name: a for name, a in stored.items()
                  if not name.endswith(".num_batches_tracked")}
        names = self.tensors()
        for name, shape in names.items():
            if name not in stored:
                raise UserError(f"{path} lacks the tensor {name}{mend}")
            _check(path, name, stored[name], shape, mend)
        for name in sorted(stored.keys() - names.keys()):
            if name not in self.unused:
                raise UserError(f"{path} holds an unknown tensor {name}{mend}")
            _check(path, name, stored[name], self.unused[name], mend)
        return jax.tree_util.tree_map_with_path(lambda keys, _: jnp.asarray(_to_flax(
            stored[self.name_of(_texts(keys))]), jnp.float32), self.shapes)

    def features(self, params: PyTree, x: np.ndarray, log: Log = silent) -> np.ndarray:
        """Compute the features of images, float32 [n, F]: each depends on its own image only.

        Args:
          params: The variables that `load` returned.
          x: Images [n, H, W, ch], uint8 or float in [0, 1].
          log: A function that takes a line of progress every `REPORT_EVERY` batches.
        """
        batches, outputs = math.ceil(len(x) / self.batch), []
        for i in range(batches):
            part = x[i * self.batch:(i + 1) * self.batch]
            # The last batch is filled up with zeros, so that the network is compiled once.
            padded = np.pad(part, ((0, self.batch - len(part)), *((0, 0),) * (x.ndim - 1)))
            outputs.append(np.asarray(self._apply(params, padded))[:len(part)])
            if (i + 1) % REPORT_EVERY == 0 and i + 1 < batches:
                log(f"{self.name}: {(i + 1) * self.batch} of {len(x)} images")
        return np.concatenate(outputs)

    @functools.cached_property
    def _apply(self) -> Callable[[Any, Any], Array]:
        return jax.jit(lambda params, x: cast(
            Array, self.module.apply(params, self.prepare(x))))


def resized(x: Array, side: int) -> Array:
    """Convert images [n, H, W, ch] to colour in [0, 1], float32 [n, side, side, 3].

    Grey is repeated three times. The resize is bilinear, the edges of both images in the same place
    and not the centres of their outermost pixels (`align_corners=False` in PyTorch), no smoothing
    where an image shrinks.
    """
    x = x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x.astype(jnp.float32)
    rows, cols = bilinear(x.shape[1], side), bilinear(x.shape[2], side)
    x = jnp.einsum("ih,nhwc,jw->nijc", rows, x, cols, precision="highest")
    return jnp.broadcast_to(x, (*x.shape[:3], 3))


def bilinear(n: int, out: int) -> np.ndarray:
    """Compute the matrix float32 [out, n] that resizes one axis of an image.

    Output i lies at s = (i + 1/2) n / out - 1/2, clipped to 0..n-1, and reads the two pixels around
    s with weights that fall linearly with the distance.
    """
    position = np.clip((np.arange(out) + 0.5) * n / out - 0.5, 0, n - 1)
    return np.maximum(0, 1 - np.abs(position[:, None] - np.arange(n))).astype(np.float32)


def for_inception(x: Array) -> Array:
    """Convert images to float32 [n, 299, 299, 3] in [-1, 1], as pytorch-fid does.

    The graph of 2015 places pixels differently, which is one reason why FIDs of the original code
    differ a little from these.
    """
    return 2 * resized(x, nets.INCEPTION_SIDE) - 1


def for_resnet18(x: Array) -> Array:
    """Convert images to float32 [n, 224, 224, 3], normalised by ImageNet's constants."""
    return (resized(x, nets.RESNET18_SIDE) - jnp.array(MEAN)) / jnp.array(STD)


def _inception_name(keys: tuple[str, ...]) -> str:
    """Return Mixed_5b.branch1x1.conv.weight of (params, Mixed_5b, branch1x1, kernel)."""
    _, *modules, field = keys
    fields = {"kernel": "conv.weight", "scale": "bn.weight", "bias": "bn.bias",
              "mean": "bn.running_mean", "var": "bn.running_var"}
    return ".".join([*modules, fields[field]])


def _resnet18_name(keys: tuple[str, ...]) -> str:
    """Return the name of a parameter of ResNet-18.

    (params, layer1.0, 2, kernel) is layer1.0.conv2.weight, (params, layer1.0, 2, mean) is
    layer1.0.bn2.running_mean; the stem has no block, and downsample.0 and .1 no other names.
    """
    _, *modules, field = keys
    convolution = field == "kernel"
    fields = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean",
              "var": "running_var"}
    if modules[-1] == "downsample":
        return f"{modules[0]}.downsample.{0 if convolution else 1}.{fields[field]}"
    number = "1" if modules == ["stem"] else modules[-1]
    block = "" if modules == ["stem"] else f"{modules[0]}."
    return f"{block}{'conv' if convolution else 'bn'}{number}.{fields[field]}"


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


INCEPTION = Network(
    "Inception", nets.Inception(), nets.INCEPTION_SIDE, nets.INCEPTION_FEATURES, for_inception,
    _inception_name, {"fc.weight": (1008, nets.INCEPTION_FEATURES), "fc.bias": (1008,)},
    "the package pytorch-fid")
"""Its features are float32 [n, 2048]; an image takes two CPU cores 0.1 to 0.3 s. The graph of 2015
has 1008 outputs."""
RESNET18 = Network(
    "ResNet-18", nets.ResNet18(), nets.RESNET18_SIDE, nets.RESNET18_FEATURES, for_resnet18,
    _resnet18_name, {"fc.weight": (1000, nets.RESNET18_FEATURES), "fc.bias": (1000,)},
    "torchvision's resnet18")
"""Its features are float32 [n, 512], never negative."""
