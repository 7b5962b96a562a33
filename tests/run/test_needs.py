"""The memory that a run says it needs: of 10,000 columns too, and refused where there is less."""

import pytest

from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.methods import marginals
from dpgen_jax.run import capacity

D = 10_000
WIDE = TableSpec(tuple(Column(f"c{i}", "integer", 0, 9) for i in range(D)),
                 Column("y", "categorical", categories=("n", "p")), D)
CONFIG = marginals.Config(records=1000, sigma=8.0)


@pytest.fixture(scope="module")
def wide():
    """The method for the widest table."""
    return marginals.build(CONFIG, WIDE)


def test_ten_thousand_columns_are_planned_within_what_is_said(wide):
    said = capacity.public_bytes(wide) + capacity.sum_bytes(wide)
    assert 10 * 4 * D < said < 100e6
    # All pairs of columns, for which no table is asked, would be 800 MB.
    assert marginals.plan(CONFIG, WIDE).couples.shape == (0, 2)


def test_a_public_side_beyond_the_memory_is_refused(wide, monkeypatch):
    capacity.check_memory(wide)
    small = 1.2 * capacity.sum_bytes(wide) / capacity.MEMORY_SHARE
    assert capacity.public_bytes(wide) > capacity.MEMORY_SHARE * small
    monkeypatch.setattr(capacity, "memory", lambda: small)
    with pytest.raises(UserError, match="the public state takes .* leave columns out"):
        capacity.check_memory(wide)
    monkeypatch.setattr(capacity, "memory", lambda: small / 2)
    with pytest.raises(UserError, match="a round's sum of .* integers"):
        capacity.check_memory(wide)
