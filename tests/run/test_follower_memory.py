"""A process that follows keeps the records of its own units, and no others, in memory."""

import gc
import weakref

import jax
import numpy as np
import pytest
import runs

from dpgen_jax import data, train
from dpgen_jax.core import hosts
from dpgen_jax.core.types import unseal
from dpgen_jax.private import records, teachers
from dpgen_jax.run import follower

UNITS = 10


@pytest.fixture
def read(monkeypatch):
    """Weak references to the arrays of records that were read."""
    arrays, load = [], data.load

    def loaded(*args, **options):
        dataset = load(*args, **options)
        arrays.append(weakref.ref(dataset.x_train))
        return dataset

    monkeypatch.setattr(data, "load", loaded)
    return arrays


def test_records_of_other_units_are_gone_once_they_are_dealt(tmp_path, monkeypatch, call, read):
    x, y = runs.images()
    runs.npz(tmp_path / "noise.npz", x, y)
    monkeypatch.setattr(hosts, "leads", lambda: False)
    # As of two processes this one has the units of the first half.
    monkeypatch.setattr(teachers.Layout, "local_units", property(lambda self: (0, UNITS // 2)))
    kept, alive = [], []
    monkeypatch.setattr(follower.teachers, "place", lambda mine, where: kept.append(mine) or mine)
    dealt = records.assign(len(x), UNITS, b"key")
    orders = iter([("deal", {}, {"index": dealt.index, "sizes": dealt.sizes}),
                   ("end", {"code": 0}, {})])

    def hear(signal):
        gc.collect()
        alive.append([array() is not None for array in read])
        return next(orders)

    monkeypatch.setattr(hosts, "hear", hear)
    monkeypatch.chdir(tmp_path)
    code, _, errors = call(train, "datalens", "--dataset=npz:noise.npz", *runs.FLAGS, "--out=run")
    assert not code, errors
    assert alive == [[True], [False]]
    share, = (sum(array.nbytes for array in jax.tree.leaves(unseal(part))) for part in kept)
    assert share == (x.nbytes + np.int32(0).nbytes * len(y)) / 2
