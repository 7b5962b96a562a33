"""A tiny data set that tensorflow-datasets can prepare without TensorFlow.

The builder class lives in a package module of its own because tfds looks for its metadata files
beside it. Both classes stay unregistered, so that a loader in the same process has only the files.
"""

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image


class TinyTfds(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Images 8 x 8 filled with 20 i and labels i % 3; 12 train and 6 test records.

    Tests set the shape and the label that are described, and what training record 4 has instead.
    """

    VERSION = tfds.core.Version("1.0.0")
    SHAPE, LABEL = (8, 8, 1), tfds.features.ClassLabel(num_classes=3)
    CHANGED = {}

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
            "image": tfds.features.Image(shape=self.SHAPE), "label": self.LABEL}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(12), "test": self._generate_examples(6)}

    def _generate_examples(self, count):
        for i in range(count):
            changed = self.CHANGED if (i, count) == (4, 12) else {}
            yield i, {"image": Image.fromarray(np.full((8, 8), 20 * i, np.uint8)),
                      "label": i % 3} | changed


class TinyTable(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A table as tfds has them: parts in parts, classes with names, numbers, and a free text."""

    VERSION = tfds.core.Version("1.0.0")
    CHANGED = {}

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
            "features": tfds.features.FeaturesDict({
                "carat": np.float32, "clear": np.bool_, "name": np.object_, "rooms": np.int64,
                "cut": tfds.features.ClassLabel(names=["Fair", "Good", "Ideal"]),
                "size": tfds.features.Tensor(shape=(2,), dtype=np.float32)}),
            "price": np.float32}), supervised_keys=("features", "price"))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 20), "test": self._generate_examples(20, 30)}

    def _generate_examples(self, first, last):
        for i in range(first, last):
            yield i, {"features": {
                "carat": float("nan") if i == 3 else i / 4, "clear": i % 2 == 0, "cut": i % 3,
                "name": f"stone {i}", "rooms": i, "size": np.array([i, -i], np.float32)} | (
                    self.CHANGED if i == 4 else {}),
                "price": 100.0 * i}


class TinyTexts(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """No images: what a user gets who names a data set of another kind."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
            "words": tfds.features.Tensor(shape=(4,), dtype=np.int64)}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"words": np.arange(4)}
