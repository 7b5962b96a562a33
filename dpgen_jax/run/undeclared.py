"""How data are read where the flags of `train` do not say: kind, size, classes, a held-out part.

What is taken is a public constant, or bought under differential privacy, and always said.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dpgen_jax import presets
from dpgen_jax.accountant import calibrate, events
from dpgen_jax.accountant.events import Events
from dpgen_jax.core import cli
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import ImageSpec, Private, UserError
from dpgen_jax.data.base import Dataset, locate, safe_name
from dpgen_jax.presets import choice
from dpgen_jax.run import typed
from dpgen_jax.run.flags import Train
from dpgen_jax.run.folder import RunFolder, default_root, go_on, read_json
from dpgen_jax.run.opening import refuse_used
from dpgen_jax.run.reading import Reading, Refuse, Supposed, budget_for, trained_on

CHANNELS, SIDE, DELTA = 3, 32, 1e-5
"""The values for an image folder that declares nothing."""


def with_kind(words: Sequence[str]) -> Reading:
    """Reads a bare path as the data set that lies there.

    Args:
        words: The flags.

    Raises:
        UserError: What lies there cannot be read.
    """
    from dpgen_jax import data

    place = cli.peek(words, "--dataset")
    if place is None:
        return Reading(choice.DEMONSTRATION[1], list(words))
    kind = "" if place.partition(":")[0] in data.SOURCES else data.kind_of(place)
    if not kind:
        return Reading(place, list(words))
    return Reading(f"{kind}:{place}", typed.merged(words, [f"--dataset={kind}:{place}"]),
                   (f"{place} is read as {kind}:{place}",))


def folder(reading: Reading, method: str, args: Train[Any], refuse: Refuse) -> Reading:
    """Adds what the flags do not say of an image folder: channels, size, and names of classes.

    Nothing is added where nothing is promised, or where the user accepts what is read from the
    records: then the loader reads all of it. A resumed run takes what it had.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        refuse: Raises where a run on such data would be refused; called before a purchase.

    Returns:
        The reading with more flags.

    Raises:
        UserError: Names cannot be bought; said before anything is spent where that can be known.
    """
    promised = (math.isfinite(args.epsilon) and args.seed is None and not args.accept_uncovered
                and not args.config.protects_clients)
    if not promised:
        return reading
    files = RunFolder(args.out) if args.resume and args.out else None
    if files is not None and (config := files.config).is_file() and not files.waiting:
        before = typed.data_words(files.root, ("class_names", "channels", "image_size")) or []
        flags = [word for word in before if not word.startswith("--dataset")]
        return dataclasses.replace(reading, words=typed.merged(flags, reading.words),
                                   bought=tuple(read_json(config).get("bought") or ()))
    named = cli.peek(reading.words, "--preset") is not None
    side = _side(method, args) if named else args.data.image_size or SIDE
    added = {} if args.data.channels else {"--channels": CHANNELS}
    added |= {} if args.data.image_size else {"--image-size": side}
    if added:
        values = " ".join(f"{flag} {value}" for flag, value in added.items())
        reading = _more(reading, [f"{flag}={value}" for flag, value in added.items()],
                        f"taken, as nothing else is declared: {values}")
    if not args.data.class_names:
        return _with_names(reading, method, args, side, refuse)
    from dpgen_jax.run import early

    answer = early.stored(files.root) if files is not None else None
    return dataclasses.replace(reading, bought=answer.bought if answer else ())


def _side(method: str, args: Train[Any]) -> int:
    """The size that the user states, or that of the preset that the user names."""
    spec = presets.get(method, args.preset)[1].spec
    return args.data.image_size or (spec.height if isinstance(spec, ImageSpec) else SIDE)


def _with_names(reading: Reading, method: str, args: Train[Any], side: int, refuse: Refuse
                ) -> Reading:
    """Buys the names of the classes, after all checks that need none of them."""
    from dpgen_jax.data import folders
    from dpgen_jax.run import class_purchase, early

    path, words = reading.place.partition(":")[2], reading.words
    root = args.out or default_root(method, safe_name(locate(path).resolve().name))
    if args.out and not (args.resume and RunFolder(root).waiting):
        refuse_used(root)
    n = len(folders.categories(path))  # their number is public
    spec = ImageSpec(side, side, args.data.channels or CHANNELS, 2)
    budget = budget_for(reading, method, args, spec, n)
    epsilon, delta = budget.epsilon, budget.delta
    calibrate.check_budget(epsilon, delta, n)
    class_purchase.refuse_useless(n, epsilon, delta)
    supposed = Supposed(
        "images", "with two classes", spec, trained_on(args, n, folders.has_tests(path)), budget,
        class_purchase.cost(epsilon, delta),
        (*reading.remarks, class_purchase.price_line(epsilon, delta)))
    if args.dry_run:
        return dataclasses.replace(reading, supposed=supposed)
    if not args.resume or early.stored(root) is None:
        refuse(supposed)
    flags = (f"--epsilon={epsilon}", f"--delta={delta}", f"--out={root}")

    def draw(spent: Events) -> early.Answer:
        names = class_purchase.buy(path, epsilon, delta)
        declared, files = names.declared(RunFolder(root).class_names)
        rows = tuple({"records": n, **row} for row in events.to_json(spent))
        return early.Answer((*declared, *flags), names.line, rows, files)

    relation = str(getattr(args.config, "relation", Relation.REPLACE_ONE))
    answer = early.answered(early.Purchase(
        root, method, f"folder:{locate(path).resolve()}", relation,
        budget, class_purchase.cost(epsilon, delta), Private(folders.content(path)),
        args.total_epsilon, typed.kept(method, typed.merged(words, flags[:2]))), args.resume, draw)
    if cli.peek(answer.flags, "--class-names") is None:
        raise UserError(f"{answer.line}. It is charged, and is not bought again: name the classes, "
                        f"and go on by {go_on(root, '--class-names', 'A,B')}")
    return dataclasses.replace(_more(reading, list(answer.flags), answer.line),
                               bought=answer.bought)


def _more(reading: Reading, flags: list[str], remark: str) -> Reading:
    return dataclasses.replace(reading, words=typed.merged(reading.words, flags),
                               remarks=(*reading.remarks, remark))


def held_out_part(dataset: Dataset, args: Train[Any]) -> Dataset:
    """Holds out a share before anything is spent, as stated or where the data bring no such part.

    A resumed run holds out what it did at its start. Records of mapped files stay there.

    Args:
        dataset: The data set, with nothing held out yet.
        args: The flags of `train`, parsed.
    """
    from dpgen_jax.data import held_out, parts

    share = args.data.test_fraction
    if share is None:
        share = held_out.SHARE
        files = RunFolder(args.out) if args.resume and args.out else None
        if files and args.out and files.config.is_file() and not files.waiting:
            share = typed.data_options(args.out).get("test_fraction", 0)
        if (dataset.x_test is not None or dataset.clients is not None or not share
                or dataset.count < held_out.FEWEST):
            return dataset
    options = dataset.options | {"test_fraction": share}
    return dataclasses.replace(held_out.hold_out(dataset, share, parts.where_they_lie)
                               if share else dataset, options=options)
