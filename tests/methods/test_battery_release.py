"""The way from the last charge to the release: a mistake of a method there is found before the
first charge, or costs no more than a resumed run, which releases what was paid for.

Mistakes are planted in a method that computes almost nothing, and every method is shown to have
none that is found so.
"""

import dataclasses

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_datalens
import test_battery

from dpgen_jax import methods
from dpgen_jax.accountant import ledger as books
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Method, PostTraining, Records, Refinement
from dpgen_jax.methods import datalens
from dpgen_jax.release import bundle, guarantee
from dpgen_jax.run import checkpoint, lifecycle, loop, noise_digests, stages
from dpgen_jax.run.progress import Notices

SPEC, STEPS, RUNTIME = small_datalens.SPEC, 2, Runtime(devices=1, chunk=4, steps_per_call=1)
SIZE = int(np.prod(SPEC.shape))
RECORDS = Records(jax.ShapeDtypeStruct((5, *SPEC.shape), np.uint8),
                  jax.ShapeDtypeStruct((5,), np.int32))


def plain(config=small_datalens.CONFIG, spec=SPEC, runtime=None, **changes) -> Method:
    """A method whose model is the sum of what was released."""
    mechanism = datalens.mechanism(config, spec)

    def answer(key, unit, records, query):
        return jnp.broadcast_to(records.x.reshape(-1, SIZE).mean(0) / 255, query.shape)

    def absorb(key, public, query, released):
        return {"net": {"sum": public["net"]["sum"] + released.sum(0)}}, {"size": released.sum()}

    def sample(model, key, labels):
        image = jnp.clip(model["net"]["sum"], 0, 1).reshape(spec.shape)
        return jnp.broadcast_to(image, (len(labels), *spec.shape))

    return dataclasses.replace(Method(
        mechanism=mechanism, init=lambda key: {"net": {"sum": jnp.zeros(SIZE)}},
        ask=lambda key, public: jnp.zeros((mechanism.bound.rows, SIZE)), answer=answer,
        absorb=absorb, sample=sample), **changes)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """train(resume=False, later=None, **changes) -> (release, warnings): a run of `plain`, so
    changed; later: the changes of the phase that makes all rounds but the first."""
    def one(resume=False, later=None, **changes):
        def build(*args):
            phases = () if later is None else (plain(*args), plain(*args, **later))
            return plain(*args, phases=phases, **changes)

        for cached in (bundle.built_model, bundle.compiled_model, bundle.arrays_of_model):
            cached.cache_clear()
        warnings = []
        with monkeypatch.context() as patch:
            patch.setattr(datalens, "build", build)
            release = lifecycle.run(
                runs.request(tmp_path / "run", resume=resume, steps=STEPS, runtime=RUNTIME),
                runs.dataset(), lambda line: None, Notices(warnings.append))
        return release, [line for line in warnings if line.startswith("warning: ")]

    yield one
    for cached in (bundle.built_model, bundle.compiled_model, bundle.arrays_of_model):
        cached.cache_clear()


def account(tmp_path):
    return books.account(books.read(tmp_path / "run/ledger.jsonl"))


def saved(tmp_path):
    return checkpoint.steps(runs.files(tmp_path / "run").checkpoints)


# --- what is found before anything is spent

@pytest.mark.parametrize("name", test_battery.marked(methods.NAMES))
def test_what_a_method_releases_can_be_stored_and_used(name):
    spec = test_battery.spec_of(name)
    method = methods.get(name).build(test_battery.small(name), spec)
    bundle.check(method, spec)
    loop.check(method, Records(jax.ShapeDtypeStruct((6, *spec.shape), spec.dtype),
                               jax.ShapeDtypeStruct((6,), np.int32)))


def released(make):
    return {"finalize": lambda key, public: make(public["net"]["sum"])}


def trained(init=lambda key, public: public, step=lambda key, state, i: (state, {})):
    return {"post_training": PostTraining(3, init, step)}


def missing(*args):
    raise KeyError("no such array")


FAULTS = {
    "a bare array": (released(lambda a: a), "`Method.finalize` returns .*cannot be released"),
    "no array": (released(lambda a: {"net": {"sum": a}, "extra": None}), "cannot be released"),
    "a list of arrays": (released(lambda a: {"net": [a]}), "cannot be released"),
    "an empty part": (released(lambda a: {"net": {"sum": a}, "extra": {}}), "cannot be released"),
    "a name with a slash": (released(lambda a: {"net/sum": a}), "cannot be released"),
    "a name that is no text": (released(lambda a: {0: a}), "cannot be released"),
    "a type that no file has": (released(lambda a: {"net": {"sum": a.astype(jnp.bfloat16)}}),
                                "cannot be released"),
    "a random key": (released(lambda a: {"key": jax.random.key(0)}), "cannot be released"),
    "finalize raises": ({"finalize": missing}, "`Method.finalize` fails .*no such array"),
    "sample reads another array": (released(lambda a: {"net": {"mean": a}}),
                                   "`Method.sample` fails .*KeyError: 'sum'"),
    "sample returns flat rows": ({"sample": lambda model, key, labels: jnp.zeros(
        (len(labels), SIZE))}, r"`Method.sample` returns float32 of shape \[.*64\], expected"),
    "sample returns integers": ({"sample": lambda model, key, labels: jnp.zeros(
        (len(labels), *SPEC.shape), jnp.int32)}, "`Method.sample` returns int32"),
    "no use": ({"sample": None}, "neither `sample` nor `predict`"),
    "predict raises": ({"predict": missing}, "`Method.predict` fails"),
    "predict knows one class": ({"predict": lambda model, x: jnp.zeros(len(x))},
                                "`Method.predict` returns"),
    "shares of other classes": ({"class_shares": lambda model: model["net"]["sum"]},
                                "`Method.class_shares` returns"),
    "post-training cannot begin": (trained(init=missing), "`Method.post_training.init` fails"),
    "post-training changes a shape": (trained(step=lambda key, state, i: (
        {"net": {"sum": state["net"]["sum"][:2]}}, {})), "`Method.post_training.step` returns"),
    "post-training has no scalar metric": (trained(step=lambda key, state, i: (
        state, {"loss": state["net"]["sum"]})), "`Method.post_training.step` returns"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_release_that_could_not_be_made_is_found(fault):
    changes, message = FAULTS[fault]
    with pytest.raises(TypeError, match=message):
        bundle.check(plain(**changes), SPEC)


ROUNDS = {
    "ask": lambda key, public: 1.5, "learn": lambda key, unit, records, query: jnp.zeros(2),
    "answer": lambda key, unit, records, query: query[:, 0],
    "absorb": lambda key, public, query, released: ({"net": {"sum": jnp.zeros(3)}}, {})}


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.parametrize("later", [False, True])
def test_a_round_that_could_not_be_made_is_found(name, later):
    """A later phase is not compiled before the rounds of the first one are paid for."""
    wrong = plain(**{name: ROUNDS[name]})
    with pytest.raises(TypeError, match=f"`Method.{name}` returned a wrong shape or type"):
        loop.check(plain(phases=(plain(), wrong)) if later else wrong, RECORDS)


@pytest.mark.parametrize("changes", [
    FAULTS["a bare array"][0], FAULTS["sample reads another array"][0],
    {"answer": ROUNDS["answer"]}], ids=["a bare array", "sample", "answer"])
def test_what_is_found_is_refused_before_there_is_a_run(train, tmp_path, changes):
    with pytest.raises(TypeError, match=r"`Method\.(finalize|sample|answer)`"):
        train(**changes)
    assert not (tmp_path / "run").exists()


# --- what is not: a checkpoint is there, from which a mended method is released

def fails_when_computed(key, public):
    return jax.tree.map(lambda a: jax.pure_callback(missing, a, a), public)


class Killed(BaseException):
    """Ends a run, as nothing catches it."""


def raising(error):
    def one(*args, **options):
        raise error

    return one


@pytest.mark.parametrize(("owner", "name", "error"), [
    (None, "finalize", Exception), (guarantee, "statement", ZeroDivisionError),
    (bundle.Release, "save", RuntimeError), (stages, "_save", KeyboardInterrupt)])
def test_an_error_after_the_last_step_leaves_a_checkpoint(train, tmp_path, monkeypatch, owner, name,
                                                          error):
    with monkeypatch.context() as patch:
        if owner:
            patch.setattr(owner, name, raising(error))
        with pytest.raises(error):
            train(**({} if owner else {name: fails_when_computed}))
    spent = account(tmp_path)
    assert spent.steps == STEPS and saved(tmp_path) == [STEPS]
    release, warnings = train(resume=True)
    assert not warnings and release.privacy["steps"] == STEPS
    assert account(tmp_path).spent() == spent.spent()
    assert small_datalens.equal(bundle.load(tmp_path / "run").model, release.model)


def test_a_line_that_cannot_be_printed_leaves_a_checkpoint(tmp_path, monkeypatch):
    """`fit` is given a function that prints, between the last step and the release."""
    def log(line):
        if line.startswith("stopped at step"):
            raise Killed

    monkeypatch.setattr(datalens, "build", plain)
    monkeypatch.setattr(books.Ledger, "reserve", fails_after(books.Ledger.reserve, 1))
    with pytest.raises(Killed):
        lifecycle.run(runs.request(tmp_path / "run", steps=STEPS, runtime=RUNTIME), runs.dataset(),
                      log, Notices(lambda line: None))
    assert saved(tmp_path) == [1]


def fails_after(function, calls, error=OSError("no space")):  # noqa: B008
    """A function whose calls fail after some."""
    done = []

    def one(*args):
        done.append(args)
        if len(done) > calls:
            raise error
        return function(*args)

    return one


def test_a_cost_that_cannot_be_found_leaves_the_block_that_was_paid_for(train, tmp_path,
                                                                        monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(plain().mechanism), "actual_charge", raising(ZeroDivisionError()))
        with pytest.raises(ZeroDivisionError):
            train()
    assert saved(tmp_path) == [1] and account(tmp_path).steps == 1
    release, _ = train(resume=True)
    assert release.privacy["steps"] == account(tmp_path).steps == STEPS


# --- refinement

def refining(apply):
    return {"refinement": Refinement(lambda: "it takes no time", apply)}


def doubled(public, arrays):
    return jax.tree.map(lambda a: a * 2, arrays)


REFINEMENTS = {
    "raises": missing,
    "changes a shape": lambda public, arrays: {"net": {"sum": arrays["net"]["sum"][:2]}},
    "changes a type": lambda public, arrays: {"net": {"sum": arrays["net"]["sum"].astype(float)}},
    "makes a number": lambda public, arrays: {"net": {"sum": 0.5}},
    "loses an array": lambda public, arrays: {},
    "has one more": lambda public, arrays: arrays | {"more": np.zeros(2)},
    "returns a bare array": lambda public, arrays: arrays["net"]["sum"],
    "returns nothing": lambda public, arrays: None}


@pytest.mark.parametrize("fault", REFINEMENTS)
def test_a_refinement_that_changes_what_is_released_is_found(fault):
    arrays = {"net": {"sum": np.ones(SIZE, np.float32)}}
    with pytest.raises(Exception, match="the array|no such|dict"):
        bundle.refined(refining(REFINEMENTS[fault])["refinement"], None, arrays)
    assert bundle.refined(refining(doubled)["refinement"], None, arrays)["net"]["sum"][0] == 2


@pytest.mark.parametrize("fault", ["raises", "changes a shape"])
def test_without_its_refinement_the_model_is_released_and_refined_later(train, tmp_path, fault):
    release, warnings = train(**refining(REFINEMENTS[fault]))
    assert len(warnings) == 1 and "the model is released without its refinement" in warnings[0]
    assert small_datalens.equal(bundle.load(tmp_path / "run").model, release.model)
    spent = account(tmp_path)
    again, warnings = train(resume=True, **refining(doubled))
    assert not warnings and account(tmp_path).spent() == spent.spent()
    np.testing.assert_array_equal(again.model["net"]["sum"], 2 * release.model["net"]["sum"])
    assert small_datalens.equal(bundle.load(tmp_path / "run").model, again.model)


def test_a_checkpoint_is_there_before_a_refinement_begins(train, tmp_path):
    """It may take more memory than there is, by which the system ends the process."""
    found = []

    def apply(public, arrays):
        found.append(saved(tmp_path))
        return arrays

    train(**refining(apply))
    assert found == [[STEPS]]


# --- the steps themselves

unlowered = jax.extend.core.Primitive("unlowered")
unlowered.def_abstract_eval(lambda a: a)


@pytest.mark.parametrize("done", [0, 1])
def test_a_program_that_does_not_compile_costs_nothing(train, tmp_path, done):
    """A round was charged before it was compiled; it is all that a method of one round has."""
    def absorb(key, public, query, released):
        return jax.tree.map(unlowered.bind, public), {}

    wrong, mended = {"absorb": absorb}, {}
    with pytest.raises(NotImplementedError, match="unlowered"):
        train(**{"later": wrong} if done else wrong)
    assert account(tmp_path).steps == done and saved(tmp_path) == [done]
    release, _ = train(resume=True, **{"later": mended} if done else mended)
    assert release.privacy["steps"] == account(tmp_path).steps == STEPS


def test_a_second_signal_leaves_the_block_that_was_paid_for(train, tmp_path, monkeypatch):
    """The arrays of the state before it are gone, so there was no checkpoint at all."""
    with monkeypatch.context() as patch:
        patch.setattr(noise_digests, "append", fails_after(
            noise_digests.append, 1, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            train()
    assert saved(tmp_path) == [2] and account(tmp_path).steps == 2
    assert train(resume=True)[0].privacy["steps"] == account(tmp_path).steps == STEPS


def test_checkpoints_that_cannot_be_thinned_stop_no_run(train, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "thin", fails_after(checkpoint.thin, 1))
    release, warnings = train()
    assert release.privacy["steps"] == STEPS and "no space" in warnings[0]
