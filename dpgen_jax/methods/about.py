"""One line for each method: for what data it is, whom it protects, how long it takes.

It imports no method, so that help is shown at once. Tests compare it with the methods, their
presets and the results files.
"""

from __future__ import annotations

import dataclasses

from dpgen_jax import methods


@dataclasses.dataclass(frozen=True)
class About:
    """The facts by which a person chooses a method.

    Attributes:
        data: The kinds of data for which it has presets.
        what: What answers, and with what.
        seconds: Of a training on glyphs on two CPU cores, by benchmarks/results/embedded-*.json;
            None: not measured.
        unit: Whom its guarantee is for.
    """

    data: str
    what: str
    seconds: int | None = None
    unit: str = "record"


ABOUT = {
    "marginals": About("tables", "every record: its cells in small tables, as noisy counts"),
    "mixture": About("images", "every record: its image in its class, then in a cell of the class"),
    "dpmerf": About("images, tables", "every record once: random features of itself", 24),
    "dpgan": About("images", "sampled records: gradients of a discriminator (DP-SGD)", 76),
    "datalens": About("images", "teachers: top-k signs of gradients", 88),
    "gpate": About("images, tables", "teachers: projected gradients, as votes or sums", 71),
    "gswgan": About("images", "critics: clipped gradients at fakes; --federated for clients", 96),
    "dpac": About("images", "the same with a classifier", 129),
    "pategan": About("images, tables", "teachers: real or fake", 73),
    "dpcgan": About("images", "sampled records: gradients, labels in the input", 76),
    "dpmerf_ae": About("images", "random features of codes of an autoencoder", 24),
    "projected_dpgan": About("images", "records: projected gradients, as histograms", 144),
    "fedavg_gan": About("images", "clients: the change of their discriminator", 55, "client"),
    "dpsinkhorn": About("tables", "teachers: optimal transport; an example, not tuned"),
    "topagg_sgd": About("images", "trains a classifier instead of a generator", 13),
    "dcgan": About("images, tables", "no privacy: the upper bound", 38, "nobody"),
}


def described() -> dict[str, str]:
    """Returns for each method one line: for what data, for whom, and what answers."""
    return {name: f"{about.data}; protects {about.unit if about.unit == 'nobody' else 'each'}"
                  f"{'' if about.unit == 'nobody' else ' ' + about.unit}; {about.what}"
            for name, about in ABOUT.items()}


def lines() -> list[str]:
    """Returns a line for each method, those that are to be tried first at the top."""
    order = [*ABOUT, *(name for name in methods.NAMES if name not in ABOUT)]
    rows = []
    for name in order:
        if about := ABOUT.get(name):
            time = "" if about.seconds is None else f"{about.seconds} s"
            rows.append(f"  {name:16}{about.data:15} {about.unit:7} {time:>6}  {about.what}")
        else:
            rows.append(f"  {name}")
    head = f"  {'method':16}{'data':15} {'unit':7} {'time':>6}  what answers, and with what"
    note = "  (time: one training on glyphs, 30,000 images of 12 x 12, on two CPU cores)"
    return [head, *rows, note]
