"""The reader of ledgers, which imports no JAX: read, open, charge a step, read again."""

import json
import sys
from pathlib import Path
from typing import Any

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import GaussianEvent, to_json
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.errors import BudgetExceeded

STEP = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)


def ledger(root: Path, name: str = "ledger.jsonl") -> dict[str, Any]:
    """Totals before and after a resume, and what a resumed run could still do."""
    before = totals(books.account(books.read(root / name)))
    with Ledger.open(root / name) as book:
        after = totals(book._account)
        try:
            book.settle(book.reserve(((STEP, 1),), 1), ((STEP, 1),), 1)
        except BudgetExceeded as error:
            refused = str(error)
        else:
            refused = ""
    again = totals(books.account(books.read(root / name)))
    return {"before": before, "after": after, "again": again, "refused": refused,
            "jax": "jax" in sys.modules}


def totals(account: Any) -> dict[str, Any]:
    counts = {json.dumps(to_json(((event, 1),)), sort_keys=True): count
              for event, count in account.spent()}
    return {"steps": account.steps, "epsilon": repr(float(account.epsilon())),
            "target": repr(account.target), "counts": counts}
