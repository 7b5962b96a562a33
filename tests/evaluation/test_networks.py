"""The networks that judge images: what they compute, and what a schedule promises."""

import dataclasses

import jax
import numpy as np
import pytest
from bars import bars, noise
from jax import lax

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import networks as n
from dpgen_jax.nets.classifiers import CNN, MLP, Dropout, max_pool
from dpgen_jax.nets.convolution import Conv3x3

QUICK = n.Schedule("quick", epochs=2, min_steps=60, mlp_times=2)


def accuracy(net, train, test, schedule=QUICK, seed=0):
    params = n.fit_classifier(net, *train, schedule, seed)
    return np.mean(n.predict(net, params, test[0]).argmax(1) == test[1])


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_both_forms_are_the_convolution(channels):
    """Nine channels' patches are as wide as the kernel has outputs; more go line by line."""
    x = jax.random.normal(jax.random.key(0), (2, 9, 8, channels))
    conv = Conv3x3(27)
    params = conv.init(jax.random.key(1), x)
    params["params"]["bias"] = jax.random.normal(jax.random.key(2), (27,))
    expected = lax.conv_general_dilated(x, params["params"]["kernel"], (1, 1), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(conv.apply(params, x), expected + params["params"]["bias"],
                               rtol=1e-4, atol=1e-5)


def test_pooling_drops_an_odd_edge():
    x = np.arange(2 * 5 * 4).reshape(2, 5, 4, 1)
    np.testing.assert_array_equal(max_pool(x)[..., 0], [[[5, 7], [13, 15]], [[25, 27], [33, 35]]])


@pytest.mark.parametrize("rate", [0.2, 0.25])
@pytest.mark.parametrize("images", [1, 6, 400])
def test_dropout_keeps_its_share_and_the_mean(rate, images):
    x = np.ones((images, 30, 30), np.float32)
    rngs = {"dropout": jax.random.key(3)}
    out = np.asarray(Dropout(rate).apply({}, x, train=True, rngs=rngs))
    assert out.shape == x.shape
    kept, values = np.mean(out > 0), np.unique(out)
    spread = 4 * (rate * (1 - rate) / x.size) ** 0.5
    assert abs(kept - (1 - rate)) < spread + 1 / 256
    np.testing.assert_allclose(values, [0, 1 / (1 - rate)], rtol=0.005)
    assert len(np.unique(out.reshape(images, -1), axis=0)) == images  # each image has its own mask
    np.testing.assert_array_equal(Dropout(rate).apply({}, x, train=False), x)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (64, 64, 3)])
def test_cnn_is_defined_for_all_sizes(shape):
    net = CNN(7)
    params = jax.eval_shape(lambda k: net.init(k, np.zeros((2, *shape), np.float32), train=False),
                            jax.random.key(0))
    kernels = {k: v["kernel"].shape for k, v in params["params"].items()}
    flat = 64 * ((shape[0] - 2) // 2 - 2) ** 2
    assert kernels == {"Conv3x3_0": (3, 3, shape[2], 32), "Conv3x3_1": (3, 3, 32, 64),
                       "Dense_0": (flat, 64), "Dense_1": (64, 7)}


def test_the_cnn_drops_in_training_alone():
    x, net = np.ones((4, 8, 8, 1), np.float32), CNN(3)
    params = jax.eval_shape(lambda: net.init(jax.random.key(0), x, train=False))
    for train in (True, False):
        steps = jax.make_jaxpr(lambda p, key, train=train: net.apply(
            p, x, train=train, rngs={"dropout": key}))(params, jax.random.key(1))
        assert str(steps).count("random_bits") == 2 * train


@pytest.mark.slow
@pytest.mark.parametrize("net", [CNN(4), MLP(4)], ids=["cnn", "mlp"])
def test_separable_images_are_learned_and_noise_is_not(net):
    assert accuracy(net, bars(800), bars(512, seed=9)) > 0.95
    assert abs(accuracy(net, noise(800), noise(512, seed=9)) - 0.25) < 0.09


@pytest.mark.parametrize(("optimiser", "decay"), [("adam", "constant"), ("sgd", "cosine")])
def test_other_schedules_learn(optimiser, decay):
    rate = 0.05 if optimiser == "sgd" else 3e-3
    schedule = dataclasses.replace(QUICK, optimiser=optimiser, decay=decay, learning_rate=rate)
    assert accuracy(MLP(4), bars(600), bars(300, seed=9), schedule) > 0.9


@pytest.mark.parametrize("change", [{"optimiser": "lion"}, {"decay": "steps"}])
def test_unknown_names_are_refused(change):
    with pytest.raises(UserError, match="known: "):
        n.fit_classifier(MLP(4), *bars(9), dataclasses.replace(QUICK, **change), 0)


def test_schedule_makes_its_least_number_of_steps():
    assert [QUICK.epochs_for(CNN(2), steps) for steps in (1, 30, 31, 1000)] == [60, 2, 2, 2]
    assert QUICK.epochs_for(MLP(2), 1000) == 4


def test_a_seed_decides_the_weights():
    train = bars(200)
    one, again, other = (n.fit_classifier(MLP(4), *train, QUICK, seed) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert not np.array_equal(one["params"]["Dense_0"]["kernel"],
                              other["params"]["Dense_0"]["kernel"])


def test_predictions_do_not_depend_on_how_many_are_requested():
    x, y = bars(n.CHUNK + 44)
    params = n.fit_classifier(MLP(4), x, y, QUICK, 0)
    predicted = n.predict(MLP(4), params, x)
    assert predicted.shape == (len(x), 4) and predicted.dtype == np.float32
    np.testing.assert_array_equal(n.predict(MLP(4), params, x[:3]), predicted[:3])


def test_cnn_names_the_mend_for_tiny_images():
    with pytest.raises(UserError, match="use the classifier 'mlp'"):
        n.fit_classifier(CNN(2), *bars(20, classes=2, side=6), QUICK, 0)
