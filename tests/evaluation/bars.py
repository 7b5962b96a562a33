"""Images whose class is easily told."""

import numpy as np


def bars(n, seed=0, classes=4, side=8, channels=1):
    """Noisy images whose class is the place of a bright bar: separable, but not by brightness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n).astype(np.int32)
    x = rng.integers(0, 80, (n, side, side, channels)).astype(np.uint8)
    x[np.arange(n), 2 * y] += 150
    return x, y


def noise(n, seed=0, classes=4, side=8):
    """Images that say nothing of their class."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, side, side, 1), np.uint8)
    return x, rng.integers(0, classes, n).astype(np.int32)
