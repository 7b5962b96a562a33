"""Seeded runs of every method in their smallest form, on images and on tables: the cases of
`test_digests`."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import numpy as np
import people_table
import pytest
import small_datalens

from dpgen_jax import methods
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.methods import dpgan
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import ConvNet, MlpNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.run import lifecycle

SEED, N = 5, 24
RUNTIME = Runtime(devices=1, chunk=2, steps_per_call=1)
NETS = {"generator": GeneratorNet(4, 8, 4), "discriminator": DiscriminatorNet(4, 4, 8)}
TEACHERS = {"teachers": 4, "batch": 3, "steps": 2, "d_steps": 1, "d_steps_first": 2, **NETS}
CRITICS = {
    "critics": 4, "batch": 3, "steps": 2, "critic_steps": 1, "critic_steps_first": 2,
    "client_records": 4, "records_per_step": 3, "pool": 2, "warm_steps": 0, "penalty": 0.0,
    "generator": ResNetNet(2, 2), "critic": CriticNet(2), "warm_generator": ResNetNet(2, 2)}
CLASSIFIER = {"t_c": 1, "fake_steps": 1, "real_steps": 1, "fake_batch": 4, "c_penalty": 0.0,
              "classifier": CriticNet(2)}
PROTOTYPES = {"teachers": 4, "steps": 3, "final_rate": 0.5, "images": 2, "images_per_teacher": 4,
              "pooled_steps": 1, "warp": 0.3}
STUDENT = TEACHERS | {"memory": 2, "s_steps": 2, "g_steps": 2, "s_hidden": 4}
RECORDS_SAMPLED = {"batch": 6, "steps": 2, "fakes": 6, "g_batch": 6}
MERF = {"features": 12, "batch": 6, "generator_steps": 3, "generator": GeneratorNet(4, 8, 4)}
CODES = {"batch": 6, "steps": 3, "embedding_steps": 1, "hidden": 6, "code": 3, "features": 8,
         "fakes": 6, "generator_steps": 3, "generator": GeneratorNet(4, 8)}
CLIENTS = {"clients": 4, "client_records": 4, "client_steps": 2, "client_batch": 3, "pool": 2,
           "penalty": 0.0, "steps": 2, "g_steps": 2, "g_batch": 4,
           "generator": GeneratorNet(4, 8, 4), "discriminator": ConvNet(2, 3), "hidden": (4,)}
MARGINALS = {"cells": 40, "bins": 4, "groups": 3, "steps": 4}
PROJECTED = {"batch": 6, "projection": 8, "steps": 2, "hidden": 5,
             "generator": GeneratorNet(4, 8, 4)}
CLASSES, LOCAL = Budget(10.0, 1e-3, 1.0), Budget(40.0, 1e-3)
NO_BOUND = Budget(float("inf"), 1e-3)


@dataclasses.dataclass(frozen=True)
class Case:
    """A run of `method` on `data`, with these fields of its configuration."""

    method: str
    data: str
    fields: dict
    budget: Budget = Budget(10.0, 1e-3)


SINKHORN = {"teachers": 4, "batch": 3, "steps": 2, "generator": GeneratorNet(4, 8, 4)}
# Those that compile soonest, with both kinds of records.
CASES = {
    "datalens images": Case("datalens", "images", TEACHERS | {
        "top_k": 10, "g_final_rate": 0.5, "ema": 0.5, "abstain": True}),
    "gpate table": Case("gpate", "table", TEACHERS | {
        "aggregate": "sum", "projection": 0}, CLASSES),
    "topagg_sgd images": Case("topagg_sgd", "larger", {
        "batch": 6, "steps": 3, "channels": (2, 3)}),
    "topagg_sgd table": Case("topagg_sgd", "table", {
        "batch": 6, "steps": 3, "hidden": (4,), "momentum": 0.5, "keep": "dimension"}),
}
# Teachers without a network, as default presets of images have them, and every other method, each
# on one kind of records.
SLOW = {
    "prototypes images signs": Case("prototypes", "images", PROTOTYPES | {
        "answer": "signs", "top_k": 10, "step_size": 0.2, "clip": 1e-5}),
    "prototypes images": Case("prototypes", "images", PROTOTYPES),
    "dpmerf images": Case("dpmerf", "images", MERF | {"windows": (0, 2)}),
    "mixture images": Case("mixture", "images", {
        "cells": 2, "frequencies": 4, "dimensions": 5, "relation": "zero-out"}),
    "dpsinkhorn images": Case("dpsinkhorn", "images", SINKHORN),
    "dpgan table": Case("dpgan", "table", RECORDS_SAMPLED | {
        "loss": "wasserstein", "weight_clip": 0.1, "hidden": (4,),
        "generator": GeneratorNet(4, 8, 4)}),
    "gpate images": Case("gpate", "images", TEACHERS | {
        "projection": 6, "bins": 3, "threshold": 0.25, "sigma": 0.5}, NO_BOUND),
    "gswgan images": Case("gswgan", "images", CRITICS | {
        "critics_per_step": 2, "steps": 3}),
    "dpac images": Case("dpac", "images", CRITICS | CLASSIFIER | {"critics_per_step": 2}),
    "pategan table": Case("pategan", "table", STUDENT, CLASSES),
    "prototypes images votes": Case("prototypes", "images", PROTOTYPES | {
        "answer": "votes", "frequencies": 3, "step_size": 0.2}),
    "dpcgan table": Case("dpcgan", "table", RECORDS_SAMPLED | {
        "generator": MlpNet(4, (8,)), "hidden": (4,)}, CLASSES),
    "dpmerf_ae images": Case("dpmerf_ae", "images", CODES),
    "fedavg_gan table": Case("fedavg_gan", "table", CLIENTS | {
        "federated": True, "clients_per_round": 2}, LOCAL),
    "dcgan table": Case("dcgan", "table", {"batch": 3, "steps": 2, **NETS}, NO_BOUND),
    "marginals table": Case("marginals", "table", MARGINALS, Budget(1000.0, 1e-3)),
    "projected_dpgan table": Case("projected_dpgan", "table", PROJECTED | {"ema": 0.5}),
    "prototypes images frequencies": Case("prototypes", "images", PROTOTYPES | {
        "answer": "signs", "top_k": 6, "step_size": 0.2, "frequencies": 3, "clip": 1e-5}),
}
# The other kind of records, and other settings: to compare before and after code is moved.
LONG = {
    "datalens table": Case("datalens", "table", TEACHERS | {"top_k": 3, "decode": "mean"}),
    "pategan images": Case("pategan", "images", STUDENT | {
        "noise": "laplace", "decode": "majority", "vote": "real"}),
    "dpgan images": Case("dpgan", "images", RECORDS_SAMPLED | {
        "diversity": 0.5, "generator": GeneratorNet(4, 8, 4), "discriminator": ConvNet(2, 3)}),
    "dpcgan images": Case("dpcgan", "images", RECORDS_SAMPLED | {
        "generator": MlpNet(4, (8,)), "hidden": (4,), "d_steps": 2}),
    "dpmerf table": Case("dpmerf", "table", MERF),
    "datalens images d2p": Case("datalens", "images", TEACHERS | {"aggregate": "d2p"}),
    "datalens table fetchsgd": Case("datalens", "table", TEACHERS | {
        "aggregate": "fetchsgd", "top_k": 3, "sketch_columns": 16}),
    "dpmerf_ae table": Case("dpmerf_ae", "table", CODES),
    "fedavg_gan images": Case("fedavg_gan", "clients", CLIENTS | {"clients_per_round": 2}, LOCAL),
    "dcgan images": Case("dcgan", "images", {"batch": 3, "steps": 2, **NETS}, NO_BOUND),
    "projected_dpgan images": Case("projected_dpgan", "images", PROJECTED),
    "dpsinkhorn table": Case("dpsinkhorn", "table", SINKHORN),
    "dpgan images linear": Case("dpgan", "images", RECORDS_SAMPLED | {
        "networks": "linear", "linear": dpgan.Linear(4, (8,), (4,)), "weight_clip": 0.1}),
    "gswgan images secret draw": Case("gswgan", "images", CRITICS | {
        "critics_per_step": 2, "schedule": "secret-draw"}),
    "gswgan images federated": Case("gswgan", "clients", CRITICS | {"federated": True}, LOCAL),
    "dcgan images gs-wgan": Case("dcgan", "images", {
        "networks": "gs-wgan", "batch": 3, "steps": 2, "penalty": 0.0, "resnet": ResNetNet(2, 2),
        "critic": CriticNet(2)}, NO_BOUND),
    "gpate images topk": Case("gpate", "images", TEACHERS | {
        "aggregate": "topk", "projection": 6, "layers": "paper"}),
    "gpate table confident": Case("gpate", "table", TEACHERS | {"projection": 4, "bins": 3}),
    "gpate table mean": Case("gpate", "table", TEACHERS | {
        "aggregate": "mean", "projection": 4, "bins": 3}),
    "gswgan images warm": Case("gswgan", "images", CRITICS | {"penalty": 10.0, "warm_steps": 2}),
    "gswgan images published": Case("gswgan", "images", CRITICS | {
        "critics_per_step": 1, "accounting": "as-published", "sigma": 1.07}, NO_BOUND),
    "dpac images parallel": Case("dpac", "images", CRITICS | CLASSIFIER | {
        "order": "parallel", "renewed": False}),
    "pategan images rank": Case("pategan", "images", STUDENT),
}
ALL = CASES | SLOW | LONG
ANSWERED = "gpate images"
"""The run that is charged by its answers, which follow from the last bits of its votes."""
# The runs of which folders are kept in `old`, by later versions too.
OLD_IMAGES = Case("datalens", "images", TEACHERS | {"top_k": 10, "decode": "mean", "steps": 4})
OLD_TABLE = CASES["gpate table"]


def dataset(name: str) -> Dataset:
    """The records of a case, which are the same everywhere."""
    if name == "table":
        return Dataset(
            "people", people_table.THREE, *people_table.table(N, spec=people_table.THREE)
        )
    x, y = small_datalens.images(N)
    if name == "larger":  # the smallest that the convolutions of a classifier take
        x = np.pad(x, ((0, 0), (1, 1), (2, 2), (0, 0)))
    images = from_arrays(x, y, small_datalens.SPEC.classes)
    who = np.resize(np.arange(4), N).astype(np.int32)
    return dataclasses.replace(images, clients=who) if name == "clients" else images


def train(case: Case, root: Path, data: Dataset | None = None, resume: bool = False,
          **fields) -> lifecycle.Release:
    """A seeded run of a case in the folder `root`."""
    config = methods.get(case.method).Config(**case.fields | fields)
    request = lifecycle.Resolved(case.method, "tiny", config, case.budget, RUNTIME, root, resume,
                                SEED)
    return lifecycle.run(request, data or dataset(case.data), log=lambda line: None)


def interrupted(root: Path) -> None:
    """A run of four steps that is interrupted in the second, and leaves a release."""
    sizes, draw = [], SeededBits.draw

    def interrupt(self, shape):
        sizes.append(shape)
        if len(sizes) == 2:
            signal.raise_signal(signal.SIGINT)
        return draw(self, shape)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SeededBits, "draw", interrupt)
        train(OLD_IMAGES, root)
