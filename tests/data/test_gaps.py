"""Two columns whose order a constraint keeps: the lower one is learned, and the gap above it."""

import dataclasses

import jax
import numpy as np
import pytest

from dpgen_jax.core.types import UserError
from dpgen_jax.data import Dataset
from dpgen_jax.data.table import constraints, schema, transform
from dpgen_jax.evaluation import assess
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_plan
from dpgen_jax.methods.shared.table_tree import Fit

DAY = {"kind": "date", "min": "2020-01-01", "max": "2023-12-31"}
COLUMNS = {
    "seen": DAY | {"min": "2020-02-01", "max": "2024-06-30", "nullable": "true"},
    "in": DAY, "since": DAY, "out": DAY | {"special": ["9999-12-31"]},
    "least": {"kind": "continuous", "min": "-3", "max": "5", "decimals": "2"},
    "most": {"kind": "continuous", "min": "0", "max": "9", "decimals": "2"},
    "pay": {"kind": "integer", "min": "1", "max": "90", "scale": "log"},
    "asked": {"kind": "datetime", "min": "2020-01-01 00:00:00", "max": "2020-12-31 23:59:59"},
    "told": {"kind": "datetime", "min": "2020-01-01 00:00:00", "max": "2021-01-31 23:59:59"},
    "late": DAY | {"min": "2024-01-01", "max": "2025-12-31"},
    "size": {"kind": "ordinal", "categories": ["s", "m"]},
    "fits": {"kind": "ordinal", "categories": ["s", "m"]},
    "n": {"kind": "integer", "min": "0", "max": "60", "special": ["0"]},
    "m": {"kind": "integer", "min": "0", "max": "60"},
    "ill": {"kind": "boolean"}}


RULES = ["in <= since", "in <= out", "asked <= told", "since < seen"]


def parsed(*rules):
    return schema.parse({"label": "ill", "columns": COLUMNS, "constraints": [*rules]}, "s").spec


@pytest.mark.parametrize(("rules", "gaps"), [
    (["in <= out", "least <= most", "in < seen"], (("in", "out"), ("in", "seen"))),
    (["asked <= told"], (("asked", "told"),)), (["in <= since", "since <= seen"], (
        ("in", "since"), ("since", "seen"))), (["since <= seen", "in <= since"], (
            ("since", "seen"),)),
    (["out >= in"], (("in", "out"),)),
    (["seen <= out"], ()), (["in <= seen", "seen <= out"], (("in", "seen"),)),  # seen may be null
    (["m <= pay"], ()), (["in <= late"], ()), (["size <= fits"], ()), (["m <= n"], ()),
    (["out <= in"], ())], ids=str)
def test_which_columns_are_learned_as_a_gap(rules, gaps):
    assert parsed(*rules).gaps == gaps


def table(n: int) -> np.ndarray:
    """Codes of rows that keep `RULES`."""
    rng = np.random.default_rng(0)
    columns = {column.name: column for column in parsed().columns}
    codes = {name: transform.decode(
        parsed(), rng.random((n, *parsed().shape)))[:, i] for i, name in enumerate(columns)}
    first, last = columns["in"].low, columns["in"].high
    codes["in"] = rng.integers(first, last - 5, n).astype(float)
    stay = np.minimum(rng.geometric(0.2, n) - 1, last - codes["in"])
    codes["out"] = np.where(rng.random(n) < 0.1, columns["out"].special[0], codes["in"] + stay)
    codes["since"] = codes["in"] + rng.integers(0, 6, n)
    codes["told"] = codes["asked"] + np.rint(rng.exponential(5000, n))
    later = codes["since"] + rng.integers(1, 200, n)
    later = np.clip(later, columns["seen"].low, columns["seen"].high)
    codes["seen"] = np.where(rng.random(n) < 0.2, np.nan, later)
    return np.stack([*codes.values()], 1)


def test_rows_come_back_from_what_is_learned():
    spec, codes = parsed(*RULES), table(2000)
    x = transform.encode(spec, codes).astype(np.float32)
    rows = jax.jit(lambda x: table_plan.learned_features(spec, x))(x)
    names = [column.name for column in table_plan.learned(spec).columns]
    assert names[:4] == ["seen - since", "in", "since - in", "out - in"]
    back = transform.decode(spec,
                            np.asarray(jax.jit(lambda x: table_plan.whole_features(spec, x))(rows)))
    told = [column.name for column in spec.columns].index("told")
    kept = transform.decode(spec, x)  # of seconds, as 32 bits hold them
    assert np.abs(back[:, told] - kept[:, told]).max() <= 10
    np.testing.assert_array_equal(np.delete(back, told, 1), np.delete(kept, told, 1))


def test_sampled_rows_keep_the_order_unmended_and_the_length_of_a_stay():
    spec = parsed("in <= out")
    config = marginals.Config(records=4000, sigma=0.02)
    method, codes = marginals.build(config, spec), table(4000)
    x = transform.encode(spec, codes).astype(np.float32)
    p = marginals.plan(config, spec)
    assert [column.name for column in p.spec.columns][3] == "out - in"
    cells = np.asarray(jax.jit(jax.vmap(lambda x: p.grid.codes(table_plan.learned_features(spec,
                                                                                           x))))(x))
    counts = np.stack([np.bincount(cell, minlength=p.grid.widest) for cell in cells.T])
    fit, y = Fit(p), np.zeros(4000, np.int32)
    fine = np.float32(counts / 4000)
    public = dataclasses.replace(method.init(jax.random.key(0)), fine=fine,
                                 bin_of=fit.parts(fine, p.bins))
    encoded = jax.jit(method.sample)(jax.jit(fit.model)(public), jax.random.key(1), y)
    made = constraints.finished(spec, np.asarray(encoded), y)
    assert list(made.mended.values()) == [0]
    stays = [rows[:, 3] - rows[:, 1] for rows in (made.codes, codes)]
    ours, real = (stay[stay < 5000] for stay in stays)
    assert abs(np.median(ours) - np.median(real)) <= 1 and abs(ours.mean() - real.mean()) < 1


def test_a_release_of_before_learns_the_higher_column_and_is_evaluated():
    spec = parsed("in <= out")
    before = dataclasses.replace(spec, gaps=())
    assert table_plan.learned(before).columns == spec.columns
    rows = transform.encode(spec, table(3)).astype(np.float32), np.zeros(3, np.int32)
    dataset = Dataset("t", spec, *rows, *rows)
    assess.check(before, dataset)
    with pytest.raises(UserError, match="the release makes a table"):
        assess.check(dataclasses.replace(before, constraints=()), dataset)
