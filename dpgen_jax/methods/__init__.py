"""The registry of methods, one file for each.

A method's file has `Config`, `mechanism(config, spec)` and `build(config, spec, runtime)`, and,
where its paper has another accounting, `published(config, delta)`. A new method adds its file, a
file of presets, a file of tests, and its name and paper below.
"""

import importlib
import sys
from types import ModuleType

from dpgen_jax.accountant.published_formula import Published
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.methods.shared.config import MethodConfig

NAMES = ("datalens", "gpate", "gswgan", "dpac", "pategan", "dpgan", "dpcgan", "dpmerf", "dpmerf_ae",
         "fedavg_gan", "dcgan", "topagg_sgd", "projected_dpgan", "dpsinkhorn",
         "marginals", "mixture")

PAPERS = {
    "datalens": 'Wang, Wu, Long, Rimanic, Zhang and Li, "DataLens: Scalable Privacy Preserving '
                'Training via Gradient Compression and Aggregation", CCS 2021',
    "gpate": 'Long, Wang, Yang, Kailkhura, Zhang, Gunter and Li, "G-PATE: Scalable Differentially '
             'Private Data Generator via Private Aggregation of Teacher Discriminators", NeurIPS '
             '2021',
    "gswgan": 'Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning '
              'Differentially Private Generators", NeurIPS 2020',
    "dpac": 'Chen, Liu, Ma, Nepal and Xu, "Private Image Generation with Dual-Purpose Auxiliary '
            'Classifier", CVPR 2023',
    "pategan": 'Jordon, Yoon and van der Schaar, "PATE-GAN: Generating Synthetic Data with '
               'Differential Privacy Guarantees", ICLR 2019',
    "dpgan": 'Xie, Lin, Wang, Wang and Zhou, "Differentially Private Generative Adversarial '
             'Network", arXiv 1802.06739, 2018',
    "dpcgan": 'Torkzadehmahani, Kairouz and Paten, "DP-CGAN: Differentially Private Synthetic Data '
              'and Label Generation", CVPR workshops 2019',
    "dpmerf": 'Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with '
              'Random Features for Practical Privacy-Preserving Data Generation", AISTATS 2021',
    "dpmerf_ae": "Harder, Adamczewski and Park, arXiv 2002.11603v1, 2020",
    "fedavg_gan": 'Augenstein, McMahan, Ramage, Ramaswamy, Kairouz, Chen, Mathews and Agüera y '
                  'Arcas, "Generative Models for Effective ML on Private, Decentralized Datasets", '
                  'ICLR 2020',
    "dcgan": 'Radford, Metz and Chintala, "Unsupervised Representation Learning with Deep '
             'Convolutional Generative Adversarial Networks", ICLR 2016',
    "topagg_sgd": 'Wang, Wu, Long, Rimanic, Zhang and Li, "DataLens: Scalable Privacy Preserving '
                  'Training via Gradient Compression and Aggregation", CCS 2021, Algorithm 4',
    "projected_dpgan": 'Long, Wang, Yang, Kailkhura, Zhang, Gunter and Li, "G-PATE: Scalable '
                       'Differentially Private Data Generator via Private Aggregation of Teacher '
                       'Discriminators", NeurIPS 2021, section 6.2',
    "dpsinkhorn": "Cao, Bie, Vahdat, Fidler and Kreis, \"Don't Generate Me: Training "
                  'Differentially Private Generative Models with Sinkhorn Divergence", NeurIPS '
                  '2021',
    "marginals": 'McKenna, Miklau and Sheldon, "Winning the NIST Contest: A Scalable and General '
                 'Approach to Differentially Private Synthetic Data", 2021',
    "mixture": 'this library; its noisy moments are those of Dwork, Talwar, Thakurta and Zhang, '
               '"Analyze Gauss: Optimal Bounds for Privacy-Preserving Principal Component '
               'Analysis", STOC 2014',
}
"""The work to cite for each method."""


def get(name: str) -> ModuleType:
    """Returns the module of a method.

    Raises:
        UserError: for an unknown name, with the nearest known one.
    """
    if name not in NAMES:
        raise UserError(f"unknown method {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")
    return importlib.import_module(f"dpgen_jax.methods.{name}")


def published(name: str, config: MethodConfig, delta: float) -> Published | None:
    """Returns the accounting of a method's paper for a complete configuration.

    It is None for a method or a configuration that no paper has accounted.
    """
    formula = getattr(get(name), "published", None)
    return None if formula is None else formula(config, delta)


class _Listing(ModuleType):
    """This package, which can also be called, as `dpgen_jax.methods()`."""

    def __call__(self) -> dict[str, str]:
        """Returns for each method one line: for what data, for whom, and what answers."""
        from dpgen_jax.methods import about

        return about.described()


sys.modules[__name__].__class__ = _Listing
