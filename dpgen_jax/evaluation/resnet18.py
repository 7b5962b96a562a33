"""Features of ResNet-18, from a file of weights that the user provides.

The file is a safetensors file with the names and layouts of torchvision's state dict, such as
`layer1.0.conv1.weight` [out, in, kh, kw] and `layer1.0.bn1.running_mean` [out]. The public weights
that DataLens used, trained on ImageNet, are torchvision's resnet18-f37072fd.pth
(https://download.pytorch.org/models/resnet18-f37072fd.pth, 46,830,571 bytes, SHA-256
f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec), which are turned into it by

    import safetensors.torch, torch
    state = torch.load("resnet18-f37072fd.pth", weights_only=True)
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    safetensors.torch.save_file(state, "resnet18.safetensors")
"""

from __future__ import annotations

import jax.numpy as jnp

from dpgen_jax.core.types import Array
from dpgen_jax.evaluation import pretrained
from dpgen_jax.nets.classifiers import RESNET18_FEATURES, RESNET18_SIDE, ResNet18

FEATURES = RESNET18_FEATURES
BATCH = 32
"""Images at once: the first layers take 10 MB for each."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's channels: public constants the weights were trained with."""
FIELDS = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean",
          "var": "running_var"}
CLASSIFIER = {"fc.weight": (1000, RESNET18_FEATURES), "fc.bias": (1000,)}
"""Tensors that may be in the file and are not used."""
MEND = ("; expected the weights of torchvision's resnet18, converted as the documentation of "
        "dpgen_jax.evaluation.resnet18 says")


def prepare(x: Array) -> Array:
    """Convert images to the network's input: resized, then normalised by ImageNet's constants.

    Args:
      x: Images [n, H, W, ch], uint8 or float in [0, 1].

    Returns:
      float32 [n, 224, 224, 3].
    """
    return (pretrained.resized(x, RESNET18_SIDE) - jnp.array(MEAN)) / jnp.array(STD)


def _name(keys: tuple[str, ...]) -> str:
    """Return the file's name of a parameter.

    (params, layer1.0, 2, kernel) is layer1.0.conv2.weight, (params, layer1.0, 2, mean) is
    layer1.0.bn2.running_mean; the stem has no block, and downsample.0 and .1 no other names.
    """
    _, *modules, field = keys
    convolution = field == "kernel"
    if modules[-1] == "downsample":
        return f"{modules[0]}.downsample.{0 if convolution else 1}.{FIELDS[field]}"
    number = "1" if modules == ["stem"] else modules[-1]
    block = "" if modules == ["stem"] else f"{modules[0]}."
    return f"{block}{'conv' if convolution else 'bn'}{number}.{FIELDS[field]}"


NETWORK = pretrained.Network("ResNet-18", ResNet18(), RESNET18_SIDE, BATCH, prepare, _name,
                             CLASSIFIER,
                             MEND)
"""Its features are float32 [n, 512], never negative."""
load, tensors, features = NETWORK.load, NETWORK.tensors, NETWORK.features
