"""python -m dpgen_jax.federate [METHOD] --critics N --epsilon E [--out DIR] ...

Writes the Flower app of a federation, which holds all that server and clients must agree on.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import tyro

from dpgen_jax import cli, methods, presets
from dpgen_jax.config import Budget
from dpgen_jax.types import ImageSpec, UserError

DESCRIPTION = ("Writes a Flower app that trains a generator over clients who keep their records and"
               " add the noise themselves. --critics is the number of clients.")
APP = """\
[project]
name = "federation"
version = "1.0.0"
description = "A federation of dpgen_jax: {method}, epsilon {epsilon:g} for each client"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "dpgen-jax"

[tool.flwr.app.components]
serverapp = "dpgen_jax.federated.flower_server:app"
clientapp = "dpgen_jax.federated.flower_client:app"

[tool.flwr.app.config]
"""


def arguments(method: str, preset: str | None) -> type:
    """The flags, with the values of the preset: the first federated one, or the first."""
    known = presets.all_of(method)
    federated = [n for n, held in known.items() if held.config.federated]
    name, chosen = presets.get(method, preset or (federated or list(known))[0])
    spec = chosen.spec
    rows = [
        ("preset", str, name, f"one of: {', '.join(known)}"),
        ("epsilon", float, chosen.epsilon, "the most that the questions may cost a client"),
        ("delta", float, chosen.delta, "of the same promise"),
        ("height", int, spec.height, "pixels of the clients' images"),
        ("width", int, spec.width, "likewise"),
        ("channels", int, spec.channels, "1 or 3"),
        ("classes", int, spec.classes, "of the clients' labels"),
        ("out", Path, Path("federation"), "the folder of the app"),
        ("run", Path, Path("runs/federation"), "the run folder, seen from where the SuperLink was "
         "started"),
        ("seconds", float, 120.0, "for which a turn waits for answers"),
        ("wait", float, 600.0, "for which the start waits for clients to join, in seconds"),
        ("seed", int | None, None, "repeats the server's draws, which protect nothing"),
    ]
    return dataclasses.make_dataclass("Federate", [
        (n, Annotated[t, tyro.conf.arg(help=text)], dataclasses.field(default=d))
        for n, t, d, text in rows] + [
        ("config", Annotated[methods.get(method).Config, tyro.conf.arg(name="")],
         dataclasses.field(default=dataclasses.replace(chosen.config, federated=True)))])


def command(argv: list[str]) -> None:
    method, argv = cli.split_method(argv, "gswgan")
    if "federated" not in {f.name for f in dataclasses.fields(methods.get(method).Config)}:
        raise UserError(f"{method} has no federated form; use gswgan")
    kind = arguments(method, cli.peek(argv, "--preset"))
    given = cli.parse(kind, argv, f"python -m dpgen_jax.federate {method}", DESCRIPTION)
    from dpgen_jax.federated.messages import Terms
    from dpgen_jax.plan import complete

    spec = ImageSpec(given.height, given.width, given.channels, given.classes)
    budget = Budget(given.epsilon, given.delta)
    terms = Terms(method, complete(method, given.config, spec, budget), spec)
    said = summary(terms, given)  # before a file is written: it builds the method
    write(given.out, terms, given)
    print(said, flush=True)


def write(folder: Path, terms: Any, given: Any) -> None:
    """DIR/pyproject.toml. Errors: UserError where there is one, which is left untouched."""
    path = folder / "pyproject.toml"
    if path.exists():
        raise UserError(f"{folder} holds an app; remove it, or pass another --out")
    options = {"preset": given.preset, "epsilon": given.epsilon,
               "delta": given.delta, "out": str(given.run), "resume": False,
               "seconds": given.seconds, "wait": given.wait}
    options |= {} if given.seed is None else {"seed": given.seed}
    lines = [f"terms = '''\n{terms.to_text()}'''"]  # as it stands, for people to read
    # What JSON writes of a text, a number or a truth value, TOML reads, but for infinity.
    lines += [f"{name} = {json.dumps(value).replace('Infinity', 'inf')}"
             for name, value in options.items()]
    folder.mkdir(parents=True, exist_ok=True)
    head = APP.format(method=terms.method, epsilon=given.epsilon)
    path.write_text(head + "\n".join(lines) + "\n")


def summary(terms: Any, given: Any) -> str:
    """What the user should know before the start: cost in privacy, in bytes, and what to type."""
    import jax

    from dpgen_jax.federated.messages import form

    method = terms.build()
    sent = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(form(method)))
    rows, columns = method.mechanism.shape
    visits = method.mechanism.schedule.visits(terms.config.steps)
    return (f"{given.out}: {terms.config.critics} clients, {terms.config.steps} steps, "
            f"{visits} visits to each client, sigma {terms.config.sigma:g}: epsilon "
            f"{given.epsilon:g} at delta {given.delta:g} for all of a client's records\n"
            f"a question takes {sent:,} bytes, an answer {4 * rows * columns:,}, for each client "
            "and visit\n"
            f"start: flwr run {given.out} NAME --stream, with the SuperLink NAME of Flower's "
            "config")


if __name__ == "__main__":
    cli.main(command)
