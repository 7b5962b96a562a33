"""DP-GAN-DPAC: the critic's and the classifier's gradients are one message, clipped and charged
once; what the classifier learns from fakes is public; the ablations differ as they should."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import small_gswgan
from small_gswgan import KEY, ROWS

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import Records, UserError
from dpgen_jax.methods import dpac, gswgan
from dpgen_jax.methods.shared.critics import Query
from dpgen_jax.nets.resnet import class_score
from dpgen_jax.run import calibrate_config

RNG = np.random.default_rng(2)
LABELS, Y = jnp.array([0, 2, 1]), jnp.array([0, 1, 2, 0, 1])
FAKES, SLOPE, X = (jnp.asarray(RNG.random((n, *small_datalens.SPEC.shape)), jnp.float32)
                   for n in (ROWS, ROWS, 5))
POOL = jnp.asarray(
    RNG.random((3, 2, *small_datalens.SPEC.shape)) / 3 + np.arange(3).reshape(3, *[1] * 4) / 3,
    jnp.float32,
)


# The classifier alone, in the variants of the paper's ablation.

VARIANTS = {"sequential": {}, "parallel": {"order": "parallel"}, "kept": {"renewed": False},
            "no fakes": {"fake_steps": 0}, "no records": {"real_steps": 0}}


def each(*names):
    """Variants as parameters: the published one and one with a memory; the others are long."""
    return [pytest.param(name, marks=pytest.mark.slow if name in ("sequential", "kept") else
                         pytest.mark.long) for name in names]



@functools.cache
def variant(name):
    """(now, key=, x=, pool=, kept=) -> (answer, what is asked, what is kept after learning)."""
    config = small_gswgan.dp(**VARIANTS[name])
    extra = dpac._classifier(config, small_datalens.SPEC)

    @jax.jit
    def one(now, key, x, pool, kept):
        k_ask, k_learn, k_answer = jax.random.split(key, 3)
        nothing = jnp.zeros(())
        query = Query(pool, FAKES, LABELS, nothing, now, nothing, extra.ask(k_ask, pool, now))
        kept = extra.learn(k_learn, kept, x, Y, query)
        return extra.direction(k_answer, kept, x, Y, query, SLOPE), query.extra, kept

    fresh = () if config.renewed else mixed_query()[1][1]
    return lambda now=1, key=KEY, x=X, pool=POOL, kept=fresh: one(now, key, x, pool, kept)


def classifiers(name, **changes):
    """The classifier's part of the answer: what is left of beta D + (1 - beta) C."""
    return (variant(name)(**changes)[0] - 0.8 * SLOPE) / 0.2


@pytest.mark.parametrize("name", each(*VARIANTS))
def test_the_critic_answers_alone_until_the_classifier_comes_in(name):
    assert small_datalens.equal(variant(name)(now=0)[0], SLOPE)
    assert np.abs(classifiers(name)).max() > 1e-3


@pytest.mark.parametrize("name", each(*VARIANTS))
def test_what_the_classifier_learns_from(name):
    pool, records = name != "no fakes", name != "no records"
    answer = variant(name)()[0]
    assert small_datalens.equal(variant(name)(pool=POOL[::-1])[0], answer) != pool
    assert small_datalens.equal(variant(name)(x=1 - X)[0], answer) != records


@pytest.mark.long
def test_the_variants_differ():
    answers = {np.asarray(classifiers(name)).tobytes() for name in VARIANTS}
    assert len(answers) == len(VARIANTS)


@pytest.mark.parametrize("name", each("sequential", "parallel", "no fakes", "no records"))
def test_a_renewed_classifier_is_a_function_of_the_public_key_and_the_pool(name):
    """Units keep nothing; what is asked does not read records, and differs with the key."""
    _, mixed_query, kept = variant(name)()
    assert kept == () and small_datalens.equal(variant(name)(x=1 - X)[1], mixed_query)
    later = variant(name)(now=2)[1]
    assert small_datalens.equal(later, mixed_query)  # nothing is carried from step to step
    assert not small_datalens.equal(variant(name)(key=jax.random.key(1))[1], mixed_query)
    untrained = variant(name)(now=0)[1]
    trains = name in ("sequential", "no records")
    assert small_datalens.equal(untrained, mixed_query) != trains and mixed_query[2].count == (
        2 if trains else 0
    )


@pytest.mark.slow
def test_a_classifier_that_is_kept_goes_on_where_it_was():
    """And waits for its time as well."""
    one = variant("kept")
    first = one()[2]
    assert one()[1] == () and first[2].count == 4  # two steps on fakes, two on records
    assert small_datalens.equal(one(now=0, kept=first)[2], first)
    second = one(kept=first)[2]
    assert second[2].count == 8 and not small_datalens.equal(second[0], first[0])


# Whole answers, and how far one unit can move them: the units of an adversary.

CLIP = 1e-4  # below all slopes


@functools.cache
def built(**fields):
    return dpac.build(small_gswgan.dp(renewed=False, clip=CLIP, **fields), small_datalens.SPEC)


@functools.cache
def mixed_query():
    """A question in which the classifier counts, and a unit that keeps its own."""
    method = built()

    @jax.jit
    def one(key):
        query = method.ask(key, method.init(key))
        return dataclasses.replace(query, step=jnp.int32(1)), method.init_unit(key)

    return one(KEY)


@functools.cache
def answers(method):
    """(unit, step) -> float32 [B, D], at the fakes that were asked about."""
    records, query = Records((255 * X).astype(jnp.uint8), Y), mixed_query()[0]
    return jax.jit(lambda unit, step=1: method.answer(
        KEY, unit, records, dataclasses.replace(query, step=step)))


def turned(critic, classifier):
    """The unit with its scores turned into their opposite where -1."""
    ((d, d_vectors, d_adam), (c, c_vectors, c_adam)) = mixed_query()[1]
    d = d | {name: critic * d[name] for name in ("linear", "embedding")}
    c = c | {"linear": classifier * c["linear"]}
    return (d, d_vectors, d_adam), (c, c_vectors, c_adam)


def check_sensitivity(answer, mechanism):
    """Over the two pairs of opposite units; and the worst uses most of what is charged."""
    contribution = jax.jit(mechanism.contribution)

    def message(*signs):
        return np.asarray(contribution(KEY, answer(turned(*signs)), np.zeros(0, np.int32)))

    ((event, _),) = mechanism.events(1)
    worst = max(((message(1, sign) - message(-1, -sign)) ** 2).sum() for sign in (1, -1))
    share = worst / event.squared_sensitivity
    assert share <= 1, f"a unit moves {share:.2f} of what is charged, squared"
    assert share > 0.85


def test_one_unit_moves_the_message_by_what_is_charged():
    method = built()
    check_sensitivity(answers(method), method.mechanism)


@pytest.mark.slow
def test_the_two_gradients_are_clipped_together(monkeypatch):
    """A classifier of a hundred times the slope has its way, within the same bound."""
    plain = built()
    first = answers(plain)(turned(1, 1))  # traced before the name means something else
    monkeypatch.setattr(dpac, "class_score",
                        lambda logits, labels: 100 * class_score(logits, labels))
    loud = built.__wrapped__()
    assert loud.mechanism == plain.mechanism
    check_sensitivity(answers(loud), loud.mechanism)
    second = answers(loud)(turned(1, 1))
    critic = answers(built(beta=1.0))(turned(1, 1))
    np.testing.assert_allclose(second - 0.8 * critic, 100 * (first - 0.8 * critic), rtol=1e-3,
                               atol=1e-4 * np.abs(second).max())


def hooks(unit):
    """As published: D and C are sanitised each for itself, in one step of one charge."""
    return jnp.concatenate([answers(built(beta=beta))(unit) for beta in (1.0, 0.0)])


def hooked(bound, rows):
    """The mechanism with this bound and so many rows of a message."""
    mechanism = built().mechanism
    bound = bound(mechanism.bound.clip, mechanism.bound.columns, rows, mechanism.bound.levels)
    return dataclasses.replace(mechanism, bound=bound, shape=(rows, bound.columns))


@dataclasses.dataclass(frozen=True)
class ChargedOnce(RowL2):
    def squared_sensitivity(self):
        return 4 * self.levels**2 * ROWS


@dataclasses.dataclass(frozen=True)
class AddedUp(RowL2):
    def project(self, key, message):
        return sum(RowL2.project(self, key, half) for half in jnp.split(message, 2))


@pytest.mark.parametrize(("bound", "rows"), [(ChargedOnce, 2 * ROWS), (AddedUp, ROWS)])
def test_two_hooks_charged_once_are_caught(bound, rows):
    with pytest.raises(AssertionError, match="of what is charged"):
        check_sensitivity(hooks, hooked(bound, rows))


def test_two_hooks_charged_twice_would_do():
    check_sensitivity(hooks, hooked(RowL2, 2 * ROWS))


@pytest.mark.slow
def test_without_the_classifier_it_is_gs_wgan():
    """Before t_c, bit for bit, and with beta 1; the mechanism is the same anyhow."""
    theirs = gswgan.build(
        small_gswgan.gs(warm_steps=0, penalty=0.0, clip=CLIP), small_datalens.SPEC
    )
    unit = turned(1, 1)
    alone = answers(theirs)((unit[0], ()))
    assert built().mechanism == theirs.mechanism and np.abs(alone).max() > 1e-3
    np.testing.assert_array_equal(answers(built())(unit, step=0), alone)
    np.testing.assert_array_equal(answers(built(beta=1.0))(unit), alone)
    assert not np.array_equal(answers(built())(unit), alone)


# What it costs, and what is refused.

def test_one_step_is_charged_for_all_its_fakes_and_for_no_gradient_twice():
    mechanism = dpac.mechanism(small_gswgan.dp(batch=7, sigma=1.07), small_datalens.SPEC)
    assert mechanism == gswgan.mechanism(small_gswgan.gs(batch=7, sigma=1.07), small_datalens.SPEC)
    ((event, count),) = mechanism.events(5)
    assert count == 5 and event.mu_squared == pytest.approx(7 / 1.07**2)


def test_as_published():
    config = dataclasses.replace(small_gswgan.dp(), critics=2543, critics_per_step=1, batch=32,
                                 sigma=0.61135, accounting="as-published")
    assert composition.epsilon_of(dpac.mechanism(config, small_datalens.SPEC).events(1),
                                  0.1) == math.inf
    published = methods.published("dpac", config, 1e-5)
    assert published.epsilon(20_000) == pytest.approx(9.2318, abs=5e-5)


def test_a_classifier_beyond_the_steps_of_the_budget_is_refused():
    """The steps are found first: the smallest budget of all allows fewer than t_c."""
    config = small_gswgan.dp(steps=None, t_c=40, sigma=5.0)
    with pytest.raises(UserError, match=r"t_c is 40, but there are only \d+ steps"):
        calibrate_config.complete("dpac", config, small_datalens.SPEC, Budget(5.0, 1e-5))
    assert (
        calibrate_config.complete("dpac", config, small_datalens.SPEC, Budget(50.0, 1e-5)).steps
        > 40
    )
