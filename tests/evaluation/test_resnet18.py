"""ResNet-18: torchvision's tensors, each in its place, and the network by plain convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.pretrained import RESNET18
from dpgen_jax.nets.classifiers import ResNet18


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in RESNET18.tensors().items():
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) == 4 else 0.1
        weights[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
        if name.endswith("running_var"):
            weights[name] = 1 + np.abs(weights[name])
    return weights


@pytest.fixture(scope="module")
def file(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    more = {"fc.weight": np.zeros((1000, 512), np.float32), "fc.bias": np.zeros(1000, np.float32),
            "bn1.num_batches_tracked": np.array(7)}
    safetensors.numpy.save_file(weights | more, path)
    return path


def test_names_and_shapes_are_torchvisions():
    shapes = RESNET18.tensors()
    assert len(shapes) == 100  # 20 convolutions, and 4 tensors of the normalisation behind each
    assert shapes["conv1.weight"] == (64, 3, 7, 7) and shapes["bn1.running_var"] == (64,)
    assert shapes["layer1.0.conv1.weight"] == (64, 64, 3, 3)
    assert "layer1.0.downsample.0.weight" not in shapes
    assert shapes["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes["layer2.0.downsample.1.running_mean"] == (128,)
    assert shapes["layer4.1.conv2.weight"] == (512, 512, 3, 3)
    assert shapes["layer4.1.bn2.bias"] == (512,)
    # torchvision documents 11,689,512 parameters, of which the classifier has 513,000; stored
    # means and variances of 4,800 channels are no parameters there.
    assert sum(np.prod(shape) for shape in shapes.values()) == 11_689_512 - 513_000 + 2 * 4800


def convolve(x, kernel, stride):
    """In float64; kernel [out, in, k, k], the border filled with zeros."""
    edge = kernel.shape[-1] // 2
    x = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[-2:], (1, 2))
    patches = patches[:, ::stride, ::stride]
    return np.tensordot(patches, kernel.astype(np.float64), ((3, 4, 5), (1, 2, 3)))


def plain(weights, x):
    """The network as the paper and torchvision write it."""
    def unit(x, conv, bn, stride=1):
        scale, bias, mean, var = (weights[f"{bn}.{field}"].astype(np.float64) for field in (
            "weight", "bias", "running_mean", "running_var"))
        y = convolve(x, weights[f"{conv}.weight"], stride)
        return (y - mean) / np.sqrt(var + 1e-5) * scale + bias

    x = np.maximum(0, unit(x, "conv1", "bn1", 2))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    x = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((-1, -2))
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = np.maximum(0, unit(x, f"{name}.conv1", f"{name}.bn1", stride))
            y = unit(y, f"{name}.conv2", f"{name}.bn2")
            if f"{name}.downsample.0.weight" in weights:
                x = unit(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = np.maximum(0, x + y)
    return x.mean((1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("side", [64, 47])
def test_the_network_is_that_of_plain_convolutions(weights, file, side):
    x = np.random.default_rng(1).standard_normal((2, side, side, 3))
    got = jax.jit(ResNet18().apply)(RESNET18.load(file), jnp.asarray(x, jnp.float32))
    expected = plain(weights, x)
    assert got.shape == (2, 512) and expected.std() > 0.1
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3 * expected.std())


@pytest.mark.slow
def test_features_of_an_image_are_its_own(file):
    """Whatever the other images of its batch are: replacing a record replaces one row."""
    params = RESNET18.load(file)
    x = np.random.default_rng(2).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    first, second = (RESNET18.features(params, images) for images in (x, x[[0, 2]]))
    np.testing.assert_array_equal(first[[0, 2]], second)
    assert first.shape == (3, 512) and first.min() >= 0 and first.std(0).max() > 0


def test_images_are_normalised_by_public_constants():
    gray = RESNET18.prepare(jnp.full((1, 8, 8, 1), 255, jnp.uint8))
    assert gray.shape == (1, 224, 224, 3)
    np.testing.assert_allclose(gray[0, 0, 0], (1 - np.array([.485, .456, .406]))
                               / np.array([.229, .224, .225]), rtol=1e-5)


@pytest.mark.parametrize(("change", "match"), [
    ({"layer4.1.bn2.bias": None}, "lacks the tensor layer4.1.bn2.bias; expected the weights of "
                                  "torchvision's resnet18"),
    ({"conv1.weight": np.zeros((64, 1, 7, 7), np.float32)}, r"conv1.weight has shape \[64, 1"),
    ({"layer3.2.conv1.weight": np.zeros(1, np.float32)}, "unknown tensor layer3.2.conv1.weight")])
def test_other_weights_are_refused(weights, tmp_path, change, match):
    changed = {name: a for name, a in (weights | change).items() if a is not None}
    safetensors.numpy.save_file(changed, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=match):
        RESNET18.load(tmp_path / "w.safetensors")
