"""The short help of `train`: the methods, and the flags that everyone needs."""

from __future__ import annotations

from dpgen_jax import methods, presets
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.methods import about
from dpgen_jax.presets import results

ON_TABLES = ("marginals", "gpate", "pategan", "datalens", "dpmerf")
"""The methods whose help says what they reached on tables."""

FLAGS = {
    "--dataset D": "a file or folder (people.csv, scans), glyphs, or SOURCE:PLACE (tfds:mnist)",
    "--schema FILE": "of a table: kinds, bounds, categories; draft one with the command schema",
    "--class-names A,B": "of a folder of images, with --channels 1 or 3 and --image-size 28",
    "--epsilon E": "the promise: smaller is more private; 1 is strong, 10 is weak",
    "--delta X": "the preset's if left out; of a general one by the number of records",
    "--out RUN": "the run folder",
    "--resume RUN": "go on with a run that was stopped; nothing else is needed",
    "--dry-run": "say what would be trained, at what noise, and spend nothing",
}


def text(program: str, method: str = "") -> str:
    """Returns the short help.

    Args:
        program: How the command is called.
        method: The method that the user named, whose presets are listed; empty for none.

    Raises:
        UserError: There is no such method.
    """
    if method and method not in methods.NAMES:
        raise UserError(f"unknown method {method!r}{nearest(method, methods.NAMES)}; known: "
                        f"{', '.join(methods.NAMES)}")
    named = method or "METHOD"
    flags = [f"  {flag:19}{meaning}" for flag, meaning in FLAGS.items()]
    listed = [f"\npresets of {method} (--preset NAME; one is chosen for the data if left out):",
              f"  {', '.join(presets.all_of(method))}"] if method else []
    if method in ON_TABLES:
        listed += ["", *results.on_tables(method)]
    return "\n".join([
        f"usage: {program} [METHOD] --dataset D --epsilon E [flags]\n",
        "Trains a generator under differential privacy. Method and settings are chosen for the",
        "data where they are not named; the first line says which.\n",
        *about.lines(), "", *flags, *listed,
        f"\nall flags, and those of one method: {program} {named} --help-all"])
