"""Noisy marginals: what a record moves in each step, what a plan reads, what a tree is made of.

The table is small enough to count by hand; its whole loop runs here in NumPy's sums, and the real
one in `test_battery_loop`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest

from dpgen_jax.core.types import Column, ImageSpec, Records, TableSpec, UserError, Wanted
from dpgen_jax.data.table import transform
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_tree
from dpgen_jax.methods.shared.table_plan import Grid

N, SPEC = 3000, people_table.THREE
CONFIG = marginals.Config(records=N, sigma=0.05, cells=40, bins=6, groups=4, steps=4)
KINDS = {"histograms": 0, "pairs": 1, "tables": 2, "tables again": 3}


@functools.cache
def verbs(config=CONFIG, spec=SPEC):
    """The plan, the method, and its compiled verbs; sums are of all records at once."""
    method = marginals.build(config, spec)
    bound = method.mechanism.bound

    def answers(x, y, query):
        def one(x, y):
            message = method.answer(None, None, Records(x[None], y[None]), query)
            return bound.compact(None, message)
        return jax.vmap(one)(x, y)

    return (marginals.plan(config, spec), method, jax.jit(answers),
            jax.jit(lambda public, sums: method.absorb(None, public, public, sums)[0]),
            jax.jit(lambda public: method.finalize(None, public)))


def counts(method, pairs) -> np.ndarray:
    """The integers that are added to a sum, int64 [1, D]."""
    pairs = np.asarray(pairs, np.int64)
    sums = np.bincount(pairs[:, 0].ravel(), pairs[:, 1].ravel(), method.mechanism.bound.columns)
    return sums[None, :method.mechanism.shape[1]].astype(np.int64)


@functools.cache
def states(config=CONFIG, seed=0, records=lambda: people_table.table(N, spec=SPEC)):
    """The public state before each step, and after the last one, on noisy sums."""
    p, method, answers, absorb, _ = verbs(config)
    x, y = records()
    rng, public = np.random.default_rng(seed), jax.jit(method.init)(jax.random.key(0))
    found = [public]
    for _ in range(p.steps):
        sums = counts(method, answers(x, y, public))
        noise = np.round(rng.normal(size=sums.shape) * (2 * p.limit)**0.5 * p.sigma)
        public = absorb(public, jnp.float32(sums + noise))
        found.append(public)
    return found


def everybody() -> tuple[np.ndarray, np.ndarray]:
    """Records with every pair of extremes: ends of numbers, categories, null and classes."""
    codes = np.array([[age, sex, pay, mark] for age in (0, 1, 40, 100) for sex in (0, 1)
                      for pay in (-10, 0, 30, np.nan) for mark in (0, 1, 2)])
    x = np.repeat(transform.encode(SPEC, codes).astype(np.float32), 3, 0)
    return x, np.resize(np.arange(3), len(x)).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "tight"), [(0, True), (1, False), (2, False), (3, False)],
                         ids=KINDS)
def test_the_furthest_record_moves_what_is_declared(step, tight):
    """By brute force over records of all extremes: in the first step exactly, in later ones but for
    what weights lose as whole numbers."""
    p, method, answers, _, _ = verbs()
    assert p.kinds == (0, 1, 2, 2)
    pairs = np.asarray(answers(*everybody(), states()[step]))
    rows = np.stack([counts(method, one[None])[0] for one in pairs])
    moved = max(int(((rows - row)**2).sum(1).max()) for row in rows)
    declared = method.mechanism.bound.squared_sensitivity()
    assert moved <= declared and (moved == declared if tight else moved > 0.99 * declared)
    if step == 1:  # a weight beside the declared ones: all of the message is dropped
        heavy = jnp.float32(pairs[:1].reshape(1, -1) * 2)
        assert not np.asarray(method.mechanism.bound.compact(None, heavy)).any()


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"weight_label": 0.0}, {"rare_share": 0.4},
                                    {"follows": True}])
def test_the_next_query_reads_no_record(fields):
    """With the mechanism muted all queries are the same bytes whatever the records are; what a
    record changes comes through the released sum alone."""
    config = dataclasses.replace(CONFIG, **fields)
    p, method, answers, absorb, final = verbs(config)
    queries = []
    for seed in (0, 1):
        x, y = people_table.table(50, seed=seed, spec=SPEC)
        public, chosen = jax.jit(method.init)(jax.random.key(0)), []
        for _ in range(p.steps):
            assert np.asarray(answers(x, y, public)).any()
            public = absorb(public, jnp.zeros(method.mechanism.shape))
            chosen += [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(public)]
        queries.append(chosen)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(final(public)))
    assert queries[0] == queries[1]


def exact(model, grid) -> np.ndarray:
    """P(class, bins) of a model, by enumeration: [C, B, ..., B]."""
    bins, d = model["table"].shape[-1], len(grid.sizes)
    at = np.indices((grid.spec.classes, *[bins] * d))
    p = model["share"][at[0]].astype(np.float64)
    for i in range(d):
        parent = model["parent"][i]
        above = 0 if parent < 0 else model["group_of"][parent][at[1 + parent]]
        p = p * model["table"][i][at[0], above, at[1 + i]]
    return p


@pytest.fixture(scope="module")
def fitted():
    return {name: np.asarray(a) for name, a in verbs()[4](states()[-1]).items()}


@pytest.mark.slow
def test_the_model_has_the_totals_and_margins_of_the_table(fitted):
    """Against all that it says, enumerated: shares of classes, and columns beside the class."""
    p, x, y = verbs()[0], *people_table.table(N, spec=SPEC)
    joint = exact(fitted, p.grid)
    assert joint.sum() == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(joint.sum((1, 2, 3, 4)), np.bincount(y) / N, atol=0.01)
    cells = np.asarray(jax.vmap(p.grid.codes)(x))
    for i in range(p.d):
        bins = fitted["bin_of"][i][cells[:, i]]
        true = np.zeros((3, p.bins))
        np.add.at(true, (y, bins), 1 / N)
        other = tuple(1 + j for j in range(p.d) if j != i)
        np.testing.assert_allclose(joint.sum(other), true, atol=0.02)
    assert (fitted["parent"] >= 0).any() or p.d == 1


@pytest.mark.slow
def test_rows_follow_the_model(fitted):
    """10,000 drawn rows: their bins beside the class are as enumerated, their codes decode."""
    p, method = verbs()[:2]
    y = np.resize(np.arange(3), 30_000).astype(np.int32)
    x = np.asarray(jax.jit(method.sample)(fitted, jax.random.key(1), y))
    joint = exact(fitted, p.grid)
    cells = np.asarray(jax.vmap(p.grid.codes)(x))
    for i in range(p.d):
        found = np.zeros((3, p.bins))
        np.add.at(found, (y, fitted["bin_of"][i][cells[:, i]]), 1e-4)
        other = tuple(1 + j for j in range(p.d) if j != i)
        wanted = joint.sum(other)
        np.testing.assert_allclose(found, wanted / wanted.sum(1, keepdims=True), atol=0.025)
    codes = transform.decode(SPEC, x)
    np.testing.assert_allclose(transform.encode(SPEC, codes), x, atol=0.02)
    assert np.isnan(codes[:, 2]).mean() == pytest.approx(0.2, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [
    {"sex": (1.0,)}, {"age": (40.0, 60.0), "kind": (2.0,)}, {"pay": (np.nan,), "mark": (0.0, 2.0)},
    {"pay": (0.0, 30.0), "sex": (0.0,)}], ids=str)
def test_conditions_are_exact(fitted, wanted):
    """Beside rejection: the same probability, and the same shares of all other columns."""
    p, method = verbs()[:2]
    ends = {"age": (0, 100), "pay": (-10, 30)}
    narrowed = {name: Wanted(values) if np.isnan(values).any() or name not in ends else Wanted(
        low=(values[0] - ends[name][0]) / (ends[name][1] - ends[name][0]),
        high=(values[1] - ends[name][0]) / (ends[name][1] - ends[name][0]))
        for name, values in wanted.items()}
    conditional, probability = table_tree.conditional(p.grid, fitted, narrowed)
    sample = jax.jit(method.sample)
    rng = np.random.default_rng(0)

    def sample_of(model):
        y = rng.choice(3, 20_000, p=model["share"] / model["share"].sum()).astype(np.int32)
        return transform.decode(SPEC, np.asarray(sample(model, jax.random.key(2), y))), y

    codes, y = sample_of(fitted)
    met = np.ones(len(y), bool)
    for name, values in wanted.items():
        i = ["age", "sex", "pay", "mark", "kind"].index(name)
        column = y.astype(float) if i == 4 else codes[:, i]
        among = np.isin(column, values) if i in (1, 3, 4) else (column >= values[0]) & (
            column <= values[-1])
        met &= among | (np.isnan(column) & np.isnan(values).any())
    assert met.mean() == pytest.approx(probability, abs=0.015)
    kept, of_kept = sample_of(conditional)
    for name, values in wanted.items():
        i = ["age", "sex", "pay", "mark", "kind"].index(name)
        column = of_kept if i == 4 else kept[:, i]
        assert np.isnan(column).all() if np.isnan(values).all() else (
            column.min() >= min(values) and column.max() <= max(values))
    for column in range(4):
        ours, theirs = (np.nanmean(np.nan_to_num(a[:, column], nan=-50)) for a in (kept,
                                                                                  codes[met]))
        spread = np.nanstd(np.nan_to_num(codes[met][:, column], nan=-50))
        assert abs(ours - theirs) < 6 * spread / met.sum()**0.5 + 1e-6
    np.testing.assert_allclose(np.bincount(of_kept, minlength=3) / 20_000,
                               np.bincount(y[met], minlength=3) / met.sum(), atol=0.05)


@pytest.mark.slow
def test_a_condition_that_cannot_be_met_or_named_is_refused(fitted):
    grid = verbs()[0].grid
    with pytest.raises(UserError, match="is not a column; use one of age, sex, pay, mark or the"):
        table_tree.conditional(grid, fitted, {"size": Wanted((1.0,))})
    empty = fitted | {"share": np.array([1.0, 0.0, 0.0], np.float32)}
    with pytest.raises(UserError, match="makes no record with kind as given"):
        table_tree.conditional(grid, empty, {"kind": Wanted((2.0,))})


KINDS_OF_COLUMNS = TableSpec((
    Column("few", "integer", 3, 8), Column("many", "integer", -5, 900, nullable=True),
    Column("real", "continuous", -1.0, 2.0), Column("one", "continuous", 4.0, 4.0),
    Column("single", "categorical", categories=("x",)),
    Column("rank", "ordinal", categories=("a", "b", "c"), nullable=True),
    Column("sort", "categorical", categories=("p", "q"), nullable=True),
    Column("spiked", "integer", 10, 500, nullable=True, special=(0.0, 999.0)),
    Column("tailed", "integer", 1, 10**6, scale="log", special=(-1.0,))),
    Column("y", "categorical", categories=("0", "1")), 9)


@pytest.mark.slow
def test_every_kind_of_column_comes_back_from_its_cell():
    """Exactly, but for the place of a number in its cell; bounds and nulls always exactly."""
    grid, rng = Grid(KINDS_OF_COLUMNS, 10), np.random.default_rng(0)
    columns = [np.resize(np.arange(3, 9), 400), np.resize([-5, 900, np.nan, -4, 899, 0, 456], 400),
               rng.choice([-1.0, 2.0, 0.1, 1.97, -0.99], 400), np.full(400, 4.0), np.zeros(400),
               np.resize([0, 1, 2, np.nan], 400), np.resize([0, 1, np.nan], 400),
               np.resize([0, 10, 999, 500, np.nan, 77], 400), np.resize([1, -1, 10**6, 1234], 400)]
    codes = np.stack(columns, 1)
    x = transform.encode(KINDS_OF_COLUMNS, codes).astype(np.float32)
    cells = jax.vmap(grid.codes)(x)
    start, width = grid.ends
    nodes = np.arange(9)
    values = start[nodes, cells] + rng.random(cells.shape) * width[nodes, cells]
    back = transform.decode(KINDS_OF_COLUMNS, np.asarray(grid.rows(cells, jnp.float32(values))))
    np.testing.assert_array_equal(np.isnan(back), np.isnan(codes))
    for i in (0, 3, 4, 5, 6):
        np.testing.assert_array_equal(back[:, i], codes[:, i])
    for i, step in ((1, 905 / 10), (2, 0.3)):
        assert np.nanmax(np.abs(back[:, i] - codes[:, i])) <= step + 1e-5
        ends = np.isin(codes[:, i], (KINDS_OF_COLUMNS.columns[i].low,
                                     KINDS_OF_COLUMNS.columns[i].high))
        np.testing.assert_allclose(back[ends, i], codes[ends, i])
    spiked = np.isin(codes[:, 7], (0, 10, 500, 999))
    np.testing.assert_array_equal(back[spiked, 7], codes[spiked, 7])
    assert set(back[codes[:, 8] != 1234, 8]) == {1.0, -1.0, 1e6} and 250 < back[3, 8] < 5500
    again = np.asarray(jax.vmap(grid.codes)(grid.rows(cells, jnp.float32(values))))
    assert (again != np.asarray(cells)).mean() < 0.01


def test_what_cannot_be_is_refused_before_anything_is_spent():
    with pytest.raises(UserError, match="for tables; for images use dpmerf"):
        marginals.mechanism(CONFIG, ImageSpec(2, 2, 1, 2))
    many = TableSpec(tuple(Column(f"c{i}", "continuous", 0, 1) for i in range(3000)),
                     Column("y", "categorical", categories=tuple(map(str, range(1000)))), 3000)
    with pytest.raises(UserError, match="3,000 columns and 1,000 classes take 6,000,000 cells"):
        marginals.mechanism(CONFIG, many)
    for fields in ({"bins": 1}, {"groups": 1}):
        with pytest.raises(UserError):
            dataclasses.replace(CONFIG, **fields)


def test_without_room_for_pairs_or_histograms_fewer_tables_are_measured():
    """By n and sigma alone."""
    def kinds(**fields):
        return marginals.plan(dataclasses.replace(CONFIG, **fields), SPEC).kinds

    assert kinds(sigma=1.0) == (0, 1, 2, 2) and kinds(sigma=60.0) == (2, 2, 2, 2)
    assert kinds(steps=1) == (2,) and kinds(steps=2) == (0, 2)


def test_the_list_of_tables_has_the_noise_that_came():
    p, method, _, _, finalize = verbs()
    last = states()[-1]
    tables = {table.name: table for table in method.tables(finalize(last), p.steps)}
    unit = (2 * p.limit)**0.5 * p.sigma
    names = [column.name for column in SPEC.columns]
    for i, name in enumerate(names):
        assert tables[name].noise == pytest.approx(unit / p.first_weight)
        joint = tables[f"{name}, kind"]
        assert joint.noise == pytest.approx(unit / float(last.joint_precision[i])**0.5, rel=1e-5)
        assert joint.rounds == 3 and joint.cells <= 3 * p.bins
    edges = [(names[parent], names[i], i) for i, parent in enumerate(last.parent.tolist())
             if parent >= 0]
    assert edges and "all 6 pairs of columns, coarse" in tables
    for above, below, i in edges:
        (table,) = (one for name, one in tables.items() if name.startswith(f"{above}, {below}"))
        assert table.noise == pytest.approx(unit / float(last.edge_precision[i])**0.5, rel=1e-5)
    assert len(tables) == 4 + 1 + 1 + 4 + len(edges)
    fewer = {table.name: table for table in method.tables(finalize(last), p.steps - 1)}
    assert fewer["age, kind"].noise > tables["age, kind"].noise
