"""Files of ledgers, by what happened to them."""

import pytest
from ledgers import COUNTS, HEADER, block

from dpgen_jax.accountant.ledger import Ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def crashed(path):
    """Header, reserve 10, settle 7, reserve 5 left open: 12 charged in 4 lines."""
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(10), 10), block(7), 7)
        book.reserve(block(5), 5)
    return path


@pytest.fixture
def extended(path):
    """The same behind a charge, and with an extension before the last reservation."""
    with Ledger.create(path, HEADER) as book:
        book.charge(((COUNTS, 2),))
        book.settle(book.reserve(block(10), 10), block(7), 7)
        book.extend(3.0)
        book.reserve(block(5), 5)
    return path
