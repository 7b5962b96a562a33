"""Clients chosen by a classifier: stamped, or a function of each client's own records."""

import dataclasses

import numpy as np
import pytest
import runs
from refusals import refused

from dpgen_jax import methods
from dpgen_jax.accountant import events
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.core.config import Budget
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data import clients, from_arrays
from dpgen_jax.data.clients import Range
from dpgen_jax.methods import gswgan
from dpgen_jax.private import records
from dpgen_jax.release import guarantee
from dpgen_jax.run import planning

OWNERS = np.array([2, 0, 1, 2, 0, 1, 2, 0], np.int32)
RIGHT = np.array([1, 1, 0, 1, 0, 0, 0, 1], bool)  # 2 of 3 of clients 0 and 2, none of client 1


def federation(right=RIGHT):
    """Images whose first pixel is their label where a classifier reads them well."""
    y = np.arange(8) % 3
    x = np.full((8, 8, 8), 7, np.uint8)
    x[:, 0, 0] = np.where(right, y, (y + 1) % 3)
    return dataclasses.replace(from_arrays(x, y, 3), clients=OWNERS)


def reads(x):
    return x[:, 0, 0, 0].astype(int)


def test_accuracy_is_of_a_client():
    np.testing.assert_allclose(clients.accuracies(federation(), reads), [2 / 3, 0, 2 / 3])
    empty = clients.emptied(federation(), reads, Range(least=0.5), "known")
    assert np.isnan(clients.accuracies(empty, reads)[1])
    assert Range(least=0.5).contains(np.array([np.nan, 0.5, 0.4])).tolist() == [False, True, False]
    with pytest.raises(UserError, match="does not say which client has which record"):
        clients.accuracies(dataclasses.replace(federation(), clients=None), reads)
    refused("from 0.9 to 0.1 are not a range", Range, 0.9, 0.1)


def test_who_is_left_out_by_private_records_is_stamped():
    data = clients.left_out(federation(), np.array([True, False, True]), "those read well")
    assert data.clients.tolist() == [1, 0, 1, 0, 1, 0]
    np.testing.assert_array_equal(data.y_train, federation().y_train[OWNERS != 1])
    assert [entry.what for entry in data.uncovered] == ["2 of 3 clients take part: those read well"]
    config = dataclasses.replace(gswgan.Config(federated=True), critics=2, sigma=1.0)
    with pytest.raises(UserError, match="without being covered by epsilon: 2 of 3 clients take"):
        planning.refuse_uncovered(data, Budget(1.0, 1e-3), None)
    who = planning.protected_by(methods.get("gswgan").build(config, data.spec), data)
    stamp = planning.stamp_of_run(Budget(1.0, 1e-3), None, config, who)
    assert stamp.text == guarantee.NOT_COVERED + "2 of 3 clients take part: those read well"
    with pytest.raises(UserError, match="1 clients are those read well; choose so that 2"):
        clients.left_out(federation(), np.array([True, False, False]), "those read well")


def test_a_part_that_no_record_decided_about_is_not_stamped():
    data = clients.part_of(federation(), np.array([False, True, True]))
    assert data.clients.tolist() == [1, 0, 1, 0, 1] and not data.uncovered


@pytest.mark.parametrize("client", range(3))
def test_one_client_changes_its_own_slots_alone(client):
    """Whatever a client holds, also whether it takes part, the others get the same records."""
    other = np.where(client == OWNERS, ~RIGHT, RIGHT)
    before, after = (clients.emptied(federation(right), reads, Range(least=0.5), "known")
                     for right in (RIGHT, other))
    assert before.notes == after.notes and before.uncovered == after.uncovered == ()
    dealt = records.by_client(before.clients, 3, 4)
    np.testing.assert_array_equal(dealt.index, records.by_client(after.clients, 3, 4).index)
    for name in ("x_train", "y_train"):
        rows = dealt.index[np.arange(3) != client]
        np.testing.assert_array_equal(getattr(before, name)[rows], getattr(after, name)[rows])
    assert (before.y_train == EMPTY).tolist() == (OWNERS == 1).tolist()
    assert not before.x_train[OWNERS == 1].any()


def test_what_a_classifier_cost_is_charged_with_the_run():
    rows = tuple(events.to_json(((GaussianEvent(4.0, 1), 1),)))
    data = clients.emptied(federation(), reads, Range(least=0.5), "bought", rows)
    config = gswgan.Config(federated=True, critics=3, steps=2, sigma=None)
    request = dataclasses.replace(runs.request(None), method="gswgan", config=config,
                                  budget=Budget(1.0, 1e-3))
    half = planning.declare(request, data, print)
    whole = planning.declare(request, federation(), print)
    assert half.purchases == ((GaussianEvent(4.0, 1), 1),) and whole.purchases == ()
    assert half.config.sigma > 1.1 * whole.config.sigma
    of_records = dataclasses.replace(data, bought_unit=Unit.RECORD)
    refused("does not cover a client", planning.declare, request, of_records, print)
    refused("does not cover a client", clients.emptied, of_records, reads, Range(), "known")
