"""python -m dpgen_jax.federate [METHOD] --critics N --epsilon E [--out DIR] ...

Writes the Flower app of a federation, which holds all that server and clients must agree on.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from dpgen_jax import methods, presets
from dpgen_jax.cli import parser, terminal
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import program
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import ImageSpec, UserError

if TYPE_CHECKING:
    from dpgen_jax.federated.messages import Terms

Config = TypeVar("Config")
DESCRIPTION = ("Writes a Flower app that trains a generator over clients who keep their records "
               "and add the noise themselves. --critics "
               "(--clients for fedavg_gan) is their number.")
APP = """\
[project]
name = "federation"
version = "1.0.0"
description = "A federation of dpgen_jax: {method}, epsilon {epsilon} for each client"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "dpgen-jax"

[tool.flwr.app.components]
serverapp = "dpgen_jax.federated.flower_server:app"
clientapp = "dpgen_jax.federated.flower_client:app"

[tool.flwr.app.config]
"""


@dataclasses.dataclass(frozen=True)
class Federate(Generic[Config]):
    """The flags."""

    preset: str
    """the preset that gives the defaults"""
    epsilon: float
    """the most that the queries may cost a client"""
    delta: float
    """of the same promise"""
    height: int
    """pixels of the clients' images"""
    width: int
    """likewise"""
    channels: int
    """1 or 3"""
    classes: int
    """of the clients' labels"""
    config: Annotated[Config, parser.FLAT]
    out: Path = Path("federation")
    """the folder of the app"""
    run: Path = Path("runs/federation")
    """the run folder, seen from where the SuperLink was started"""
    seconds: float = 120.0
    """how long a round waits for answers"""
    wait: float = 600.0
    """how long the start waits for clients to join, in seconds"""
    seed: int | None = None
    """repeats the server's draws, on which no protection depends"""


def parse(method: str, argv: list[str]) -> Federate[Any]:
    """Parses the flags, whose defaults are those of the preset.

    Without --preset it is the first federated one, or else the first.

    Args:
        method: The name of the method.
        argv: The arguments behind it.

    Raises:
        UserError: For an unknown method, one without a federated form, and from the parser.
    """
    module = methods.get(method)
    if "federated" not in {field.name for field in dataclasses.fields(module.Config)}:
        raise UserError(f"{method} has no federated form; use gswgan")
    known = presets.all_of(method)
    federated = [name for name, preset in known.items() if preset.config.federated]
    stated = parser.peek(argv, "--preset")
    name, preset = presets.get(method, stated or (federated or list(known))[0])
    spec = preset.spec
    if not isinstance(spec, ImageSpec):
        raise UserError(f"preset {name} is for tables; a federation trains on images")
    generic: Any = Federate  # whose parameter is known at run time only
    defaults = Federate(name, preset.epsilon, preset.delta, spec.height, spec.width, spec.channels,
                        spec.classes, dataclasses.replace(preset.config, federated=True))
    parsed = parser.parse(generic[module.Config], argv, f"python -m dpgen_jax.federate {method}",
                       f"{DESCRIPTION} Presets of {method}: {', '.join(known)}.", defaults)
    return dataclasses.replace(parsed, preset=name)  # an old name is reported once


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError, BudgetExceeded."""
    method, argv = parser.split_method(argv, "gswgan")
    if not argv:
        raise UserError("a federation needs the number of its clients and their budget, as in "
                        f"{program('federate', method, '--critics', 10, '--epsilon', 10)}; nothing "
                        "was written (all flags: --help)")
    args = parse(method, argv)
    from dpgen_jax.federated.messages import Terms
    from dpgen_jax.run.calibrate_config import complete

    spec = ImageSpec(args.height, args.width, args.channels, args.classes)
    budget = Budget(args.epsilon, args.delta)
    terms = Terms(method, complete(method, args.config, spec, budget), spec)
    text = summary(terms, args)  # before a file is written: it builds the method
    write(args.out, terms, args)
    print(text, flush=True)


def write(folder: Path, terms: Terms, args: Federate[Any]) -> None:
    """Writes the app's pyproject.toml.

    Args:
        folder: The folder of the app.
        terms: All that server and clients must agree on.
        args: The flags.

    Raises:
        UserError: Where there is an app, which is left untouched.
    """
    path = folder / "pyproject.toml"
    if path.exists():
        raise UserError(f"{folder} already contains an app; remove it, or pass another --out")
    options = {"preset": args.preset, "epsilon": args.epsilon,
               "delta": args.delta, "out": str(args.run), "resume": False,
               "seconds": args.seconds, "wait": args.wait}
    options |= {} if args.seed is None else {"seed": args.seed}
    lines = [f"terms = '''\n{terms.to_text()}'''"]  # as it stands, for people to read
    # What JSON writes of a text, a number or a truth value, TOML reads, but for infinity.
    lines += [f"{name} = {json.dumps(value).replace('Infinity', 'inf')}"
              for name, value in options.items()]
    folder.mkdir(parents=True, exist_ok=True)
    head = APP.format(method=terms.method, epsilon=at_most(args.epsilon))
    path.write_text(head + "\n".join(lines) + "\n")


def summary(terms: Terms, args: Federate[Any]) -> str:
    """Returns what the user should know before the start: the cost, and what to type.

    Args:
        terms: All that server and clients must agree on.
        args: The flags.
    """
    import jax

    from dpgen_jax.federated.messages import form

    method = terms.build()
    sent = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(form(method)))
    rows, columns = method.mechanism.shape
    participations = method.mechanism.schedule.max_participations(terms.config.steps)
    return (f"{args.out}: {terms.config.n_clients} clients, {terms.config.steps} steps, "
            f"{participations} participations of a client, sigma {terms.config.sigma:g}: epsilon "
            f"{at_most(args.epsilon)} at delta {at_most(args.delta)} for all of a client's "
            f"records\na query takes {sent:,} bytes, an answer {4 * rows * columns:,}, for each "
            f"client and participation\nstart: flwr run {args.out} NAME --stream, with the "
            "SuperLink NAME of Flower's config")


if __name__ == "__main__":
    terminal.main(command)
