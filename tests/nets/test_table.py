"""The table networks: blocks are probabilities, releases are valid rows, groups do not mix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair
from dpgen_jax.nets.table import hard_rows, probabilities

SPEC = TableSpec(
    (Column("age", "continuous", 0, 100), Column("city", "categorical", categories=("a", "b", "c")),
     Column("income", "integer", 0, 9, nullable=True),
     Column("constant", "categorical", categories=("k",)),
     Column("level", "ordinal", categories=("low", "mid", "high"), nullable=True),
     Column("job", "categorical", categories=("x", "y", "z"), nullable=True)),
    Column("label", "categorical", categories=("no", "yes", "maybe")), 6)
VALUES, FLAGS, ONEHOTS = [0, 4, 7], [5, 8], [(1, 4), (6, 7), (9, 13)]
G, D = pair(SPEC, GeneratorNet(latent=6, hidden=16), DiscriminatorNet(hidden=16))


@pytest.fixture(scope="module")
def params():
    return jax.jit(G.init)(jax.random.key(0))


def test_blocks_are_probabilities_with_the_gradients_of_a_softmax():
    logits = 30 * jax.random.normal(jax.random.key(0), (50, *SPEC.shape))
    logits = logits.at[0].set(1000.0).at[1].set(-1000.0)  # no overflow
    weight = jax.random.normal(jax.random.key(1), logits.shape)

    def plain(logits):
        parts = [jax.nn.softmax(logits[:, a:b]) if (a, b) in ONEHOTS
                 else jax.nn.sigmoid(logits[:, a:b]) for a, b in SPEC.blocks]
        return jnp.concatenate(parts, 1)

    def value_and_gradient(f):
        return f(logits), jax.grad(lambda x: jnp.sum(weight * f(x)))(logits)

    got, want = jax.jit(lambda: [value_and_gradient(f) for f in (
        lambda x: probabilities(x, SPEC), plain)])()
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)
    np.testing.assert_allclose(got[1], want[1], atol=1e-5)
    for start, stop in ONEHOTS:
        np.testing.assert_allclose(got[0][:, start:stop].sum(1), 1, atol=1e-6)


def test_released_rows_are_valid_encodings(params):
    z, labels = G.latents(jax.random.key(1), 200), jnp.arange(200) % 3
    fakes, rows = map(np.asarray, jax.jit(lambda: (G.generate(params, z, labels), G.sample(
        G.freeze(params, z, labels), jax.random.key(2), z, labels)))())
    assert rows.shape == (200, *SPEC.shape) and rows.dtype == np.float32
    for start, stop in ONEHOTS:
        block = rows[:, start:stop]
        assert np.isin(block, (0, 1)).all() and (block.sum(1) == 1).all()
    assert set(np.unique(rows[:, FLAGS])) == {0.0, 1.0}
    np.testing.assert_allclose(rows[:, VALUES], fakes[:, VALUES], atol=1e-5)


def test_a_one_hot_has_a_single_one_where_scores_tie():
    fakes = jnp.zeros((1, *SPEC.shape))  # log 0 at every place: all scores are equal
    rows = jax.jit(lambda: hard_rows(jax.random.key(0), fakes, SPEC))()
    assert [float(rows[0, a:b].sum()) for a, b in ONEHOTS] == [1, 1, 1]


def test_draws_have_the_probabilities_of_the_fake():
    fake = probabilities(jax.random.normal(jax.random.key(0), (1, *SPEC.shape)), SPEC)
    n = 20_000
    rows = jax.jit(lambda: hard_rows(jax.random.key(1), jnp.repeat(fake, n, 0), SPEC))()
    deviation = np.sqrt(fake[0] * (1 - fake[0]) / n)
    assert np.all(np.abs(rows.mean(0) - fake[0]) <= 5 * deviation + 1e-6)


def test_discriminator_equals_the_plain_form():
    """The label joined to the rows and to each hidden layer; the spread of the group beside it."""
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=leaf.shape).astype(np.float32)
              for name, leaf in jax.eval_shape(D.init, jax.random.key(0)).items()}
    x = rng.uniform(size=(2, 7, *SPEC.shape)).astype(np.float32)
    labels = rng.integers(0, 3, (2, 7))

    def dense(h, onehot, i):
        kernel = np.concatenate([params[f"linear{i}"], params[f"label{i}"]])
        return np.concatenate([h, onehot], 1) @ kernel + params[f"bias{i}"]

    def leaky(h):
        return np.where(h > 0, h, 0.2 * h)

    def plain(x, onehot):
        spread = np.sqrt(4 * x.var(0) + 1e-4)
        h = leaky(dense(np.concatenate([2 * x - 1, np.tile(spread, (7, 1))], 1), onehot, 1))
        return dense(leaky(dense(h, onehot, 2)), onehot, 3)[:, 0]

    want = [plain(x[g], np.eye(3)[labels[g]]) for g in (0, 1)]
    got = jax.jit(D.apply)(params, x, labels)
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-4, atol=1e-4)


def test_at_first_the_label_has_no_weight_and_learns_at_once(params):
    z = G.latents(jax.random.key(1), 50)

    def gap(params):
        rows = G.generate(params, jnp.concatenate([z, z]), jnp.repeat(jnp.arange(2), 50))
        return jnp.sum((rows[:50] - rows[50:]) * jnp.linspace(-1, 1, *SPEC.shape))

    value, grads = jax.jit(jax.value_and_grad(gap))(params)
    of_the_label = grads["Dense_2"]["kernel"][-SPEC.classes:]
    assert value == 0 and np.all(np.abs(of_the_label[:2]).max(1) > 0)
