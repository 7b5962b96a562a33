"""Columns that are functions of others: found, never asked for, and computed."""

import jax
import numpy as np
import pytest

from dpgen_jax.data.table import constraints, schema, transform
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared.table_tree import Fit

COLUMNS = {
    "net": {"kind": "integer", "min": "0", "max": "60"},
    "tax": {"kind": "integer", "min": "0", "max": "30"},
    "gross": {"kind": "integer", "min": "0", "max": "70"},
    "twice": {"kind": "integer", "min": "0", "max": "200"},
    "city": {"kind": "categorical", "categories": ["bern", "lyon", "nice"]},
    "land": {"kind": "categorical", "categories": ["ch", "fr"]},
    "seen": {"kind": "integer", "min": "0", "max": "90", "nullable": "true"},
    "ill": {"kind": "boolean"}}
LANDS = ["city = bern -> land = ch", "city = lyon -> land = fr", "city = nice -> land = fr"]


def parsed(*rules):
    return schema.parse({"label": "ill", "columns": COLUMNS, "constraints": [*rules]}, "s").spec


@pytest.mark.parametrize(("rules", "names"), [
    (["gross = net + tax", "twice = gross + net", *LANDS], ("gross", "twice", "land")),
    (["twice = gross + net", "gross = net + tax"], ("twice",)),  # which is read before it is known
    (["net = gross - tax", "gross = net + tax"], ("net",)),
    (LANDS[:2], ()), ([*LANDS[:2], "city = lyon -> land = ch"], ()),
    (["seen = net + tax"], ()), (["net <= gross"], ()),
    (["ill = true -> land = fr", "ill = false -> land = ch"], ("land",))], ids=str)
def test_what_is_a_function(rules, names):
    assert parsed(*rules).derived == names


def test_no_table_is_asked_for_them_and_rows_have_what_their_definitions_say():
    spec = parsed("gross = net + tax", *LANDS)
    config = marginals.Config(records=1000, sigma=0.5)
    p, method = marginals.plan(config, spec), marginals.build(config, spec)
    assert [column.name for column in p.spec.columns] == ["net", "tax", "twice", "city", "seen"]
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3000).astype(np.int32)

    @jax.jit
    def sampled(key):
        return method.sample(Fit(p).model(method.init(key)), jax.random.key(1), y)

    encoded = np.asarray(sampled(jax.random.key(0)))
    assert encoded.shape == (3000, *spec.shape)
    made = constraints.finished(spec, encoded, y)
    net, tax, gross, _, city, land, _ = made.codes.T
    np.testing.assert_array_equal(gross, net + tax)
    np.testing.assert_array_equal(land, city > 0)
    counts = list(made.mended.values())
    beyond = transform.decode(spec, encoded)[:, :2].sum(1) > 70
    assert counts == [beyond.sum(), 0, 0, 0] and 0 < beyond.sum() < 1000
    assert constraints.determined_names(spec) == ("gross", "land")
