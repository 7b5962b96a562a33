"""The data sets that rows need: how they are loaded, and which file lies where."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import locate


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set of a paper.

    Attributes:
      title: Its name for readers.
      spec: The text that `data.load` and `--dataset` take. How photographs are read, and in what
        size, is the preset's.
      files: What must exist, under the current folder or DPGEN_DATA: a file, plain or .gz, or a
        folder; with " or " between places of which one will do.
      origin: Where they come from.
    """

    title: str
    spec: str
    files: tuple[str, ...] = ()
    origin: str = ""

    def absent(self) -> str | None:
        """Return one line on the first file that is missing, and where to put it; or None."""
        for name in self.files:
            if not any(_exists(place + suffix) for place in name.split(" or ")
                       for suffix in ("", ".gz")):
                root = os.environ.get("DPGEN_DATA")
                where = (f"{Path(root).absolute()}, or set DPGEN_DATA to the folder that has them"
                         if root else "a folder, and set DPGEN_DATA to it")
                return (f"{self.title} is not there: put {' and '.join(self.files)} "
                        f"({self.origin}) into {where}")
        return None


def _exists(path: str) -> bool:
    try:
        return locate(path).exists()
    except UserError:
        return False


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte")
_FACES = tuple(f"celeba/{name} or celeba/{folder}/{name}" for folder, name in (
    ("Img", "img_align_celeba"), ("Anno", "list_attr_celeba.txt"),
    ("Eval", "list_eval_partition.txt")))
_CELEBA = "the aligned images of mmlab.ie.cuhk.edu.hk/projects/CelebA.html, and their two lists"

SOURCES = {
    "mnist": Source("MNIST", "idx:mnist", tuple(f"mnist/{name}" for name in _IDX),
                    "yann.lecun.com/exdb/mnist"),
    "fashion": Source("Fashion-MNIST", "idx:fashion_mnist",
                      tuple(f"fashion_mnist/{name}" for name in _IDX),
                      "github.com/zalandoresearch/fashion-mnist"),
    "gender-l": Source("CelebA, gender, 64 x 64", "celeba:celeba", _FACES, _CELEBA),
    "gender-s": Source("CelebA, gender, 32 x 32", "celeba:celeba", _FACES, _CELEBA),
    "hair": Source("CelebA, hair, 64 x 64", "celeba:celeba", _FACES, _CELEBA),
    "places": Source("Places365, three classes, 64 x 64", "places365:places365",
                     ("places365/categories_places365.txt or places365/train",),
                     "the small images, lists and scene hierarchy of places2.csail.mit.edu"),
    "femnist": Source("Federated EMNIST", "femnist:fed_emnist_train.h5",
                      ("fed_emnist_train.h5", "fed_emnist_test.h5"),
                      "fed_emnist.tar.bz2 of TensorFlow Federated"),
    "credit": Source("Kaggle credit card fraud", "csv:creditcard.csv", ("creditcard.csv",),
                     "kaggle.com/datasets/mlg-ulb/creditcardfraud"),
    "cifar10": Source("CIFAR-10", "cifar10:cifar-10-batches-bin",
                      tuple(f"cifar-10-batches-bin/{name}.bin" for name in (
                          *(f"data_batch_{i}" for i in range(1, 6)), "test_batch")),
                      "www.cs.toronto.edu/~kriz/cifar.html"),
    "features": Source("CIFAR-10's features of a public network", "npz:features.npz",
                       ("features.npz",), "made by python -m dpgen_jax.features --dataset "
                       "cifar10:cifar-10-batches-bin --weights resnet18.safetensors --out "
                       "features.npz"),
    "credit-sample": Source("a fifth of the credit card data",
                            "csv:creditcard_20pct/train.csv.gz",
                            ("creditcard_20pct/train.csv", "creditcard_20pct/test.csv"),
                            "a sample of kaggle.com/datasets/mlg-ulb/creditcardfraud"),
    "none": Source("no data", ""),
}
"""Data sets by the name that rows have for them."""
