"""One row for each method: for what data it is, whom it protects, how long it takes, its paper.

It imports no method, so that help is shown at once. Tests compare it with the methods, their
presets and the results files.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class About:
    """The facts by which a person chooses a method.

    Attributes:
        data: The kinds of data for which it has presets.
        what: What answers, and with what.
        paper: The work to cite.
        seconds: Of a training on glyphs on two CPU cores, by benchmarks/results/embedded-*.json;
            None: not measured.
        unit: Whom its guarantee is for.
    """

    data: str
    what: str
    paper: str
    seconds: int | None = None
    unit: str = "record"


ABOUT = {
    "marginals": About(
        "tables", "every record: its cells in small tables, as noisy counts",
        'McKenna, Miklau and Sheldon, "Winning the NIST Contest: A Scalable and General '
        'Approach to Differentially Private Synthetic Data", 2021'),
    "mixture": About(
        "images", "every record: its image in its class, then in a cell of the class; with "
        "a classifier its gradient too",
        'this library; its noisy moments are those of Dwork, Talwar, Thakurta and Zhang, '
        '"Analyze Gauss: Optimal Bounds for Privacy-Preserving Principal Component Analysis", '
        'STOC 2014'),
    "dpmerf": About(
        "images, tables", "every record once: random features of itself",
        'Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with '
        'Random Features for Practical Privacy-Preserving Data Generation", AISTATS 2021', 24),
    "prototypes": About(
        "images", "teachers without networks: where a few images of a class should move",
        'this library; its answers are those of G-PATE, DataLens and PATE-GAN: cite the one that '
        'you use', 28),
    "dpgan": About(
        "images", "sampled records: gradients of a discriminator (DP-SGD)",
        'Xie, Lin, Wang, Wang and Zhou, "Differentially Private Generative Adversarial '
        'Network", arXiv 1802.06739, 2018', 76),
    "datalens": About(
        "images", "teachers: top-k signs of gradients",
        'Wang, Wu, Long, Rimanic, Zhang and Li, "DataLens: Scalable Privacy Preserving '
        'Training via Gradient Compression and Aggregation", CCS 2021', 88),
    "gpate": About(
        "images, tables", "teachers: projected gradients, as votes or sums",
        'Long, Wang, Yang, Kailkhura, Zhang, Gunter and Li, "G-PATE: Scalable Differentially '
        'Private Data Generator via Private Aggregation of Teacher Discriminators", NeurIPS '
        '2021', 71),
    "gswgan": About(
        "images", "critics: clipped gradients at fakes; federated for clients",
        'Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning '
        'Differentially Private Generators", NeurIPS 2020', 96),
    "dpac": About(
        "images", "the same with a classifier",
        'Chen, Liu, Ma, Nepal and Xu, "Private Image Generation with Dual-Purpose Auxiliary '
        'Classifier", CVPR 2023', 129),
    "pategan": About(
        "images, tables", "teachers: real or fake",
        'Jordon, Yoon and van der Schaar, "PATE-GAN: Generating Synthetic Data with '
        'Differential Privacy Guarantees", ICLR 2019', 73),
    "dpcgan": About(
        "images", "sampled records: gradients, labels in the input",
        'Torkzadehmahani, Kairouz and Paten, "DP-CGAN: Differentially Private Synthetic Data '
        'and Label Generation", CVPR workshops 2019', 76),
    "dpmerf_ae": About(
        "images", "random features of codes of an autoencoder",
        'Harder, Adamczewski and Park, arXiv 2002.11603v1, 2020', 24),
    "projected_dpgan": About(
        "images", "records: projected gradients, as histograms",
        'Long, Wang, Yang, Kailkhura, Zhang, Gunter and Li, "G-PATE: Scalable Differentially '
        'Private Data Generator via Private Aggregation of Teacher Discriminators", NeurIPS '
        '2021, section 6.2', 144),
    "fedavg_gan": About(
        "images", "clients: the change of their discriminator",
        'Augenstein, McMahan, Ramage, Ramaswamy, Kairouz, Chen, Mathews and Agüera y Arcas, '
        '"Generative Models for Effective ML on Private, Decentralized Datasets", ICLR 2020', 55,
        "client"),
    "dpsinkhorn": About(
        "tables", "teachers: optimal transport; an example, not tuned",
        "Cao, Bie, Vahdat, Fidler and Kreis, \"Don't Generate Me: Training Differentially Private "
        'Generative Models with Sinkhorn Divergence", NeurIPS 2021'),
    "topagg_sgd": About(
        "images", "trains a classifier instead of a generator",
        'Wang, Wu, Long, Rimanic, Zhang and Li, "DataLens: Scalable Privacy Preserving '
        'Training via Gradient Compression and Aggregation", CCS 2021, Algorithm 4', 13),
    "dcgan": About(
        "images, tables", "no privacy: the upper bound",
        'Radford, Metz and Chintala, "Unsupervised Representation Learning with Deep '
        'Convolutional Generative Adversarial Networks", ICLR 2016', 38, "nobody"),
}
"""The row of each method, in the order in which they are listed: those to be tried first at the
top."""


def described() -> dict[str, str]:
    """Returns for each method one line: for what data, for whom, and what answers."""
    return {name: f"{about.data}; protects {about.unit if about.unit == 'nobody' else 'each'}"
                  f"{'' if about.unit == 'nobody' else ' ' + about.unit}; {about.what}"
            for name, about in ABOUT.items()}


def lines() -> list[str]:
    """Returns a line for each method, those that are to be tried first at the top."""
    rows = []
    for name, about in ABOUT.items():
        time = "" if about.seconds is None else f"{about.seconds} s"
        rows.append(f"  {name:16}{about.data:15} {about.unit:7} {time:>6}  {about.what}")
    head = f"  {'method':16}{'data':15} {'unit':7} {'time':>6}  what answers, and with what"
    note = "  (time: one training on glyphs, 30,000 images of 12 x 12, on two CPU cores)"
    return [head, *rows, note]
