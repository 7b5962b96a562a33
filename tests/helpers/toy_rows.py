"""Rows of `benchmarks.papers` at toy size, on generated data in the official layouts."""

import dataclasses
import gzip
import math
import struct

import numpy as np
import official_photographs

from benchmarks.papers.rows import Training
from dpgen_jax import data, presets
from dpgen_jax.core.config import Runtime
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import ConvNet, MlpNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.run import lifecycle

NETS = {GeneratorNet: {"latent": 2, "hidden": 4, "channels": 4}, CriticNet: {"width": 2},
        DiscriminatorNet: {"channels1": 2, "channels2": 4, "hidden": 4}, MlpNet: {"hidden": (4,)},
        ResNetNet: {"latent": 2, "width": 4}, ConvNet: {"channels1": 2, "channels2": 2}}
FIELDS = {"teachers": 4, "critics": 4, "critics_per_step": 2, "clients": 4, "clients_per_round": 2,
          "batch": 3, "top_k": 4, "steps": 2, "d_steps": 1, "d_steps_first": 1, "critic_steps": 1,
          "critic_steps_first": 1, "records_per_step": 2, "pool": 1, "warm_steps": 1, "t_c": 1,
          "fake_steps": 1, "real_steps": 1, "fake_batch": 4, "fakes": 20, "g_batch": 3,
          "features": 8, "generator_steps": 2, "embedding_steps": 1, "code": 2, "projection": 2,
          "bins": 3, "s_steps": 1, "s_hidden": 4, "client_records": 4, "client_batch": 2,
          "client_steps": 1}

FEDERATED = ("gswgan:table2:femnist", "gswgan:table2:femnist-fedavg")
CREDIT = ("gpate:table1a:credit-gpate", "gpate:table7:credit-gpate", "gpate:table1a:credit-dcgan",
          "gpate:table1a:credit-pategan", "gpate:table1a:sample")
"""Rows that test_papers_command_steps.py runs as their commands do."""


def small(config, features=None):
    """The configuration with small networks and few of everything; top-k of all features stays."""
    changed = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if type(value) in NETS:
            changed[field.name] = dataclasses.replace(value, **NETS[type(value)])
        elif field.name in FIELDS and (value or field.name == "steps"):
            changed[field.name] = FIELDS[field.name]
        elif field.name == "hidden":
            changed[field.name] = (4,) if isinstance(value, tuple) else 4
    if hasattr(config, "generator_steps"):  # of whose fakes there are two for each class
        changed["batch"] = 20
    if config.units_are_records and config.sigma != 0:  # whose noise is found for a few records
        changed["sigma"] = None
    if features and getattr(config, "top_k", None) == features:
        changed["top_k"] = features
    if getattr(config, "steps", None) == 1:  # a single release
        changed["steps"] = 1
    return dataclasses.replace(config, **changed)


def idx(root, train=24, test=8):
    """A folder in MNIST's layout, of noise; returns the data set's name."""
    rng = np.random.default_rng(0)
    root.mkdir(parents=True)
    for part, n in (("train", train), ("t10k", test)):
        pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            with gzip.open(root / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(head + array.tobytes())
    return f"idx:{root}"


def official(root):
    """All image data sets of the papers, by the names that rows have for them."""
    faces = official_photographs.celeba(root / "celeba")
    return {"mnist": idx(root / "mnist"), "fashion": idx(root / "fashion_mnist"),
            **dict.fromkeys(("gender-l", "gender-s", "hair"), faces),
            "places": official_photographs.places(root / "places365")}


def features(root, shape, train=24, test=8):
    """A file as `dpgen_jax.features` writes it, of noise; returns the data set's name."""
    rng = np.random.default_rng(0)
    root.mkdir(parents=True)
    arrays = {}
    for part, n in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = rng.random((n, *shape), np.float32)
        arrays[f"y_{part}"] = np.arange(n) % 10
    np.savez(root / "features.npz", **arrays, classes=10)
    return f"npz:{root / 'features.npz'}"


def loaded(work: Training, specs):
    """The generated data of a training, read as its preset says."""
    return read(presets.get(work.method, work.preset)[1], specs[work.data])


def read(preset, spec):
    """A generated data set, read as a preset says."""
    options = dict(preset.options)
    if preset.kind:
        options["image_size"] = preset.spec.height
    if "per_class" in options:
        options["per_class"] = 4
    return data.load(spec, **options)


def trained(work: Training, dataset, out):
    """A release of two steps."""
    return two_steps(work.method, work.preset, *work.request(), dataset, out)


def two_steps(method, preset, config, budget, dataset, out):
    """A release of two steps of a configuration at toy size."""
    config = small(config, math.prod(dataset.spec.shape))
    return lifecycle.run(lifecycle.Resolved(
        method, preset, config, budget, Runtime(devices=1), out, accept_uncovered=True), dataset,
        lambda line: None)
