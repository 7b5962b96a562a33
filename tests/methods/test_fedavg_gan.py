"""Fed-Avg GAN: a client answers with how its own steps move the weights, within the clip; the
promise is for clients."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
import small_datalens
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from jax.flatten_util import ravel_pytree
from small_gswgan import KEY, ROWS, UNITS

from dpgen_jax import presets, train
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, PoissonGaussianEvent
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.schedule import FullParticipation, PoissonSampling, RoundRobin
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import Records, UserError
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.methods import fedavg_gan
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import ConvNet
from dpgen_jax.run import calibrate_config, lifecycle, planning

CONFIG = fedavg_gan.Config(
    clients=UNITS, client_records=8, client_steps=2, client_batch=3, client_rate=0.05, pool=ROWS,
    steps=3, sigma=1.0, g_steps=2, g_batch=4, penalty=0.0, ema=0.5,
    generator=GeneratorNet(4, 16, 4), discriminator=ConvNet(2, 3))
NET = fedavg_gan.scorer(CONFIG, small_datalens.SPEC)
BUDGET = Budget(20.0, 1e-3)


def changed(**fields):
    return dataclasses.replace(CONFIG, **fields)


# The verbs.

@functools.cache
def conversation():
    """One client of all classes, in one step, and the same by a plain formula."""
    config = changed(client_steps=1, client_batch=8, pool=1)
    method = fedavg_gan.build(config, small_datalens.SPEC)
    x, y = small_datalens.images(6)
    own = Records(jnp.asarray(x), jnp.asarray(y, jnp.int32))

    @jax.jit
    def everything(key):
        public = method.init(key)
        query = method.ask(key, public)
        fakes = query.pool[own.y, 0]

        def loss(d):
            real = NET.apply(d, own.x / 255, own.y)
            return jnp.mean(NET.apply(d, fakes, own.y)) - jnp.mean(real)

        slope = ravel_pytree(jax.grad(loss)(public.d))[0]
        released = jnp.ones((1, slope.size))
        new, metrics = method.absorb(key, public, query, released)
        answers = [method.answer(k, jnp.zeros((), jnp.int32), own, query)
                   for k in (key, jax.random.key(9))]
        return {"answers": answers, "slope": slope, "public": public, "new": new,
                "metrics": metrics, "query": query}

    return everything(KEY)


@pytest.mark.slow
def test_the_answer_is_how_the_clients_steps_move_the_weights():
    parts = conversation()
    np.testing.assert_allclose(parts["answers"][0][0], -CONFIG.client_rate * parts["slope"],
                               rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_the_answer_does_not_depend_on_whose_place_it_is():
    """Places of a draw have keys of their own: the answer must be the client's alone, or who else
    is drawn would change it."""
    assert small_datalens.equal(*conversation()["answers"])


def test_the_released_mean_moves_the_weights_and_then_the_generator_learns():
    parts = conversation()
    old, new = (ravel_pytree(parts[name].d)[0] for name in ("public", "new"))
    np.testing.assert_allclose(new, old + 1, rtol=1e-6)
    assert int(parts["new"].g_optimiser.count) == CONFIG.g_steps and int(parts["new"].step) == 1
    assert not small_datalens.equal(parts["public"].g, parts["new"].g)
    assert small_datalens.equal(parts["new"].average, parts["new"].g)  # of one round
    assert small_datalens.equal(parts["query"].d, parts["public"].d)
    assert all(math.isfinite(value) for value in parts["metrics"].values())


# The mechanism.

@pytest.mark.parametrize(
    ("fields", "kind", "schedule"),
    [
        ({}, SumMechanism, FullParticipation()),
        ({"clients_per_round": UNITS}, SumMechanism, FullParticipation()),
        ({"clients_per_round": 2}, SumMechanism, PoissonSampling(UNITS, 2)),
        ({"federated": True}, LocalMechanism, FullParticipation()),
        ({"federated": True, "clients_per_round": 2}, LocalMechanism, RoundRobin(3)),
    ],
)
def test_what_a_round_costs(fields, kind, schedule):
    """The sensitivity, in the unit of the weights, is 2 clip; the noise sigma clip."""
    built = fedavg_gan.mechanism(changed(**fields), small_datalens.SPEC)
    assert (type(built), built.schedule, built.unit, built.relation) == (kind, schedule, "client",
                                                                                         "replace-one")
    ((event, count),) = built.events(3)
    sampled = isinstance(schedule, PoissonSampling)
    assert type(event) is (PoissonGaussianEvent if sampled else GaussianEvent)
    assert count == (1 if isinstance(schedule, RoundRobin) else 3)
    release = event.gaussian if sampled else event
    assert event.sensitivity * release.grid == pytest.approx(2 * CONFIG.clip)
    assert release.sigma * release.grid == pytest.approx(CONFIG.clip)


def test_no_answer_moves_the_sum_further_than_declared():
    mechanism = fedavg_gan.mechanism(CONFIG, small_datalens.SPEC)
    columns = mechanism.shape[1]
    rng = np.random.default_rng(0)
    one = np.zeros(columns, np.float32)
    one[3] = 1e9
    hard = [one, -one, np.full(columns, np.nan), np.full(columns, 1e30), np.zeros(columns),
            *rng.normal(0, 1, (5, columns)), *-rng.normal(0, 1e-3, (3, columns))]
    sent = np.asarray([mechanism.contribution(KEY, jnp.asarray(m[None], jnp.float32),
                                              jnp.zeros(0, jnp.int32))[0] for m in hard], np.int64)
    moved = ((sent[:, None] - sent[None])**2).sum(-1)
    most = mechanism.bound.squared_sensitivity()
    assert moved.max() <= most and moved[0, 1] > 0.97 * most
    assert not sent[2].any()


def independent(config, delta):
    """Epsilon by `dp_accounting`, from the definition of sigma alone."""
    visits, cohort = config.steps, config.clients_per_round or config.clients
    if cohort == config.clients or config.federated:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
        event, visits = GaussianDpEvent(config.sigma / 2), -(-visits * cohort // config.clients)
    else:
        accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-3)
        event = PoissonSampledDpEvent(cohort / config.clients, GaussianDpEvent(config.sigma))
    return accountant.compose(event, visits).get_epsilon(delta)


@pytest.mark.parametrize("name", presets.all_of("fedavg_gan"))
def test_presets_keep_their_epsilon(name):
    preset = presets.get("fedavg_gan", name)[1]
    config = calibrate_config.complete(
        "fedavg_gan", preset.config, preset.spec, Budget(preset.epsilon, preset.delta)
    )
    events = fedavg_gan.mechanism(config, preset.spec).events(config.steps)
    assert 0.98 * preset.epsilon < composition.epsilon_of(events, preset.delta) <= preset.epsilon
    assert independent(config, preset.delta) == pytest.approx(preset.epsilon, rel=0.02)


# Whole runs.

def fit(root, data, clients=None, budget=BUDGET, **fields):
    data, config = planning.federated(data, changed(**fields), clients)
    request = lifecycle.Resolved(
        "fedavg_gan", "glyphs", config, budget, Runtime(devices=1, chunk=2), root
    )
    return lifecycle.run(request, data, lambda line: None)


@pytest.mark.slow
def test_clients_of_any_sizes_sampled_by_chance(tmp_path):
    owners = np.repeat(np.arange(4), (1, 30, 5, 24))
    data = dataclasses.replace(from_arrays(*small_datalens.images(60), 3), clients=owners)
    release = fit(tmp_path / "run", data, sigma=None, clients_per_round=2)
    said = json.loads((tmp_path / "run/release/privacy.json").read_text())
    expected = {"unit": "client", "relation": "replace-one", "clients": 4, "steps": 3,
                "epsilon": 20.0}
    assert expected.items() <= said.items() and "records" not in said
    assert release.config.clients == 4 and said["events"][0]["rate"] == pytest.approx(0.5)
    assert release.arrays(4)[0].shape == (4, 8, 8, 1)


@pytest.mark.long
def test_tables_and_a_data_set_without_clients(tmp_path):
    data = Dataset("people", people_table.SPEC, *people_table.table(40))
    release = fit(tmp_path / "run", data, hidden=(8,), sigma=None)
    assert release.config.clients == UNITS and release.privacy["unit"] == "record"
    assert release.privacy["simulated_clients"] == UNITS and release.privacy["records"] == 40
    assert f"{UNITS} simulated clients: " in release.privacy["data_notes"][-1]
    assert release.arrays(3)[0].shape == (3, 4)
    data = from_arrays(*small_datalens.images(60), 3)
    assert planning.federated(data, CONFIG, 7)[1].clients == 7


@pytest.mark.long
def test_the_command(tmp_path):
    train.command(["fedavg_gan", "--dataset", "glyphs", "--out", str(tmp_path / "run"), *(
        f"--{name}={value}" for name, value in {
            "clients": 40, "client-records": 4, "steps": 2, "pool": 2, "g-batch": 4, "penalty": 0,
            "discriminator.channels1": 2, "discriminator.channels2": 2, "generator.hidden": 8,
            "generator.channels": 4, "devices": 1, "chunk": 4}.items())])
    said = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert (said["epsilon"], said["unit"], said["simulated_clients"]) == (10.0, "record", 40)


def test_class_counts_of_records_do_not_cover_a_client():
    with pytest.raises(UserError, match="does not cover a client"):
        calibrate_config.complete(
            "fedavg_gan", CONFIG, small_datalens.SPEC, Budget(10.0, 1e-5, 0.1)
        )
