"""G-PATE does what its paper says, verb by verb and through the real loop: on images, and on a
table with numbers, nulls and a category."""

import dataclasses
import functools
import math
import stat
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import toy
from scipy.stats import norm

from dpgen_jax import api, data_dependent, loop, plan, presets
from dpgen_jax.accountant import calibrate, gaussian, ledger
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import projection
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.config import Budget, Runtime
from dpgen_jax.data import Dataset
from dpgen_jax.methods import gpate
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair
from dpgen_jax.private import partition
from dpgen_jax.private import votes as log
from dpgen_jax.private.teachers import Units
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.types import Array, Column, Private, Records, TableSpec, UserError, unseal

TABLE = TableSpec((Column("age", "continuous", 0, 99), Column("height", "integer", 50, 220),
                   Column("weight", "continuous", 0, 300, nullable=True),
                   Column("eyes", "categorical", categories=("blue", "brown", "green"))),
                  Column("class", "categorical", categories=("a", "b", "c")), 0)
CONFIG = gpate.Config(
    teachers=5, batch=2, projection=4, bins=4, sigma=4.0, threshold=0.4, steps=6, clip=5e-4,
    d_steps_first=2, d_optimiser=Adam(2e-2), generator=GeneratorNet(4, 16, 8),
    discriminator=DiscriminatorNet(4, 8, 8))
WAYS = {"gnmax": {}, "mean": {"aggregate": "mean"}, "sum": {"aggregate": "sum"},
        "topk": {"aggregate": "topk", "projection": 3},
        "full": {"aggregate": "sum", "projection": 0}}
METHODS = {way: gpate.build(dataclasses.replace(CONFIG, **fields), TABLE)
           for way, fields in WAYS.items()}
QUERIES, F = 8, 7
ABSTAINING = gpate.build(dataclasses.replace(CONFIG, abstain=True), TABLE)
NET_G, NET_D = pair(TABLE, CONFIG.generator, CONFIG.discriminator)
KEY = jax.random.key(7)
FAST = {"xla_backend_optimization_level": 0}
"""of the compiler: optimising takes longer than all that is run here"""


def rows(n=23, seed=0):
    """Encoded rows float32 [n, F] and labels."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, F)).astype(np.float32)
    x[:, 3] = x[:, 3] < 0.3
    x[:, 4:] = np.eye(3)[rng.integers(0, 3, n)]
    return x, rng.integers(0, 3, n)


# The verbs. What differs between the ways are pure functions; the rest is one of them in full.

@functools.cache
def given(way):
    """What the skeleton is given: (question of a key, or None; message; direction)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpate, "converse", lambda *args, **functions: functions)
        functions = gpate.build(dataclasses.replace(CONFIG, **WAYS[way]), TABLE)
    return functions.get("question"), functions["message"], functions["direction"]


@pytest.mark.parametrize("way", WAYS)
def test_messages_are_projected_and_what_is_released_is_taken_back(way, rng):
    question, message, direction = given(way)
    gradients = rng.normal(size=(2, F)).astype(np.float32)
    if way in ("topk", "full"):
        assert question is None
        np.testing.assert_array_equal(message((), gradients), gradients)
        scale = CONFIG.clip if way == "topk" else 1
        np.testing.assert_allclose(direction((), gradients), scale * gradients, rtol=1e-6)
        return
    matrices = rng.normal(size=(2, F, 4)).astype(np.float32)
    released = rng.normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(message(matrices, gradients), np.stack(
        [gradients[b] @ matrices[b] for b in range(2)]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(direction(matrices, released), np.stack(
        [matrices[b] @ released[b] for b in range(2)]), rtol=1e-4, atol=1e-6)


RELEASED = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)


@functools.cache
def conversation():
    """The first step with one teacher, and the same by plain formulas."""
    method = METHODS["gnmax"]
    records = Records(jnp.asarray(rows(4)[0]), jnp.array([0, 2, 0, 2], jnp.int32))

    @functools.partial(jax.jit, compiler_options=FAST)
    def everything(key, other):
        public, unit = method.init(key), method.init_unit(key)
        asked = method.ask(key, public)
        new, metrics = method.absorb(key, public, asked, RELEASED)
        moved = jnp.einsum("bdk,bk->bd", asked.question, RELEASED)
        target = asked.fakes + moved

        def teacher(fakes):
            logits = NET_D.apply(unit[0], fakes[None], asked.labels[None])[0]
            return -jnp.log(jax.nn.sigmoid(logits)).sum() / CONFIG.batch

        def student(params):
            fakes = NET_G.generate(params, asked.latents, asked.all_labels)[3 * CONFIG.batch:]
            return ((fakes - target) ** 2).sum()

        return SimpleNamespace(
            public=public, asked=asked, new=new, metrics=metrics, moved=moved,
            other=method.ask(other, public), after=student(new.params),
            answer=method.answer(key, unit, records, asked),
            silent=ABSTAINING.answer(key, unit, records, dataclasses.replace(
                asked, labels=jnp.array([1, 2]))),
            teacher=jax.grad(teacher)(asked.fakes),
            student=jax.value_and_grad(student)(public.params)).__dict__

    return SimpleNamespace(**everything(KEY, jax.random.key(1)))


def test_the_question_is_a_fresh_matrix_for_each_fake_and_step():
    first, second = conversation().asked.question, conversation().other.question
    assert first.shape == (2, F, 4)
    every = np.concatenate([first, second]).reshape(4, -1)
    assert len(np.unique(every)) == every.size
    assert np.abs(np.corrcoef(every) - np.eye(4)).max() < 0.9


def test_the_question_is_a_function_of_the_public_key():
    k_question = jax.random.split(KEY, 3)[2]
    np.testing.assert_allclose(conversation().asked.question, projection.matrices(
        k_question, 2, F, 4), rtol=1e-5, atol=1e-7)


def test_the_answer_is_minus_the_gradient_of_the_mean_loss_projected():
    told = conversation()
    expected = np.stack([-told.teacher[b] @ told.asked.question[b] for b in range(2)])
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(told.answer, expected, rtol=1e-3, atol=1e-6)


def test_a_teacher_may_have_no_say_on_classes_that_it_does_not_hold():
    """Asked about classes 1 and 2, it holds 0 and 2; votes of a row of NaN there are none."""
    silent = conversation().silent
    assert np.isnan(silent[0]).all() and np.isfinite(silent[1]).all()
    votes = ABSTAINING.mechanism.bound.project(KEY, silent)
    assert votes.sum(1).tolist() == [0, 4] and np.isfinite(conversation().answer).all()


def test_the_generator_takes_one_adam_step_towards_the_moved_fakes():
    told, adam = conversation(), optax.adam(1e-3, 0.5, 0.999)
    before, grads = told.student
    assert float(told.metrics["generator_loss"]) == pytest.approx(
        float((told.moved**2).sum()), rel=1e-3)
    assert float(told.metrics["released_rms"]) == pytest.approx(
        math.sqrt((RELEASED**2).mean()), rel=1e-4)
    updates, _ = adam.update(grads, adam.init(told.public.params))
    expected, new, slope = (
        np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])
        for tree in (optax.apply_updates(told.public.params, updates), told.new.params, grads))
    clear = np.abs(slope) > 1e-4 * np.abs(slope).max()  # not the sign of a rounding error
    assert clear.mean() > 0.3 and told.after < before and int(told.new.step) == 1
    np.testing.assert_allclose(new[clear], expected[clear], atol=1e-6)


def test_what_each_way_bounds_and_pays():
    bounds = {way: method.mechanism.bound for way, method in METHODS.items()}
    votes = OneHot(4, 4, 2, 5e-4)
    assert bounds == {"gnmax": votes, "mean": votes, "sum": RowL2(5e-4, 4, 2, 32),
                      "topk": TopKSign(3, 2, 5e-4), "full": RowL2(5e-4, F, 2, 32)}
    squared = {way: gaussian.mu_squared(method.mechanism.events(1)) * 16
               for way, method in METHODS.items()}
    assert squared == pytest.approx({
        "gnmax": QUERIES * (2 + 1 / 9), "mean": 2 * QUERIES, "sum": 2 * 4 * 32**2,
        "topk": 4 * 3 * 2, "full": 2 * 4 * 32**2})
    shapes = {way: method.mechanism.shape for way, method in METHODS.items()}
    assert shapes == {"gnmax": (2, 16), "mean": (2, 16), "sum": (2, 4), "topk": (2, F),
                      "full": (2, F)}
    assert [way for way in WAYS if METHODS[way].mechanism.keeps_votes] == ["gnmax"]


# The real loop. A public state with `told` 0 hears zeros, whatever was released.

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Told:
    inner: Any
    told: Array


def tell(method):
    def absorb(key, public, query, released):
        inner, metrics = method.absorb(key, public.inner, query, public.told * released)
        return Told(inner, public.told), metrics

    return dataclasses.replace(
        method, absorb=absorb, init=lambda key: Told(method.init(key), jnp.float32(1)),
        ask=lambda key, public: method.ask(key, public.inner),
        refine=lambda key, public: method.refine(key, public.inner))


SPECS = {"table": TABLE, "image": toy.SPEC}
DATA = {"table": rows(), "image": toy.images(23)}
LOOPED = {kind: tell(gpate.build(CONFIG, spec)) for kind, spec in SPECS.items()}
WHERE = toy.layout(chunk=1, units=5)
RECORD = 11
OWNER = int(np.argwhere(partition.assign(23, 5, toy.KEY).index == RECORD)[0][0])
compile_block = loop.compile_block


@functools.cache
def block(method, layout):
    """Compiled once: what is compared are runs of one program."""
    traced, compiled = compile_block(method, layout), []

    def call(*args):
        if not compiled:
            compiled.append(traced.lower(*args).compile(FAST))
        return compiled[0](*args)

    return call


@functools.cache
def fresh(kind):
    """A state before the first step, on the host: random weights, and the rest zeros."""
    method, rng = LOOPED[kind], np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: (method.init(KEY), method.init_unit(KEY)))
    public, _ = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
    params = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32),
                          public.inner.params)
    public = Told(dataclasses.replace(public.inner, params=params, average=params), np.float32(1))
    weights, adam = jax.tree.map(lambda a: np.zeros((5, *a.shape), a.dtype), shapes[1])
    weights = jax.tree.map(lambda a: rng.normal(0, 0.1, a.shape).astype(np.float32), weights)
    keys = np.asarray(jax.random.key_data(jax.random.split(KEY, 5)))
    return public, Units((weights, adam), keys, np.arange(5, dtype=np.int32),
                         np.zeros(5, np.uint8)), KEY


def start(kind, told=1.0):
    public, units, key = fresh(kind)
    public = dataclasses.replace(public, told=np.float32(told))
    return loop.State(jax.device_put(public, WHERE.replicated), tiny.lay(units, WHERE), key)


def train(path, kind, data, told=1.0, steps=4):
    """The real loop and ledger: (public, units, the kept sums of every step, what was spent)."""
    votes = path / "votes"
    with Ledger.create(path / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as held, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        state = loop.train(
            LOOPED[kind], toy.placed(*data, WHERE, SPECS[kind]), start(kind, told), WHERE, held,
            SeededBits(0), steps=steps, steps_per_call=2, on_block=lambda state, metrics: None,
            keep=functools.partial(log.append, votes))
        return *toy.held(state, WHERE), read(votes), held.spent()


def read(path):
    return unseal(log.read(path, QUERIES, CONFIG.bins))


def neighbour(kind):
    """The content and the label of one record replaced."""
    x, y = (a.copy() for a in DATA[kind])
    x[RECORD] = 255 - x[RECORD] if kind == "image" else rows(1, seed=9)[0][0]
    y[RECORD] = (y[RECORD] + 1) % 3
    return x, y


@pytest.mark.parametrize("kind", SPECS)
def test_one_record_changes_one_unit_one_vote_and_no_public_state(tmp_path, kind):
    runs = []
    for name, data in (("a", DATA[kind]), ("b", neighbour(kind))):
        (tmp_path / name).mkdir()
        runs.append(train(tmp_path / name, kind, data, told=0.0))
    (public, units, votes, _), (public2, units2, votes2, _) = runs
    assert toy.equal(public, public2) and int(public.inner.step) == 4
    assert toy.differing_units(units, units2) == {OWNER}
    moved = votes2.counts - votes.counts
    assert moved.any() and not moved.sum(1).any()
    assert np.abs(moved).sum(1).max() == 2  # in no histogram more than one vote
    assert set(votes.counts.sum(1)) == {5}  # of the five teachers


@pytest.mark.parametrize("kind", SPECS)
def test_the_generator_hears_the_votes(tmp_path, kind):
    ends = []
    for told in (0.0, 1.0):
        (tmp_path / str(told)).mkdir()
        ends.append(train(tmp_path / str(told), kind, DATA[kind], told)[0].inner)
    assert not toy.equal(*ends)


def decided(counts, bits):
    """What was answered, bool [steps * queries], from sums and the bits of every step."""
    mechanism = LOOPED["table"].mechanism
    decide = jax.jit(lambda votes, bits: mechanism.decide(votes, bits).answered)
    steps = zip(counts.reshape(-1, *mechanism.shape), bits, strict=True)
    return np.concatenate([np.ravel(decide(votes, b)) for votes, b in steps]) == 1


def alone(unit):
    """The votes of one unit in the first step: the others get ids beyond the last, as padding."""
    state = start("table")
    ids = np.asarray(unseal(state.units).id)
    ids = jax.device_put(np.where(ids == unit, ids, 5).astype(np.int32), WHERE.by_unit)
    units = Private(dataclasses.replace(unseal(state.units), id=ids))
    bits = np.zeros((2, *LOOPED["table"].mechanism.bits_shape), np.uint32)
    records = toy.placed(*DATA["table"], WHERE, TABLE)
    votes = tiny.call(block(LOOPED["table"], WHERE), state, records, WHERE, bits, 0, 1, units)[4]
    return np.asarray(unseal(votes))[0].reshape(QUERIES, -1)


def test_what_is_kept_are_the_sums_and_what_is_settled_the_answers(tmp_path):
    _, _, votes, spent = train(tmp_path, "table", DATA["table"], steps=5)
    assert votes.steps == 5 and set(votes.counts.sum(1)) == {5}
    each = [alone(unit) for unit in range(5)]
    assert all((one.sum(1) == 1).all() for one in each)
    np.testing.assert_array_equal(votes.counts[:QUERIES], sum(each))
    bits = SeededBits(0).draw((5, *LOOPED["table"].mechanism.bits_shape))
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, bits))
    test, answer = (event for event, _ in LOOPED["table"].mechanism.events(1))
    assert spent == ((test, 5 * QUERIES), (answer, int(votes.answered.sum())))
    assert 0 < votes.answered.sum() < 5 * QUERIES


# A whole run keeps its votes.

class Cut(BaseException):
    """What ends a run at a draw, as nothing in the library catches it."""


BUDGET = Budget(40.0, 1e-3)


def run(root, monkeypatch, resume=False):
    """On the block that is compiled already; what is made of the generator is not looked at."""
    method = dataclasses.replace(LOOPED["table"], refine=lambda key, public: public.inner.average)
    monkeypatch.setattr(gpate, "build", lambda config, spec, runtime: method)
    monkeypatch.setattr(loop, "compile_block", lambda method, where: block(LOOPED["table"], where))
    monkeypatch.setattr(api.pictures, "write", lambda files, release: None)
    runtime = Runtime(devices=1, chunk=1, steps_per_call=2, checkpoint_minutes=0)
    asked = api.Run("gpate", "mnist-eps1", CONFIG, BUDGET, runtime, root, resume, seed=3)
    return api.run(asked, Dataset("rows", TABLE, *DATA["table"]), lambda line: None)


def test_a_run_keeps_its_votes_and_goes_on_with_them_after_a_crash(tmp_path, monkeypatch):
    root, files, shape = tmp_path / "run", RunFolder(tmp_path / "run"), LOOPED["table"].mechanism
    draw = SeededBits.draw

    def cut(self, shape):
        if self.step == 2:
            raise Cut
        return draw(self, shape)

    with monkeypatch.context() as patched:
        patched.setattr(SeededBits, "draw", cut)
        with pytest.raises(Cut):
            run(root, monkeypatch)
    first = files.votes.read_bytes()
    assert stat.S_IMODE(files.votes.stat().st_mode) == 0o600 and read(files.votes).steps == 2
    release = run(root, monkeypatch, resume=True)

    votes, held = read(files.votes), ledger.account(ledger.read(files.ledger))
    assert files.votes.read_bytes().startswith(first) and votes.steps == 6
    bits = [SeededBits(3, incarnation).draw((steps, *shape.bits_shape))
            for incarnation, steps in ((0, 2), (1, 4))]
    np.testing.assert_array_equal(votes.answered, decided(votes.counts, np.concatenate(bits)))
    test, answer = (event for event, _ in shape.events(1))
    lost = 2 * QUERIES  # charged at their worst
    assert held.spent() == ((test, 6 * QUERIES + lost),
                            (answer, int(votes.answered.sum()) + lost))
    assert release.privacy["epsilon"] == 40 and release.privacy["steps"] == 6
    seen = data_dependent.reading(root)
    assert seen["votes"]["steps charged without votes"] == 2
    with pytest.raises(UserError, match="8 steps are charged and the votes of 6"):
        data_dependent.publish(root)
    assert not [p for p in files.release.iterdir() if p.suffix == ".i4"]


# Presets.

ALL = presets.all_of("gpate")
PRIVATE = [name for name in ALL if ALL[name].epsilon < math.inf]


def mu_squared(config, spec):
    """Of one step, by hand."""
    columns = config.projection or math.prod(spec.shape)
    squared = {"gnmax": 2 + 1 / config.sigma_ratio**2, "mean": 2, "topk": 4}.get(config.aggregate)
    if squared is None:
        return 4 * config.batch * max(32, math.ceil(8 * math.sqrt(columns)))**2 / config.sigma**2
    return config.batch * columns * squared / config.sigma**2


def steps_by_hand(config, spec, epsilon, delta=1e-5):
    """The Gaussian mechanism of Balle and Wang (2018), T times."""
    def fits(steps):
        mu = math.sqrt(steps * mu_squared(config, spec))
        return (norm.cdf(mu / 2 - epsilon / mu)
                - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) <= delta

    return next(steps for steps in range(2000) if not fits(steps + 1))


@functools.cache
def planned(name):
    preset = ALL[name]
    budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
    return plan.complete("gpate", preset.config, preset.spec, budget)


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_preset_builds_and_spends_its_budget(name):
    preset, config = ALL[name], planned(name)
    left = preset.epsilon - preset.class_epsilon
    mechanism = gpate.build(config, preset.spec).mechanism
    spent = gaussian.epsilon(mechanism.events(config.steps), preset.delta)
    assert spent <= left and config.steps == steps_by_hand(config, preset.spec, left)
    if preset.config.steps is None:
        assert gaussian.epsilon(mechanism.events(config.steps + 1), preset.delta) > left
    else:  # the least noise
        less = dataclasses.replace(config, sigma=0.999 * config.sigma)
        assert steps_by_hand(less, preset.spec, left) < config.steps == preset.config.steps
    assert mechanism.n_units == config.teachers <= preset.records


@pytest.mark.parametrize("name", ALL)
def test_every_preset_names_its_source(name):
    source = ALL[name].source
    assert "Long et al. 2021" in source or "benchmarks/gpate.py" in source


def test_published_settings():
    config = ALL["mnist-eps1"].config
    assert (config.teachers, config.batch, config.projection, config.bins, config.clip) == (
        4000, 15, 10, 10, 1e-4)
    assert (config.sigma, config.sigma_threshold, config.threshold) == (1000, 3000, 0.5)
    assert planned("mnist-eps1").steps == planned("fashion-eps1").steps == 226
    assert ALL["mnist-eps1"].paper_steps == 232
    config = ALL["fashion-eps10"].config
    assert (config.teachers, config.batch, config.sigma, config.sigma_threshold) == (
        2000, 30, 100, 600)
    assert ALL["mnist-eps1-paper"].config.bins == 5 and ALL["credit"].config.projection == 5
    for name, preset in ALL.items():
        if "Long" in preset.source:  # a teacher's whole part of the records in every step
            most = min(64, preset.records // preset.config.teachers)
            assert preset.config.batch <= most, name


@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_small_budgets_are_the_settings_of_epsilon_1_stopped_earlier(name):
    names = [f"{name}-eps{epsilon}" for epsilon in (0.2, 0.4, 0.6, 0.8, 1)]
    assert len({ALL[n].config for n in names}) == 1
    assert [ALL[n].epsilon for n in names] == [0.2, 0.4, 0.6, 0.8, 1]
    steps = [planned(n).steps for n in names]
    assert steps == sorted(set(steps)) and steps[0] >= 10


def test_presets_without_noise_say_so():
    for name in ALL.keys() - PRIVATE:
        config = planned(name)
        events = gpate.build(config, ALL[name].spec).mechanism.events(config.steps)
        assert config.sigma == 0 and gaussian.epsilon(events, 1e-5) == math.inf


def test_the_papers_delta_is_no_protection_for_its_larger_data_sets():
    """1e-5 is kept where it is not below 1 / records; a run then asks for another."""
    refused = {name for name in PRIVATE if ALL[name].delta >= 1 / ALL[name].records}
    assert refused == {name for name in ALL if name.startswith(("gender", "hair"))} | {"credit"}
    for name in PRIVATE:
        preset = ALL[name]
        if name in refused:
            with pytest.raises(UserError, match="no protection"):
                calibrate.check_budget(preset.epsilon, preset.delta, preset.records)
        else:
            calibrate.check_budget(preset.epsilon, preset.delta, preset.records)


# Refused.

@pytest.mark.parametrize(("fields", "text"), [
    ({"projection": F + 1}, f"projection is {F + 1}; the records have only {F} features"),
    ({"bins": 6}, "6 bins for 5 votes"), ({"threshold": 0.0}, "threshold is 0"),
    ({"bins": 1}, "bins is 1")])
def test_what_does_not_fit_the_records_is_refused(fields, text):
    with pytest.raises(UserError, match=text) as caught:
        gpate.build(dataclasses.replace(CONFIG, **fields), TABLE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [
    ("projection", -1), ("bins", 0), ("clip", 0.0), ("clip", math.nan), ("sigma_ratio", 0.0),
    ("sigma", -1.0), ("teachers", 0)])
def test_settings_that_mean_nothing_are_named(field, value):
    with pytest.raises(UserError, match=field):
        dataclasses.replace(CONFIG, **{field: value})


def test_without_noise_the_votes_are_counted_exactly():
    mechanism = gpate.mechanism(dataclasses.replace(CONFIG, sigma=0.0), TABLE)
    assert isinstance(mechanism, ConfidentGNMax) and mechanism.bits_shape == (QUERIES, 5, 0)
    assert gaussian.epsilon(mechanism.events(1), 1e-5) == math.inf
