"""The process that reads damaged input, case after case: `python -m benchmarks.fuzzing.child READER`.

A line of JSON on standard input names a case's folder and options; a line on standard output says
how the reader ended: "ok", "refused" (one error that a command prints as one line), or "traceback".
What the reader itself prints goes nowhere. The parent watches time and memory (`process.py`).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.fuzzing import readers
from dpgen_jax.errors import UserError

LONGEST = 4000
"""characters of a traceback, of which the last are kept"""


def outcome(read: Any, root: Path, options: dict[str, Any]) -> dict[str, Any]:
    """How one case ended. OSErrors are lines too: `cli.main` prints them as one."""
    try:
        return {"status": "ok", "value": read(root, **options)}
    except (UserError, OSError) as error:
        return {"status": "refused", "text": str(error)}
    except Exception:
        return {"status": "traceback", "text": traceback.format_exc()[-LONGEST:]}


def serve(name: str) -> None:
    """Answers cases until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    read = readers.get(name)  # its imports count as the start, not as the first case
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(outcome(read, Path(asked["root"]), asked["options"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
