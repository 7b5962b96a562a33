"""python -m dpgen_jax.train [METHOD] [--dataset D] [--preset NAME] [--epsilon E] [--out DIR] ..."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen_jax import methods, presets, schema
from dpgen_jax.core import cli, hosts
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import program, tell
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.hosts import Hosts
from dpgen_jax.presets import choice as short_help
from dpgen_jax.run import flags, undeclared
from dpgen_jax.run.flags import Supposed, Train, TrainClients

if TYPE_CHECKING:
    from dpgen_jax.data import Dataset
    from dpgen_jax.run.planning import Request

DESCRIPTION = ("Trains a generator under differential privacy. Every field of the method's "
               "configuration is a flag; the defaults are those of the preset.")


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A training as it will be run.

    Attributes:
        method: The name of the method.
        args: The flags, with the preset's values where the user stated none.
        dataset: The data set.
        why: Why the method and the preset were chosen; empty where the user named both.
        words: The flags by which it could be repeated.
        remarks: Lines on how the data were read where the user did not say.
    """

    method: str
    args: Train[Any]
    dataset: Dataset
    why: str
    words: list[str]
    remarks: tuple[str, ...] = ()


def parse(method: str, argv: list[str], chosen: short_help.Choice | None = None) -> Train[Any]:
    """Parses the flags, whose defaults are those of the preset.

    The configuration of the method is a type parameter of the flags and not a tyro subcommand:
    subcommands would load all methods and all presets, whichever is trained.

    Args:
        method: The name of the method.
        argv: The arguments behind it.
        chosen: The preset that was chosen for the data; None for the one that the user names, or
            before the data are read.

    Raises:
        UserError: For an unknown method or preset, and from the parser.
    """
    module = methods.get(method)
    dataset = "federated" if "--federated" in argv else cli.peek(argv, "--dataset") or "glyphs"
    stated = cli.peek(argv, "--preset")
    name, preset = (chosen.name, chosen.preset) if chosen else presets.get(
        method, stated or short_help.provisional(method, dataset))
    clients = any(field.name == "clients" for field in dataclasses.fields(module.Config))
    kind: Any = TrainClients if clients else Train
    defaults = kind(name, preset.epsilon, preset.delta, preset.class_epsilon, preset.config)
    if stated is not None:
        from dpgen_jax.run import fitting

        place = cli.peek(argv, "--dataset") or defaults.dataset
        defaults = dataclasses.replace(defaults, data=fitting.preset_options(preset, place))
    known = ", ".join(presets.all_of(method))
    parsed = cli.parse(kind[module.Config], argv, program("train", method),
                       f"{DESCRIPTION} Presets of {method}: {known}.", defaults)
    return dataclasses.replace(parsed, preset=name)  # an old name is reported once


def command(argv: list[str]) -> int | None:
    """Runs the command; returns its exit code. Raises: UserError, BudgetExceeded."""
    if cli.peek(argv, "--init-schema") is not None:
        cli.renamed("train --init-schema", "schema")
        schema.command(cli.without_flag(argv, "--init-schema"))
        return None
    if {"--help", "-h"} & set(argv):
        print(short_help.help_text(program("train"), cli.split_method(argv, "")[0]))
        raise SystemExit(0)
    method, words = cli.split_method(flags.resumed_words(argv), "")
    if method and method not in methods.NAMES and Path(method).exists():
        raise UserError(f"{method!r} is no method but a path: write --dataset {method}")
    if "--help-all" in words:
        parse(method or short_help.DEMONSTRATION[0], ["--help"])
    if not (method or cli.peek(words, "--dataset")):
        method, _ = short_help.DEMONSTRATION
    cli.use_all_cores()
    hosts.start(meeting(words), [method, *words])
    with hosts.alive():
        return trained(method, words)


def meeting(words: list[str]) -> Hosts:
    """Returns where the processes of the run meet, which is read before all other flags."""
    texts = {name: cli.peek(words, "--" + name.replace("_", "-"))
             for name in ("processes", "process_id", "join_seconds")}
    try:
        numbers = {name: int(text) for name, text in texts.items() if text is not None}
    except ValueError as error:
        raise UserError("--processes, --process-id and --join-seconds are whole numbers") from error
    return Hosts(cli.peek(words, "--coordinator"), **numbers)


def trained(method: str, words: list[str]) -> int | None:
    """Trains as the flags say; returns the exit code.

    Args:
        method: The name of the method; empty where the user named none.
        words: The flags.

    Raises:
        UserError: As `lifecycle.run`.
    """
    reading, first, args = read(method, words)
    if reading.supposed:
        for line in rehearsed(method or first, reading.words, args, reading.supposed):
            tell(line)
        return None
    from dpgen_jax.run import lifecycle
    from dpgen_jax.run.progress import Notices

    with undeclared.remembered(args.out):
        request, dataset = requested(choose(method, reading, first, args))
        notices = Notices()
        if args.dry_run:
            for line in (lifecycle.rehearse(request, dataset, notices=notices)
                         if hosts.leads() else ()):
                tell(line)
            return None
        if not hosts.leads():
            take_part = lifecycle.join(request, dataset)
            del dataset  # the records of other processes' units need not stay in memory
            return take_part()
        lifecycle.run(request, dataset, notices=notices)
        return notices.exit_code or None


def requested(chosen: Chosen) -> tuple[Request, Dataset]:
    """Returns the request of a training, and its data set, with simulated clients where it has any.

    Args:
        chosen: The training.

    Raises:
        UserError: Clients that the method or the data set cannot have.
    """
    from dpgen_jax.run import planning
    from dpgen_jax.run.planning import Request

    args, clients = chosen.args, chosen.args.clients
    if isinstance(args, TrainClients) and cli.peek(chosen.words, "--clients") is not None:
        clients = args.config.clients  # asked for, and not a preset's
    dataset, config = planning.federated(chosen.dataset, args.config, clients, args.alpha)
    return Request(
        chosen.method, args.preset, config, Budget(args.epsilon, args.delta, args.class_epsilon),
        args.runtime, args.out, args.resume, args.seed, args.monitor, args.accept_uncovered,
        args.total_epsilon, chosen.why, flags.kept_words(chosen.method, chosen.words),
        chosen.remarks, args.release_to), dataset


def read(method: str, words: list[str]) -> tuple[undeclared.Reading, str, Train[Any]]:
    """Decides how the data are read; what nobody declared is bought.

    Args:
        method: The name of the method; empty where the user named none.
        words: The flags.

    Returns:
        The reading, the method that it is for, and the flags, parsed.

    Raises:
        UserError: For flags that are no good, and where nothing can be bought.
    """
    reading = undeclared.with_kind(words)
    first = method or short_help.method_for(short_help.kind_of(reading.place))[0]
    args = parse(first, reading.words)
    for kind, declare in (("folder:", undeclared.undeclared_folder),
                          ("csv:", undeclared.undeclared_table)):
        if reading.place.startswith(kind):
            reading = declare(reading, first, args, functools.partial(
                refuse, method or first, words, args))
            args = parse(first, reading.words)
    return reading, first, args


def refuse(method: str, words: list[str], args: Train[Any], supposed: Supposed) -> None:
    """Refuses, before anything is bought, what would be refused whatever the answer is.

    Args:
        method: The name of the method.
        words: The flags.
        args: The same, parsed.
        supposed: What would be bought, and data as they could be.

    Raises:
        UserError: A run on such data would be refused, of whichever width or number of classes.
    """
    from dpgen_jax.run import lifecycle

    def request_for(dataset: Dataset) -> tuple[Request, Dataset]:
        facts = short_help.Facts("", dataset.spec, supposed.records)
        served_by, _ = served(method, words, args, facts)
        served_by = dataclasses.replace(served_by, epsilon=supposed.budget.epsilon,
                                        delta=supposed.budget.delta)
        return requested(Chosen(method, served_by, dataset, "", words))

    lifecycle.refuse(supposed, request_for)


def choose(method: str, reading: undeclared.Reading, first: str, args: Train[Any]) -> Chosen:
    """Loads the data set, and chooses what the user did not name by what is public of it.

    Args:
        method: The name of the method; empty where the user named none.
        reading: How the data are read.
        first: The method that this is for.
        args: The flags, parsed.

    Returns:
        The training.

    Raises:
        UserError: For data that cannot be read, and where no preset of the method is for such data.
    """
    words, dataset = reading.words, _loaded(first, args, reading)
    facts = short_help.Facts(short_help.public_name(reading.place, args.data.attribute),
                             dataset.spec,
                             dataset.count, dataset.clients is not None)
    reasons: list[str] = []
    if not method:
        method, why = short_help.method_for(facts.kind)
        reasons.append(why)
        args = args if method == first else parse(method, words)
    args, why = served(method, words, args, facts)
    reasons += [why] * bool(why)
    return Chosen(method, args, dataset, "; ".join(reasons), words, reading.remarks)


def served(method: str, words: list[str], args: Train[Any], facts: short_help.Facts
           ) -> tuple[Train[Any], str]:
    """Returns the flags with the preset that serves the data, and why it does.

    Args:
        method: The name of the method.
        words: The flags.
        args: The same, parsed; they stay as they are where the user names the preset.
        facts: What is public of the data.

    Raises:
        UserError: No preset of the method is for such data.
    """
    if cli.peek(words, "--preset") is not None or getattr(args.config, "federated", False):
        return args, ""
    stated = args.epsilon if cli.peek(words, "--epsilon") is not None else None
    tuned = args.config != presets.get(method, args.preset)[1].config
    serving = short_help.preset_for(method, facts, stated, tuned)
    if (serving.name, serving.preset) != presets.get(method, args.preset):
        args = parse(method, words, serving)
    return args, serving.why


def rehearsed(method: str, words: list[str], args: Train[Any], supposed: Supposed) -> list[str]:
    """Returns the lines of a rehearsal that ends before the data are typed.

    Args:
        method: The name of the method.
        words: The flags.
        args: The same, parsed.
        supposed: What would be bought, and data as they could be.

    Raises:
        UserError: As `choose`.
    """
    from dpgen_jax.run import lifecycle

    facts = short_help.Facts("", supposed.spec, supposed.records)
    args, _ = served(method, words, args, facts)
    return lifecycle.purchase_lines(method, args.config, args.class_epsilon, supposed)


def _loaded(method: str, args: Train[Any], reading: undeclared.Reading) -> Dataset:
    """The data set, with what was bought on it, and a held-out part."""
    from dpgen_jax import data
    from dpgen_jax.run import fitting

    options = dataclasses.replace(args.data, test_fraction=None)
    if cli.peek(reading.words, "--preset") is None:
        dataset = data.load(reading.place, **vars(options))
    else:
        _, preset = presets.get(method, args.preset)
        dataset = fitting.load_preset_data(args.preset, preset, reading.place, options)
    if reading.bought:
        dataset = dataclasses.replace(dataset, bought=reading.bought)
    return undeclared.held_out_part(dataset, args)


if __name__ == "__main__":
    cli.main(command)
