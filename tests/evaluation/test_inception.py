"""Inception: every tensor in its place, single blocks by plain convolutions, resizes by hand."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import pretrained
from dpgen_jax.evaluation.pretrained import INCEPTION
from dpgen_jax.nets import classifiers as nets

pytestmark = pytest.mark.slow  # the smallest block takes seconds to compile


def random_weights(seed=0):
    """Random tensors of a file: variances positive, kernels small enough for a deep network."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in INCEPTION.tensors().items():
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) == 4 else 0.1
        weights[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
        if name.endswith(("running_var", "bn.weight")):
            weights[name] = 1 + np.abs(weights[name])
    return weights


@pytest.fixture(scope="module")
def weights():
    return random_weights()


@pytest.fixture(scope="module")
def params(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "fid.safetensors"
    safetensors.numpy.save_file(weights, path)
    return INCEPTION.load(path)


def part(params, *names):
    for name in ("params", *names):
        params = params[name]
    return {"params": params}


def units(weights, block):
    """`unit` of one block, by the name inside it."""
    return lambda name, x, pad=(0, 0), stride=1: unit(weights, f"{block}.{name}", x, pad, stride)


def unit(weights, name, x, padding, stride=1):
    """Convolution, batch normalisation and ReLU in float64, straight from the file's tensors."""
    kernel, scale, bias, mean, var = (weights[f"{name}.{field}"].astype(np.float64) for field in (
        "conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"))
    kh, kw = kernel.shape[2:]
    ph, pw = padding
    x = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (1, 2))[:, ::stride, ::stride]
    y = np.einsum("nhwcij,ocij->nhwo", patches, kernel)
    return np.maximum(0, (y - mean) / np.sqrt(var + 1e-3) * scale + bias)


def pool(x, reduce, fill, stride=1):
    padded = x if stride == 2 else np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)),
                                          constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return reduce(windows[:, ::stride, ::stride], (-1, -2))


def image(side, channels, seed=1):
    return np.random.default_rng(seed).standard_normal((2, side, side, channels)) * 0.5


def test_the_count_is_the_published_one():
    # Keras documents 21,802,784 parameters of InceptionV3 without its top, where batch
    # normalisation has no scale; 17,216 channels are normalised.
    shapes = INCEPTION.tensors()
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 21_802_784 + 17_216
    assert len(shapes) == 94 * 5
    assert shapes["Conv2d_1a_3x3.conv.weight"] == (32, 3, 3, 3)
    assert shapes["Mixed_6c.branch7x7_2.conv.weight"] == (160, 160, 1, 7)
    assert shapes["Mixed_7c.branch3x3_2b.conv.weight"] == (384, 384, 3, 1)
    assert shapes["Mixed_7b.branch_pool.bn.running_var"] == (192,)


def test_a_file_comes_back(weights, params):
    kernel = weights["Mixed_6b.branch7x7_2.conv.weight"]
    result = part(params, "Mixed_6b", "branch7x7_2")["params"]
    np.testing.assert_array_equal(result["kernel"][0, 5, 7, 9], kernel[9, 7, 0, 5])
    np.testing.assert_array_equal(result["var"], weights["Mixed_6b.branch7x7_2.bn.running_var"])
    assert len(jax.tree.leaves(params)) == len(weights)


@pytest.mark.parametrize(("name", "kernel", "padding", "stride"), [
    ("Conv2d_1a_3x3", (3, 3), (0, 0), 2), ("Conv2d_2b_3x3", (3, 3), (1, 1), 1)])
def test_the_stem(weights, params, name, kernel, padding, stride):
    x = image(11, weights[f"{name}.conv.weight"].shape[1])
    net = nets.Conv(weights[f"{name}.conv.weight"].shape[0], kernel, stride,
                    "SAME" if padding[0] else "VALID")
    expected = unit(weights, name, x, padding, stride)
    np.testing.assert_allclose(net.apply(part(params, name), x), expected, atol=2e-5)


def test_block_a_averages_over_places_inside_the_image(weights, params):
    x = image(7, 192)
    u = units(weights, "Mixed_5b")
    mean = pool(x, np.nanmean, np.nan)
    expected = [u("branch1x1", x), u("branch5x5_2", u("branch5x5_1", x), (2, 2)),
                u("branch3x3dbl_3", u("branch3x3dbl_2", u("branch3x3dbl_1", x), (1, 1)), (1, 1)),
                u("branch_pool", mean)]
    result = nets.MixedA(32).apply(part(params, "Mixed_5b"), x)
    np.testing.assert_allclose(result, np.concatenate(expected, -1), atol=5e-5)


def test_block_b_halves(weights, params):
    x = image(7, 288)
    u = units(weights, "Mixed_6a")
    h = u("branch3x3dbl_2", u("branch3x3dbl_1", x), (1, 1))
    expected = [u("branch3x3", x, stride=2), u("branch3x3dbl_3", h, stride=2),
                pool(x, np.max, None, 2)]
    result = nets.MixedB().apply(part(params, "Mixed_6a"), x)
    np.testing.assert_allclose(result, np.concatenate(expected, -1), atol=5e-5)


def test_block_c_has_rows_and_columns_of_seven(weights, params):
    x = image(5, 768)
    u = units(weights, "Mixed_6b")
    h = u("branch7x7dbl_2", u("branch7x7dbl_1", x), (3, 0))
    h = u("branch7x7dbl_4", u("branch7x7dbl_3", h, (0, 3)), (3, 0))
    expected = [u("branch1x1", x),
                u("branch7x7_3", u("branch7x7_2", u("branch7x7_1", x), (0, 3)), (3, 0)),
                u("branch7x7dbl_5", h, (0, 3)), u("branch_pool", pool(x, np.nanmean, np.nan))]
    result = nets.MixedC(128).apply(part(params, "Mixed_6b"), x)
    np.testing.assert_allclose(result, np.concatenate(expected, -1), atol=5e-5)


def test_block_d(weights, params):
    x = image(5, 768)
    u = units(weights, "Mixed_7a")
    h = u("branch7x7x3_3", u("branch7x7x3_2", u("branch7x7x3_1", x), (0, 3)), (3, 0))
    expected = [u("branch3x3_2", u("branch3x3_1", x), stride=2), u("branch7x7x3_4", h, stride=2),
                pool(x, np.max, None, 2)]
    result = nets.MixedD().apply(part(params, "Mixed_7a"), x)
    np.testing.assert_allclose(result, np.concatenate(expected, -1), atol=5e-5)


@pytest.mark.parametrize(("name", "net", "reduce", "fill", "channels"), [
    ("Mixed_7b", nets.MixedE(nets.average), np.nanmean, np.nan, 1280),
    ("Mixed_7c", nets.MixedE(nets.highest), np.max, -np.inf, 2048)])
def test_block_e_forks_and_the_last_pools_by_the_maximum(weights, params, name, net, reduce, fill,
                                                         channels):
    x = image(3, channels)
    u = units(weights, name)
    single, double = u("branch3x3_1", x), u("branch3x3dbl_2", u("branch3x3dbl_1", x), (1, 1))
    expected = [u("branch1x1", x),
                u("branch3x3_2a", single, (0, 1)), u("branch3x3_2b", single, (1, 0)),
                u("branch3x3dbl_3a", double, (0, 1)), u("branch3x3dbl_3b", double, (1, 0)),
                u("branch_pool", pool(x, reduce, fill))]
    result = net.apply(part(params, name), x)
    np.testing.assert_allclose(result, np.concatenate(expected, -1), atol=5e-5)


def test_the_whole_network_has_the_published_sizes(monkeypatch):
    shapes = []

    def through(x, *steps):
        for step in steps:
            x = step(x)
            shapes.append(x.shape[1:])
        return x

    monkeypatch.setattr(nets, "through", through)
    out = jax.eval_shape(lambda p, x: nets.Inception().apply(p, x), INCEPTION.shapes,
                         jnp.zeros((5, 299, 299, 3)))
    assert out.shape == (5, 2048)
    for shape in [(149, 149, 32), (147, 147, 64), (73, 73, 80), (71, 71, 192), (35, 35, 256),
                  (35, 35, 288), (17, 17, 768), (8, 8, 1280), (8, 8, 2048)]:
        assert shape in shapes


def test_two_pixels_become_four():
    # Outputs lie at -1/4 (clipped to 0), 1/4, 3/4 and 5/4 (clipped to 1).
    np.testing.assert_array_equal(pretrained.bilinear(2, 4),
                                  [[1, 0], [.75, .25], [.25, .75], [0, 1]])


def test_three_pixels_become_five():
    # Outputs lie at (i + 1/2) 3/5 - 1/2 = -0.2 (clipped), 0.4, 1, 1.6 and 2.2 (clipped).
    expected = [[1, 0, 0], [.6, .4, 0], [0, 1, 0], [0, .4, .6], [0, 0, 1]]
    np.testing.assert_allclose(pretrained.bilinear(3, 5), expected, atol=1e-6)


def test_shrinking_reads_two_pixels_and_does_not_smooth():
    # Four pixels to one: the place is 3/2, halfway between pixels 1 and 2; 0 and 3 are not read.
    np.testing.assert_array_equal(pretrained.bilinear(4, 1), [[0, .5, .5, 0]])
    np.testing.assert_array_equal(pretrained.bilinear(7, 7), np.eye(7))


def test_images_are_resized_along_both_axes_and_scaled(monkeypatch):
    monkeypatch.setattr(pretrained.nets, "INCEPTION_SIDE", 4)
    x = np.array([[0, 1], [1, 0]], np.float32)[None, ..., None]
    expected = [[0, .25, .75, 1], [.25, .375, .625, .75], [.75, .625, .375, .25], [1, .75, .25, 0]]
    result = INCEPTION.prepare(x)
    assert result.shape == (1, 4, 4, 3) and result.dtype == jnp.float32
    for channel in range(3):
        np.testing.assert_allclose(result[0, ..., channel], 2 * np.array(expected) - 1, atol=1e-6)


def test_bytes_and_floats_are_the_same_image():
    x = np.random.default_rng(0).integers(0, 256, (2, 6, 9, 3)).astype(np.uint8)
    result = np.asarray(INCEPTION.prepare(x))
    assert result.shape == (2, 299, 299, 3) and result.min() >= -1 and result.max() <= 1
    np.testing.assert_allclose(result, INCEPTION.prepare(x / np.float32(255)), atol=1e-6)
    np.testing.assert_allclose(result[:, 0, 0], x[:, 0, 0] / 127.5 - 1, atol=1e-6)


def test_features_come_in_batches_and_say_so(monkeypatch):
    corner = SimpleNamespace(apply=lambda params, x: x[:, 0, 0] * params)
    network = dataclasses.replace(
        INCEPTION, module=corner, prepare=lambda x: x, batch=4)
    monkeypatch.setattr(pretrained, "REPORT_EVERY", 2)
    x, lines = np.arange(18).reshape(18, 1, 1, 1), []
    result = network.features(2, x, lines.append)
    np.testing.assert_array_equal(result[:, 0], 2 * np.arange(18))
    assert lines == ["Inception: 8 of 18 images", "Inception: 16 of 18 images"]


def save(tmp_path, weights):
    path = tmp_path / "fid.safetensors"
    safetensors.numpy.save_file(weights, path)
    return path


def test_counters_and_the_classifier_are_left_out(weights, tmp_path):
    more = {"fc.weight": np.zeros((1008, 2048), np.float32), "fc.bias": np.zeros(1008, np.float32),
            "Conv2d_1a_3x3.bn.num_batches_tracked": np.array(3)}
    assert len(jax.tree.leaves(INCEPTION.load(save(tmp_path, weights | more)))) == len(weights)


@pytest.mark.parametrize(("change", "message"), [
    ({"Mixed_5b.branch1x1.bn.bias": None}, "lacks the tensor Mixed_5b.branch1x1.bn.bias"),
    ({"Mixed_6a.branch3x3.conv.weight": np.zeros((3, 3, 288, 384), np.float32)},
     r"Mixed_6a.branch3x3.conv.weight has shape \[3, 3, 288, 384\], expected \[384, 288, 3, 3\]"),
    ({"AuxLogits.conv0.bn.bias": np.zeros(128, np.float32)}, "unknown tensor AuxLogits.conv0"),
    ({"fc.weight": np.zeros((1000, 2048), np.float32)}, r"fc.weight has shape \[1000"),
    ({"Conv2d_3b_1x1.bn.bias": np.zeros(80, np.int32)}, "Conv2d_3b_1x1.bn.bias .int32. does not"),
    ({"Conv2d_3b_1x1.bn.bias": np.full(80, np.nan, np.float32)}, "does not hold finite")])
def test_a_file_of_another_network_is_one_line(weights, tmp_path, change, message):
    changed = {name: a for name, a in (weights | change).items() if a is not None}
    with pytest.raises(UserError, match=message) as error:
        INCEPTION.load(save(tmp_path, changed))
    assert "\n" not in str(error.value)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(UserError, match="cannot read .*absent.safetensors"):
        INCEPTION.load(tmp_path / "absent.safetensors")
    with pytest.raises(UserError, match="not a regular file"):  # nor a device that never ends
        INCEPTION.load("/dev/zero")
    path = tmp_path / "text.safetensors"
    path.write_text("not a file of tensors")
    with pytest.raises(UserError, match="cannot be read"):
        INCEPTION.load(path)
