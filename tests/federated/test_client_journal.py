"""The journal of the machine on which a client runs."""

import dataclasses

import federation as fed
from planted import toy as adversary

from dpgen_jax.accountant.journal import Journal
from dpgen_jax.core.types import Private
from dpgen_jax.private.records import keyed


def test_a_clients_data_are_known_by_their_file(tmp_path, journal):
    """`train` holds a part of the same file out, so that its records have another fingerprint."""
    data = dataclasses.replace(fed.records(0, adversary.SPEC), content="of the file")
    fed.join(tmp_path, data=data, seed=None).ledger.close()
    book = Journal(journal)
    (run,) = book.on("", keyed(Private("of the file"), book.key))
    assert (run.unit, run.target) == ("client", fed.BUDGET.epsilon)
