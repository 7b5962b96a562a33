"""Teachers without a network: what they answer, what one record changes, and what is refused."""

import dataclasses

import jax
import numpy as np
import people_table
import pytest
import runs
import small_datalens

import dpgen_jax
from dpgen_jax import methods, presets
from dpgen_jax.aggregation.bound import FewRows
from dpgen_jax.aggregation.noise import NoNoise, OsBits
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.core.types import Records, UserError
from dpgen_jax.methods import prototypes
from dpgen_jax.private import records
from dpgen_jax.release import documents
from dpgen_jax.run import lifecycle
from dpgen_jax.run.progress import Notices

SPEC, RECORD = small_datalens.SPEC, 17
FEW = prototypes.Config(teachers=11, sigma=3.0, steps=4, images=2, images_per_teacher=4,
                        final_rate=1.0)
CONFIGS = {name: dataclasses.replace(FEW, answer=name.split()[0], **fields) for name, fields in {
    "gradients": {}, "gradients in frequencies": {"frequencies": 4},
    "signs": {"top_k": 10, "step_size": 0.5, "clip": 1e-5},
    "signs in frequencies": {"top_k": 8, "step_size": 0.5, "clip": 1e-5, "frequencies": 4},
    "votes": {"frequencies": 4, "step_size": 0.1}}.items()}
configs = pytest.mark.parametrize("name", CONFIGS)


def built(config):
    return prototypes.build(config, SPEC)


def neighbours():
    x, y = small_datalens.images()
    x2, y2 = x.copy(), y.copy()
    x2[RECORD], y2[RECORD] = 255 - x2[RECORD], (y2[RECORD] + 1) % 3
    return (x, y), (x2, y2)


def messages(method, query, x, y):
    """int [U, B, D]: the bounded message of each teacher."""
    index = records.assign(len(x), 11, small_datalens.KEY).index

    @jax.jit
    @jax.vmap
    def bounded(key, records):
        return method.mechanism.bound.project(key, method.answer(key, (), records, query))

    return np.asarray(bounded(jax.random.split(jax.random.key(0), 11),
                              Records(x[index], y[index].astype(np.int32)))), index


def test_a_fake_moves_towards_the_mean_of_the_records_nearest_to_it(rng):
    x, y = small_datalens.images(9)
    fakes = rng.uniform(size=(6, *SPEC.shape)).astype(np.float32)
    labels = np.repeat(np.arange(3), 2)
    moves = np.asarray(prototypes.towards(Records(x, y.astype(np.int32)), fakes, labels))
    chosen = [min((k for k in range(6) if labels[k] == label),
                  key=lambda k, image=image: ((image - np.round(255 * fakes[k]))**2).sum())
              for image, label in zip(x, y, strict=True)]
    for k in range(6):
        of_k = [x[i] / 255 for i in range(9) if chosen[i] == k]
        wanted = (np.mean(of_k, 0) - fakes[k]).ravel() if of_k else np.full(64, np.nan)
        np.testing.assert_allclose(moves[k], wanted, atol=1e-5)


def test_directions_are_orthonormal_and_no_axis_is_before_another():
    bases = np.asarray(prototypes.orthonormal(jax.random.key(0), 4000, 4))
    np.testing.assert_allclose(bases @ bases.transpose(0, 2, 1), np.tile(np.eye(4), (4000, 1, 1)),
                               atol=1e-5)
    np.testing.assert_allclose((bases**2).mean(0), 1 / 4, atol=0.02)
    np.testing.assert_allclose((bases**4).mean(0), 3 / (4 * 6), atol=0.02)  # of uniform ones


def test_a_step_of_several_devices_does_not_wait_for_a_decomposition():
    """One of LAPACK, of many matrices, waited for threads that waited for it, for good."""
    config = dataclasses.replace(CONFIGS["votes"], frequencies=8)
    text = str(jax.make_jaxpr(built(config).ask)(
        jax.random.key(0), jax.eval_shape(built(config).init, jax.random.key(0))))
    assert "dot_general" in text and "qr[" not in text


@pytest.mark.parametrize("values", [1, 784, 4096, 4097, 16_512])
def test_products_of_shades_are_exact(values, rng):
    """The brightest images have the largest sums."""
    x, fakes = (rng.integers(0, 256, (n, values)).astype(np.int32) for n in (3, 4))
    x[0], fakes[0] = 255, 255
    made = np.asarray(jax.jit(prototypes.products)(x, fakes))
    np.testing.assert_array_equal(made, x.astype(np.int64) @ fakes.T)


def test_large_images_are_compared_in_fewer_shades():
    """The distance of black and white in 255 shades and 786,432 values is above any int32."""
    x = np.zeros((3, 512, 512, 3), np.uint8)
    x[1], x[2] = 255, 140
    fakes = np.stack([np.zeros(x.shape[1:], np.float32), np.ones(x.shape[1:], np.float32)])
    answer = jax.jit(prototypes.towards)
    moves = np.asarray(answer(Records(x, np.zeros(3, np.int32)), fakes, np.zeros(2, np.int32)))
    assert moves.min(1).tolist() == moves.max(1).tolist()
    np.testing.assert_allclose(moves[:, 0], [0, (255 + 140) / 2 / 255 - 1], atol=1e-6)


def test_without_a_record_of_a_class_nothing_is_said_of_it():
    x, y = small_datalens.images(5)
    fakes = np.zeros((6, *SPEC.shape), np.float32)
    moves = prototypes.towards(Records(x, np.ones_like(y, np.int32)), fakes,
                            np.repeat(np.arange(3), 2))
    assert np.isnan(moves).all(1).tolist() == [True, True, False, True, True, True]


@configs
def test_one_record_changes_one_message_and_no_public_state(name, tmp_path):
    """Messages as they are bounded; then the real loop, in which nobody hears them."""
    method = built(CONFIGS[name])
    query = jax.jit(method.ask)(jax.random.key(1), jax.jit(method.init)(jax.random.key(0)))
    (first, index), (second, _) = (messages(method, query, *data) for data in neighbours())
    owner = np.flatnonzero((index == RECORD).any(1)).tolist()
    assert np.flatnonzero((first != second).any((1, 2))).tolist() == owner
    deaf = dataclasses.replace(method, mechanism=dataclasses.replace(
        method.mechanism, decode=lambda votes, n: 0.0 * votes.astype(np.float32)))
    states = []
    for side, data in zip("ab", neighbours(), strict=True):
        (tmp_path / side).mkdir()
        states.append(small_datalens.run(tmp_path / side, *data, method=deaf)[0].public)
    assert small_datalens.equal(*states) and int(states[0].step) == 4


@configs
def test_one_record_moves_the_sum_no_further_than_is_declared(name):
    """Through the method's own answer: one record or its negative, and fakes of grey: opposites."""
    config = dataclasses.replace(CONFIGS[name], images_per_teacher=1)
    method = built(config)
    query = method.ask(jax.random.key(1), jax.jit(method.init)(jax.random.key(0)))
    query = dataclasses.replace(query, fakes=np.full(query.fakes.shape, 0.5, np.float32))
    answer = jax.jit(lambda key, x, y: method.mechanism.bound.project(
        key, method.answer(key, (), Records(x, y), query)))
    black = np.zeros((1, *SPEC.shape), np.uint8)
    mixed = 255 * np.random.default_rng(1).integers(0, 2, black.shape).astype(np.uint8)
    said = [np.asarray(answer(jax.random.key(0), x, np.full(1, label, np.int32))).astype(int)
            for x in (black, 255 - black, mixed, 255 - mixed) for label in range(3)]
    distances = [((a - b)**2).sum() for a in said for b in said]
    declared = method.mechanism.bound.squared_sensitivity()
    assert isinstance(method.mechanism.bound, FewRows)
    # Rounding keeps a clipped row slightly short of its norm; votes attain their bound.
    assert (0.85 if config.frequencies else 0.9) * declared < max(distances) <= declared
    votes = {"votes": 16, "signs in frequencies": 8}.get(name, 10)
    assert config.answer == "gradients" or max(distances) == declared == 4 * votes


def classes(n, rng):
    """Images of which each class is bright in other columns, in one of two ways."""
    y = rng.integers(0, 3, n)
    x = rng.integers(0, 40, (n, *SPEC.shape)).astype(np.uint8)
    for i, label in enumerate(y):
        rows = slice(0, 4) if rng.integers(2) else slice(4, 8)
        x[i, rows, 2 * label:2 * label + 2] = 220
    return x, y


@configs
def test_released_images_look_like_the_records(name, tmp_path, rng):
    """Twelve rounds without noise: each class's two images are its two ways of being bright."""
    config = dataclasses.replace(CONFIGS[name], steps=12, teachers=11, final_rate=0.2)
    method = built(config)
    quiet = dataclasses.replace(method, mechanism=dataclasses.replace(
        method.mechanism, noise=NoNoise()))
    x, y = classes(110, rng)
    public = small_datalens.run(tmp_path, x, y, method=quiet, steps=12)[0].public
    model = jax.jit(method.finalize)(jax.random.key(0), public)
    labels = np.arange(60) % 3
    made = np.asarray(jax.jit(method.sample)(model, jax.random.key(1), labels))
    assert made.shape == (60, *SPEC.shape) and made.min() >= 0 and made.max() <= 1
    means = np.stack([x[y == label].mean(0) for label in range(3)])
    apart = ((made[:, None] - means / 255)**2).sum((2, 3, 4))
    assert (apart.argmin(1) == labels).all()


def test_the_votes_do_not_depend_on_how_many_teachers_answer_at_once():
    """Bit for bit: a record that is as near to two fakes does not change its mind."""
    rng = np.random.default_rng(0)
    fakes = rng.uniform(size=(100, 28, 28, 1)).astype(np.float32)
    fakes[1::2] = 1 - fakes[::2]
    labels = np.repeat(np.arange(10), 10)
    x = rng.integers(0, 256, (34, 15, 28, 28, 1), dtype=np.uint8)
    y = rng.integers(0, 10, (34, 15)).astype(np.int32)
    answer = jax.jit(jax.vmap(prototypes.towards, (0, None, None)))
    together = np.asarray(answer(Records(x, y), fakes, labels))
    for chunk in (1, 2, 17):
        parts = [np.asarray(answer(Records(x[i:i + chunk], y[i:i + chunk]), fakes, labels))
                 for i in range(0, 34, chunk)]
        assert np.concatenate(parts).tobytes() == together.tobytes()


def train(out, **options):
    """A run of prototypes in this process; returns the release and all that was printed."""
    lines = []
    request = dataclasses.replace(runs.request(out, **options), method="prototypes",
                                  config=dataclasses.replace(FEW, sigma=None, steps=6, teachers=10))
    return lifecycle.run(request, runs.dataset(), lines.append, Notices(lines.append)), lines


@pytest.mark.parametrize("state", ["host", "disk"])
def test_teachers_without_state_lie_where_the_user_wants_them(tmp_path, state):
    release, lines = train(tmp_path / "run",
                           runtime=dataclasses.replace(runs.RUNTIME, state=state))
    assert release.privacy["steps"] == 6 and "nothing" in "\n".join(lines)


def test_a_run_of_teachers_without_state_goes_on(tmp_path, monkeypatch):
    """Cut at its fourth draw: that step stays charged, and the others are made."""
    draw, draws = OsBits.draw, []

    def cut(self, shape):
        draws.append(shape)
        if len(draws) == 4:
            raise KeyboardInterrupt
        return draw(self, shape)

    with monkeypatch.context() as patched, pytest.raises((KeyboardInterrupt, UserError)):
        patched.setattr(OsBits, "draw", cut)
        train(tmp_path / "run")
    release, _ = train(tmp_path / "run", resume=True)
    assert release.privacy["steps"] == 5 and release.privacy["epsilon"] == runs.BUDGET.epsilon
    x, y = release.sample(6, seed=0)
    assert x.shape == (6, *SPEC.shape) and set(y) <= {0, 1, 2}
    config = read_json(tmp_path / "run" / "release" / "config.json")
    assert documents.by_hand(config) == (  # a line of the report
        "each synthetic image is one of 2 images of its class in the generator",)


@pytest.mark.parametrize(("method", "answer", "fields"), [
    ("gpate", "gradients", {"clip": 1.0, "aggregate": "sum", "step_size": 1.0}),
    ("datalens", "signs", {"clip": 1e-5, "decode": "mean", "top_k": 10}),
    ("pategan", "votes", {"noise": "gaussian", "step_size": 0.2})])
def test_a_release_of_when_this_was_a_setting_of_another_method_loads(tmp_path, method, answer,
                                                                      fields):
    """It draws the same images; networks of the same method are left as they are."""
    release, _ = train(tmp_path / "run")
    path = tmp_path / "run/release/config.json"
    then = read_json(path) | {"method": method, "config": fields | {
        "teachers": 10, "batch": 6, "sigma": 7.0, "steps": 6, "g_final_rate": 0.5, "ema": 0.0,
        "generator": {"warp": 0.0}, "nearest": {"images": 2, "images_per_teacher": 4}}}
    write_json(path, then)
    loaded = dpgen_jax.load(tmp_path / "run/release")
    assert loaded.method == "prototypes" and loaded.config.answer == answer
    assert (loaded.config.images, loaded.config.final_rate) == (2, 0.5)
    np.testing.assert_array_equal(loaded.sample(9, seed=1)[0], release.sample(9, seed=1)[0])
    networks = then | {"config": then["config"] | {"nearest": {"images": 0}}}
    assert methods.as_named_now(networks) is networks


def test_a_teacher_answers_for_few_prototypes_and_that_is_what_is_charged():
    def sensitivity(name, **fields):
        config = dataclasses.replace(CONFIGS[name], **fields)
        return prototypes.mechanism(config, SPEC).bound.squared_sensitivity()

    assert sensitivity("signs") == 4 * 10 * 4 and sensitivity("votes") == 4 * 16 * 4
    assert sensitivity("signs", images_per_teacher=6) == 4 * 10 * 6
    assert sensitivity("signs", images_per_teacher=60) == 4 * 10 * 6  # there are no more


def test_tables_and_old_names_of_presets_are_refused():
    with pytest.raises(UserError, match="prototypes and frequencies are for images"):
        prototypes.build(FEW, people_table.THREE)
    with pytest.raises(UserError, match="train prototypes with --preset mnist-eps1-signs"):
        presets.get("datalens", "mnist-eps1-nearest")
