"""The process that reads damaged input, case after case: `python -m benchmarks.fuzzing.child`.

A line of JSON on standard input names a reader, a case's folder and options; a line on standard
output says how the reader ended: "ok", "refused" (one error that a command prints as one line), or
"traceback". What the reader itself prints goes nowhere. The parent watches time and memory
(`trial.py`).
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.fuzzing import readers
from dpgen_jax.core.errors import UserError, one_line

LONGEST = 4000
"""characters of a traceback, of which the last are kept"""


def outcome(read: Any, root: Path, options: dict[str, Any]) -> dict[str, Any]:
    """How one case ended. OSErrors are lines too: `terminal.main` prints both alike."""
    try:
        return {"status": "ok", "value": read(root, **options)}
    except (UserError, OSError) as error:
        return {"status": "refused", "text": one_line(error)}
    except Exception:
        return {"status": "traceback", "text": traceback.format_exc()[-LONGEST:]}


def serve() -> None:
    """Answers cases until standard input ends. A case without a folder asks for imports alone,
    which so count as no case's time.
    """
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    for line in sys.stdin:
        request = json.loads(line)
        read = readers.get(request["reader"])
        said = outcome(read, Path(request["root"]), request["options"]) if "root" in request else {}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
