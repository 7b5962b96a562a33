"""python -m dpgen_jax.train [METHOD] [--dataset D] [--preset NAME] [--epsilon E] [--out DIR] ..."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax import cli, methods, presets
from dpgen_jax.config import Budget, Runtime

DESCRIPTION = ("Trains a generator under differential privacy. Every field of the method's "
               "configuration is a flag; the defaults are those of the preset.")


def arguments(method: str, preset: str | None) -> type:
    """The flags, with the preset's values as defaults."""
    name, chosen = presets.get(method, preset)
    kind = methods.get(method).Config
    flat = tyro.conf.arg(name="")
    rows = [
        ("dataset", str, "glyphs", "glyphs, digits, idx:DIR, npz:FILE, folder:DIR or tfds:NAME"),
        ("preset", str, name, f"one of: {', '.join(presets.all_of(method))}"),
        ("epsilon", float, chosen.epsilon, "the promise; inf: no privacy"),
        ("delta", float, chosen.delta, "must lie below 1 / records"),
        ("out", Path | None, None, "run folder; runs/METHOD-DATASET-TIME if left out"),
        ("resume", bool, False, "go on with the run in --out"),
        ("seed", int | None, None, "repeats a run bit for bit; then there is NO privacy claim"),
        ("classes", int | None, None, "number of classes, where the data do not declare it"),
        ("image_size", int | None, None, "resize images to this many pixels a side"),
    ]
    return dataclasses.make_dataclass("Train", [
        (n, Annotated[t, tyro.conf.arg(help=text)], dataclasses.field(default=d))
        for n, t, d, text in rows] + [
        ("config", Annotated[kind, flat], dataclasses.field(default=chosen.config)),
        ("runtime", Annotated[Runtime, flat], dataclasses.field(default=Runtime()))])


def command(argv: list[str]) -> None:
    method, argv = cli.split_method(argv, "datalens")
    methods.get(method)
    kind = arguments(method, cli.peek(argv, "--preset"))
    given = cli.parse(kind, argv, f"python -m dpgen_jax.train {method}", DESCRIPTION)
    cli.use_all_cores()
    from dpgen_jax import api, data

    loaded = data.load(given.dataset, classes=given.classes, image_size=given.image_size)
    asked = api.Run(method, given.preset, given.config, Budget(given.epsilon, given.delta),
                    given.runtime, given.out, given.resume, given.seed)
    api.run(asked, loaded, say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    cli.main(command)
