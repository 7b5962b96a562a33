"""python -m dpgen_jax.account METHOD [--preset NAME] [--epsilon E | --steps N] [--json]

    python -m dpgen_jax.account RUN       what a run has spent, from its ledger
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any

import tyro

from dpgen_jax import cli, methods, presets
from dpgen_jax.accountant import gaussian, ledger
from dpgen_jax.accountant.published import PUBLISHED
from dpgen_jax.config import Budget, to_json
from dpgen_jax.errors import UserError
from dpgen_jax.plan import complete

DESCRIPTION = ("What a configuration costs: proven for the code that runs, and as the paper "
               "counted it. Reads no data.")


def arguments(method: str, preset: str | None) -> type:
    """The flags, with the preset's values as defaults; steps come from the budget unless given."""
    name, chosen = presets.get(method, preset)
    rows = [
        ("preset", str, name, f"one of: {', '.join(presets.all_of(method))}"),
        ("epsilon", float | None, None, f"target (the preset's: {chosen.epsilon:g})"),
        ("delta", float, chosen.delta, "target"),
        ("json", bool, False, "print JSON"),
    ]
    return dataclasses.make_dataclass("Account", [
        (n, Annotated[t, tyro.conf.arg(help=text)], dataclasses.field(default=d))
        for n, t, d, text in rows] + [
        ("config", Annotated[methods.get(method).Config, tyro.conf.arg(name="")],
         dataclasses.field(default=chosen.config))])


def of_configuration(method: str, preset: str, config: Any, epsilon: float | None, delta: float
                     ) -> dict[str, Any]:
    """The record of `account --json` in interface.md. Without epsilon: what `config.steps` cost."""
    chosen = presets.get(method, preset)[1]
    target = chosen.epsilon if epsilon is None else epsilon
    if epsilon is None and config.steps and config.sigma:
        target = math.inf
    config = complete(method, config, chosen.spec, Budget(target, delta))
    events = methods.get(method).mechanism(config, chosen.spec).events(config.steps)
    published = PUBLISHED[method](config, delta)
    steps = config.steps
    if math.isfinite(target) and chosen.config.steps is None:
        steps = published.max_steps(target)
    return {
        "method": method, "preset": preset, "target": {"epsilon": target, "delta": delta},
        "proven": {"epsilon": gaussian.epsilon(events, delta), "steps": config.steps,
                   "sigma": config.sigma, "accountant": "exact Gaussian differential privacy"},
        "as_published": {"epsilon": published.epsilon(steps), "steps": steps,
                         "formula": published.formula},
    }


def of_run(root: Path) -> dict[str, Any]:
    """What the ledger of a run holds. For the data holder: `spent` is a reading, not the claim."""
    held = ledger.account(ledger.read(root / "ledger.jsonl"))
    return {"run": str(root), "claimed": {"epsilon": held.header["epsilon"],
                                          "delta": held.header["delta"]},
            "spent": {"epsilon": held.epsilon(), "steps": held.steps},
            "events": [{**dataclasses.asdict(event), "count": n} for event, n in held.spent()]}


def command(argv: list[str]) -> None:
    name, rest = cli.split_method(argv, "datalens")
    if name not in methods.NAMES and Path(name).is_dir():
        if set(rest) - {"--json"}:
            raise UserError(f"a run takes no further flag than --json, got {' '.join(rest)}")
        record = of_run(Path(name))
    else:
        methods.get(name)
        kind = arguments(name, cli.peek(rest, "--preset"))
        given = cli.parse(kind, rest, f"python -m dpgen_jax.account {name}", DESCRIPTION)
        record = of_configuration(name, given.preset, given.config, given.epsilon, given.delta)
    if "--json" in rest:
        print(json.dumps(to_json(record), indent=1))
    else:
        show(record)


def show(record: dict[str, Any]) -> None:
    """The record in words."""
    for name, value in record.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}"
                              for k, v in value.items())
        print(f"{name.replace('_', ' ') + ':':14} {value}")


if __name__ == "__main__":
    cli.main(command)
