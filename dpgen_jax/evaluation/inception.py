"""Features of Inception-v3, from a file of weights that the user provides.

The file is a safetensors file with the names and layouts of pytorch-fid's state dict, such as
`Conv2d_1a_3x3.conv.weight` [out, in, kh, kw] and `Mixed_5b.branch1x1.bn.running_mean` [out].
The published file (github.com/mseitzer/pytorch-fid, release fid_weights) is turned into it by

    import safetensors.torch, torch
    state = torch.load("pt_inception-2015-12-05-6726825d.pth", weights_only=True)
    safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, "fid.safetensors")
"""

from __future__ import annotations

from dpgen_jax.core.types import Array
from dpgen_jax.evaluation import pretrained
from dpgen_jax.nets.classifiers import INCEPTION_FEATURES, INCEPTION_SIDE, Inception

FEATURES = INCEPTION_FEATURES
BATCH = 32
"""Images at once: the first layers take 20 MB for each."""
FIELDS = {"kernel": "conv.weight", "scale": "bn.weight", "bias": "bn.bias",
          "mean": "bn.running_mean", "var": "bn.running_var"}
CLASSIFIER = {"fc.weight": (1008, INCEPTION_FEATURES), "fc.bias": (1008,)}
"""Tensors that may be in the file and are not used; the graph of 2015 has 1008 outputs."""
MEND = ("; expected the weights of the package pytorch-fid, converted as the documentation of "
        "dpgen_jax.evaluation.inception says")


def prepare(x: Array) -> Array:
    """Convert images to the network's input, as pytorch-fid does; gray is repeated three times.

    That is `pretrained.resized`, then 2 x - 1. The graph of 2015 places pixels differently, which
    is one reason why FIDs of the original code differ a little from these.

    Args:
      x: Images [n, H, W, ch], uint8 or float in [0, 1].

    Returns:
      float32 [n, 299, 299, 3] in [-1, 1].
    """
    return 2 * pretrained.resized(x, INCEPTION_SIDE) - 1


def _name(keys: tuple[str, ...]) -> str:
    """Return the file's name of a parameter.

    (params, Mixed_5b, branch1x1, kernel) is Mixed_5b.branch1x1.conv.weight.
    """
    _, *modules, field = keys
    return ".".join([*modules, FIELDS[field]])


NETWORK = pretrained.Network("Inception", Inception(), INCEPTION_SIDE, BATCH, prepare, _name,
                             CLASSIFIER,
                             MEND)
"""Its features are float32 [n, 2048]; an image takes two CPU cores 0.1 to 0.3 s."""
load, tensors, features = NETWORK.load, NETWORK.tensors, NETWORK.features
