"""python -m dpgen_jax.join APP --data npz:FILE --client N --epsilon E [--folder DIR] ...

A client of a federation: a process of the data holder's, which keeps records, critic and ledger.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import tell
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import ImageSpec, UserError

if TYPE_CHECKING:
    from dpgen_jax.federated.messages import Terms

DESCRIPTION = ("Runs one client: it answers the queries of a federation from its own records, with "
               "noise added here, until it is interrupted or its budget is used up.")


@dataclasses.dataclass(frozen=True)
class Join:
    """The flags."""

    app: Annotated[Path, tyro.conf.Positional]
    """the folder of the app, as the server's side sent it; read it before joining"""
    data: str
    """the client's own records, SOURCE:PLACE as the documentation lists data sets"""
    client: int
    """the number of this client, from 0"""
    epsilon: float
    """the most that answering may cost for all of these records"""
    delta: float = 1e-5
    """of the same promise"""
    folder: Path | None = None
    """by default client-N; only its owner can read it"""
    socket: Path | None = None
    """by default FOLDER.socket"""
    schema: str | None = None
    """the schema of a csv: a YAML file"""
    seed: int | None = None
    """repeats a run, WITHOUT a privacy guarantee"""


def terms_of(app: Path) -> Terms:
    """Reads the terms of a federation from the folder of its app.

    Args:
        app: The folder.

    Raises:
        UserError: It is not such a folder.
    """
    from dpgen_jax.federated.messages import Terms

    path = app / "pyproject.toml"
    try:
        config = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]
        return Terms.from_text(config["terms"])
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not the app of a federation ({error})") from None


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    args = parser.parse(Join, argv, "python -m dpgen_jax.join", DESCRIPTION)
    logging.basicConfig(format="%(asctime)s %(message)s")
    from dpgen_jax import data
    from dpgen_jax.federated import wire
    from dpgen_jax.federated.client import Seat, open_client

    terms = terms_of(args.app)
    options: dict[str, Any] = {} if args.schema is None else {"schema": args.schema}
    if isinstance(terms.spec, ImageSpec):
        options["classes"] = terms.spec.classes
    root = args.folder or Path(f"client-{args.client}")
    path = args.socket or root.with_name(root.name + ".socket")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_client(root, terms, data.load(args.data, **options),
                     Budget(args.epsilon, args.delta),
                     seat=Seat(args.client, args.seed)) as client:
        def notify(what: str) -> None:
            alone = "; its noise comes from a seed, so nothing is promised"
            tell(f"client {client.number} {what}: epsilon {at_most(client.ledger.epsilon(), 4)} "
                 f"of {at_most(args.epsilon)} is spent" + alone * (args.seed is not None))

        client.prepare()
        try:
            wire.listen(path, client.reply, ready=lambda: notify(
                f"uses {root.absolute()} and listens at {path.absolute()}"))
        finally:
            notify("stops")


if __name__ == "__main__":
    terminal.main(command)
