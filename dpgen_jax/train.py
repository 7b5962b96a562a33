"""python -m dpgen_jax.train [METHOD] [--dataset D] [--preset NAME] [--epsilon E] [--out DIR] ...

    python -m dpgen_jax.train --init-schema data.csv --label COLUMN --out schema.yaml
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax import cli, init_schema, methods, presets
from dpgen_jax.config import Budget, DataOptions, Runtime, Watch

DESCRIPTION = ("Trains a generator under differential privacy. Every field of the method's "
               "configuration is a flag; the defaults are those of the preset.")


def arguments(method: str, preset: str | None, dataset: str) -> type:
    """The flags, with the values of the preset, or of the data set's default one. dataset is
    "federated" for a federation, whose presets suit any data set."""
    name, chosen = presets.get(method, preset, dataset)
    kind = methods.get(method).Config
    flat = tyro.conf.arg(name="")
    rows = [
        ("dataset", str, "glyphs", "what to train on, as the README lists it"),
        ("preset", str, name, f"one of: {', '.join(presets.all_of(method))}"),
        ("epsilon", float, chosen.epsilon, "the promise; inf: no privacy"),
        ("delta", float, chosen.delta, "must lie below 1 / records"),
        ("class_epsilon", float, chosen.class_epsilon, "of epsilon, for noisy class counts by "
         "which labels are sampled; 0: classes in equal shares"),
        ("out", Path | None, None, "run folder; runs/METHOD-DATASET-TIME if left out"),
        ("total_epsilon", float | None, None, "refuse a run with which all runs on these records, "
         "as far as this machine's journal knows them, would go beyond this epsilon"),
        ("resume", bool, False, "go on with the run in --out"),
        ("seed", int | None, None, "repeats a run bit for bit; then there is NO privacy claim"),
        ("accept_uncovered", bool, False, "release public fields that were read from private "
         "records, and say so in the statement"),
        ("clients", int | None, None, "simulated clients to deal the records to: with --federated, "
         "or for a method of clients"),
        ("alpha", float | None, None, "with --clients: how much they differ, Dirichlet(alpha) by "
         "class; evenly if left out"),
    ]
    return dataclasses.make_dataclass("Train", [
        (n, Annotated[t, tyro.conf.arg(help=text)], dataclasses.field(default=d))
        for n, t, d, text in rows] + [
        ("config", Annotated[kind, flat], dataclasses.field(default=chosen.config)),
        ("data", Annotated[DataOptions, flat], dataclasses.field(default=DataOptions())),
        ("watched", Annotated[Watch, flat], dataclasses.field(default=Watch())),
        ("runtime", Annotated[Runtime, flat], dataclasses.field(default=Runtime()))])


def command(argv: list[str]) -> int | None:
    if cli.peek(argv, "--init-schema") is not None:
        return init_schema.command(argv)
    method, argv = cli.split_method(argv, "datalens")
    methods.get(method)
    dataset = "federated" if "--federated" in argv else cli.peek(argv, "--dataset") or "glyphs"
    kind = arguments(method, cli.peek(argv, "--preset"), dataset)
    given = cli.parse(kind, argv, f"python -m dpgen_jax.train {method}", DESCRIPTION)
    cli.use_all_cores()
    from dpgen_jax import api, data, protection
    from dpgen_jax.run.progress import Notices

    loaded = data.load(given.dataset, **vars(given.data))
    loaded, config = protection.federated(loaded, given.config, given.clients, given.alpha)
    asked = api.Run(method, given.preset, config,
                    Budget(given.epsilon, given.delta, given.class_epsilon),
                    given.runtime, given.out, given.resume, given.seed, given.watched,
                    given.accept_uncovered, given.total_epsilon)
    notices = Notices()
    api.run(asked, loaded, notices=notices)
    return cli.INCOMPLETE if notices.failures else None


if __name__ == "__main__":
    cli.main(command)
