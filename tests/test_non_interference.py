"""Change one record: one teacher's state and message change, and nothing else, bit for bit.

Through the real loop, on one device and several. With the generator told nothing, public state
does not change at all; told of the votes, it changes through them only.
"""

import jax
import numpy as np
import pytest
import small_datalens
import watched_datalens
from planted import interference

from dpgen_jax.private import records

RECORD = 17
OWNER = int(np.argwhere(records.assign(50, 11, small_datalens.KEY).index == RECORD)[0][0])
LAYOUTS = [(1, 1, "shard_map"), (2, 2, "shard_map"), (2, 8, "shard_map"), (2, 2, "pmap")]
layouts = pytest.mark.parametrize("where", [
    pytest.param(small_datalens.layout(*parts), marks=marks)
    for parts, marks in zip(LAYOUTS, ((), pytest.mark.slow, pytest.mark.long, pytest.mark.long),
                            strict=True)], ids=lambda w: f"{len(w.devices)}-{w.parallel}")


def neighbours(kind: str):
    x, y = small_datalens.images()
    x2, y2 = x.copy(), y.copy()
    if kind in ("content", "both"):
        x2[RECORD] = 255 - x2[RECORD]
    if kind in ("label", "both"):
        y2[RECORD] = (y2[RECORD] + 1) % 3
    return (x, y), (x2, y2)


def two_runs(monkeypatch, tmp_path, kind, where, participation):
    states = [watched_datalens.train(monkeypatch, tmp_path / name, data, where, participation)
              for name, data in zip("ab", neighbours(kind), strict=True)]
    return [small_datalens.opened(state, where) for state in states]


@layouts
@pytest.mark.parametrize("kind", ["content", "label"])
def test_one_record_changes_one_unit_and_no_public_state(monkeypatch, tmp_path, kind, where):
    (public, units), (public2, units2) = two_runs(
        monkeypatch, tmp_path, kind, where, participation=0.0)
    assert small_datalens.equal(public.inner, public2.inner)
    assert int(public.inner.step) == 4 and np.any(public.seen)
    assert small_datalens.differing_units(units, units2) == {OWNER}


@layouts
def test_one_record_changes_one_message(where):
    """The bounded message itself: a gradient summed over devices by mistake would leave all states
    alone and mix every message."""
    first, second = (watched_datalens.messages(where, data) for data in neighbours("both"))
    assert {u for u in range(11) if not np.array_equal(first[u], second[u])} == {OWNER}
    assert np.all(np.abs(first).sum(-1) == small_datalens.CONFIG.top_k)


def test_the_generator_hears_the_votes(monkeypatch, tmp_path):
    where = small_datalens.layout(1)
    (public, _), (public2, _) = two_runs(monkeypatch, tmp_path, "both", where, participation=1.0)
    assert not small_datalens.equal(public.inner, public2.inner)


# On the small method: faults that mix devices.

@pytest.mark.parametrize("devices", [1, 2])
def test_a_message_of_the_small_method_is_its_own(devices):
    assert not interference.messages(devices, chunk=1)


def test_shard_map_with_its_default_checks_is_caught(monkeypatch):
    """It would sum the gradient with respect to whatever is replicated, as above. The loop carries
    do not fit it, so today it cannot even be compiled."""
    shard_map = jax.shard_map

    def by_default(*args, check_vma, **options):
        assert not check_vma
        return shard_map(*args, **options)

    monkeypatch.setattr(jax, "shard_map", by_default)
    with pytest.raises((AssertionError, TypeError), match="units"):
        assert not interference.messages(2, chunk=1)
