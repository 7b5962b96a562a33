"""python -m dpgen_jax.join APP --data npz:FILE --client N --epsilon E [--folder DIR] ...

A client of a federation: a process of the data holder's, which keeps records, critic and ledger.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import tomllib
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax import cli
from dpgen_jax.config import Budget
from dpgen_jax.types import ImageSpec, UserError

DESCRIPTION = ("Holds the records of one client and answers the questions of a federation, with "
               "noise added here, until it is interrupted or its budget is used up.")
Help = tyro.conf.arg


@dataclasses.dataclass(frozen=True)
class Join:
    app: Annotated[tyro.conf.Positional[Path], Help(
        help="the app's folder: what the server's side sent, to be read before it is joined")]
    data: Annotated[str, Help(help="the client's own records, as the README lists data sets")]
    client: Annotated[int, Help(help="which client this is: 0 or above, its own number")]
    epsilon: Annotated[float, Help(help="the most that answering may cost all of these records")]
    delta: Annotated[float, Help(help="of the same promise")] = 1e-5
    folder: Annotated[Path | None, Help(help="client-N if left out; for its owner only")] = None
    socket: Annotated[Path | None, Help(help="FOLDER.socket if left out")] = None
    schema: Annotated[str | None, Help(help="the schema of a csv: a YAML file")] = None
    seed: Annotated[int | None, Help(help="repeats a run; then there is NO privacy claim")] = None


def terms_of(app: Path):
    """The terms that an app's folder holds. Errors: UserError."""
    from dpgen_jax.federated.messages import Terms

    path = app / "pyproject.toml"
    try:
        held = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]
        return Terms.from_text(held["terms"])
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not the app of a federation ({error})") from None


def command(argv: list[str]) -> None:
    given = cli.parse(Join, argv, "python -m dpgen_jax.join", DESCRIPTION)
    logging.basicConfig(format="%(asctime)s %(message)s")
    from dpgen_jax import data
    from dpgen_jax.federated import wire
    from dpgen_jax.federated.client import open_client

    terms = terms_of(given.app)
    options = {} if given.schema is None else {"schema": given.schema}
    if isinstance(terms.spec, ImageSpec):
        options["classes"] = terms.spec.classes
    root = given.folder or Path(f"client-{given.client}")
    path = given.socket or root.with_name(root.name + ".socket")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_client(root, terms, data.load(given.data, **options),
                     Budget(given.epsilon, given.delta), number=given.client,
                     seed=given.seed) as client:
        client.prepare()
        wire.listen(path, client.reply, ready=lambda: print(
            f"client {client.number} holds {root.absolute()} and listens at {path.absolute()}: "
            f"epsilon {client.ledger.epsilon():.4g} of {given.epsilon:g} is spent", flush=True))


if __name__ == "__main__":
    cli.main(command)
