"""Accuracies that papers print, to be drawn beside measured ones and always marked "claimed".

Gen2real accuracy of a CNN at delta 1e-5, by data set, system and epsilon. Source: DataLens (Wang et
al., 2021), tables 1 and 2, which also quotes the others; G-PATE (Long et al., 2021), tables 1c and
2, for its own rows; GS-WGAN (Chen et al., 2020), table 1, and DP-GAN-DPAC (2023), table 2, for
theirs at 10. The protocols differ (best epoch on the test images, one seed), and the epsilon of
GS-WGAN and DPAC is not what their code spends (`benchmarks.claimed`).
"""

from __future__ import annotations

EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 10.0)


def _row(*values: float) -> dict[float, float]:
    return dict(zip(EPSILONS, values, strict=True))


CLAIMED: dict[str, dict[str, dict[float, float]]] = {
    "mnist": {
        "datalens": _row(0.2344, 0.2919, 0.4201, 0.6485, 0.7123, 0.8066),
        "gpate": _row(0.2230, 0.2478, 0.4184, 0.5377, 0.5880, 0.8092),
        "pategan": _row(0.2176, 0.2399, 0.3484, 0.3571, 0.4168, 0.6667),
        "dpgan": _row(0.1104, 0.1524, 0.1022, 0.3732, 0.4046, 0.8011),
        "gswgan": _row(0.0972, 0.1029, 0.1044, 0.1170, 0.1432, 0.80),
        "dpac": {10.0: 0.88},
    },
    "fashion_mnist": {
        "datalens": _row(0.2226, 0.3863, 0.4314, 0.5534, 0.6478, 0.7061),
        "gpate": _row(0.1874, 0.3020, 0.4283, 0.5258, 0.5812, 0.6934),
        "pategan": _row(0.1605, 0.2977, 0.3698, 0.3659, 0.4222, 0.6218),
        "dpgan": _row(0.1021, 0.1302, 0.0998, 0.1210, 0.1053, 0.6098),
        "gswgan": _row(0.1000, 0.1001, 0.1144, 0.1242, 0.1661, 0.65),
        "dpac": {10.0: 0.73},
    },
}
