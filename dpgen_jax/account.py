"""python -m dpgen_jax.account METHOD [--preset NAME] [--epsilon E | --steps N] [--json]

    python -m dpgen_jax.account RUN                    what a run has spent, from its ledger
    python -m dpgen_jax.account RUN --data-dependent   what its votes say; for the data holder only
    python -m dpgen_jax.account RUN --sanitise         publishes a bound on that, once, at a cost
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from dpgen_jax import cli, data_dependent, guarantee, methods, presets, purchases
from dpgen_jax.accountant import gaussian, ledger
from dpgen_jax.accountant.events import Events, without_distance
from dpgen_jax.accountant.published import PUBLISHED
from dpgen_jax.config import Budget, to_json
from dpgen_jax.errors import UserError
from dpgen_jax.plan import complete, with_records
from dpgen_jax.run import contents, statement
from dpgen_jax.run.folder import RunFolder, read_json

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
    budget = Budget(target, delta, chosen.class_epsilon)
    if config.of_records and config.records is None:
        config = with_records(config, chosen.records)
    config = complete(method, config, chosen.spec, budget)
    events = (*purchases.planned((), budget.class_epsilon),
              *methods.get(method).mechanism(config, chosen.spec).events(config.steps))
    return {
        "method": method, "preset": preset, "target": {"epsilon": target, "delta": delta},
        "proven": _proven(events, delta) | {"steps": config.steps, "sigma": config.sigma},
        "as_published": _as_published(method, chosen, config, target, delta),
    }


def _proven(events: Events, delta: float) -> dict[str, Any]:
    """Epsilon and how it is counted. Far above 50 the distance between drawn and ideal noise, 2^-96
    for a number, is more than delta allows: what ideal noise would give is said as such, and no run
    can promise it."""
    epsilon, how = gaussian.epsilon(events, delta), statement.accountant(events)
    ideal = gaussian.epsilon(without_distance(events), delta)
    if epsilon == ideal or math.isfinite(epsilon):
        return {"epsilon": epsilon, "accountant": how}
    return {"epsilon": ideal, "accountant": f"{how}; for ideal noise, which no run draws"}


def _as_published(method: str, preset: presets.Preset, config: Any, target: float, delta: float
                  ) -> dict[str, Any] | None:
    """What the paper's formula says of the steps that its authors ran, if they tell and nothing
    was changed; else of the configuration's, where the preset fixes them; else of all that it
    allows. None for an aggregation that the paper does not have."""
    published = PUBLISHED.get(method, lambda config, delta: None)(config, delta)
    if published is None:
        return None
    steps = config.steps
    if math.isfinite(target) and preset.config.steps is None:
        unchanged = dataclasses.replace(config, steps=None) == preset.config
        as_run = preset.paper_steps if unchanged and target == preset.epsilon else None
        steps = as_run or published.max_steps(target)
    return {"epsilon": published.epsilon(steps), "steps": steps, "formula": published.formula}


def of_run(root: Path) -> dict[str, Any]:
    """What the ledger of a run holds. For the data holder: `spent` is a reading, not the claim."""
    held = ledger.account(ledger.read(root / "ledger.jsonl"))
    return {"run": str(root), "guarantee": _stamp(root, held),
            "claimed": {"epsilon": held.claim(), "delta": held.header["delta"]},
            "spent": {"epsilon": held.epsilon(), "steps": held.steps},
            "events": [{**event.statement(), "count": n} for event, n in held.spent()]}


def _stamp(root: Path, held: ledger.Account) -> str:
    """The stamp of a run's release; of a run without one, what it would be."""
    files = RunFolder(root)
    released = files.release / "privacy.json"
    if released.is_file():
        return guarantee.line(contents.statement(read_json(released), str(released)))
    if not files.config.is_file():
        return f"none: {root} holds neither a release nor the config.json of a run"
    config = contents.described(files.config)
    seeded = config.get("seed") is not None
    faults = guarantee.faults(
        max(held.target, held.epsilon()), "seeded" if seeded else guarantee.SOUND_NOISE,
        config["config"].get("accounting", "proven"), config.get("simulated", ""))
    stamp = guarantee.stamped(held.header["relation"], faults, config.get("not_covered") or ())
    return f"{stamp.text} (of a release that is not there yet)"


def _asked_of_run(flags: list[str]) -> Callable[[Path], dict[str, Any]]:
    known = {"--data-dependent": data_dependent.reading, "--sanitise": data_dependent.publish}
    wanted = [flag for flag in flags if flag != "--json"]
    if len(wanted) > 1 or set(wanted) - known.keys():
        raise UserError(f"a run takes --json and one of {', '.join(known)}, got {' '.join(flags)}")
    return known[wanted[0]] if wanted else of_run


def command(argv: list[str]) -> None:
    name, rest = cli.split_method(argv, "datalens")
    if name not in methods.NAMES and Path(name).is_dir():
        record = _asked_of_run(rest)(Path(name))
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
