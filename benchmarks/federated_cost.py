"""Compute epsilon and bytes of federated GS-WGAN and Fed-Avg GAN as published, without data.

    python -m benchmarks.federated_cost [--clients 866] [--classes 36]

Source: GS-WGAN (arXiv 2006.08265), table 2 and appendix C.1: 866 clients of Federated EMNIST, one
of them in each of 30,000 steps of GS-WGAN at noise 1.07, ten in each of 1,000 rounds of Fed-Avg GAN
at noise .01, and at .1 and .5 as in Figure 5, delta one over the clients. The record,
results/federated_cost.json, has epsilon by the papers' formulas, as dp-accounting adds it up and
with the conversion of the papers' codes, and as it is proven here for a client's whole data (of
ideal noise: no run promises an epsilon of this size), and the bytes that a client receives and
sends in a step in which it takes part. Here a client is sent a pool of fakes of each class for its
own steps, where the papers send one batch of fakes (GS-WGAN) or the generator (Fed-Avg GAN).
"""

import dataclasses
from typing import Any

from benchmarks import common
from benchmarks.federated import bytes_of_a_step, cost
from dpgen_jax import presets
from dpgen_jax.cli import terminal
from dpgen_jax.core.types import ImageSpec

AVERAGE = {"clients_per_round": 10, "steps": 1000}
PUBLISHED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gswgan", "mnist-published", {"federated": True, "critics_per_step": 1, "sigma": 1.07,
                                   "steps": 30_000}),
    *(("fedavg_gan", "femnist-published", {**AVERAGE, "sigma": noise})
      for noise in (0.01, 0.1, 0.5)))
"""Methods, presets with the published networks, and the fields of the federated experiment; the
noise of Table 2, and for Fed-Avg GAN that of Figure 5 too."""


def row(method: str, preset: str, fields: dict[str, Any], clients: int, spec: ImageSpec
        ) -> dict[str, Any]:
    config = dataclasses.replace(presets.get(method, preset)[1].config, **fields)
    config = config.with_clients(clients)
    return {"method": method, "clients": clients, "steps": config.steps, "noise": config.sigma,
            "cost": cost(method, config, spec, 1 / clients),
            "bytes_of_a_step": bytes_of_a_step(method, config, spec)}


def main(argv: list[str]) -> None:
    script = common.Script("federated_cost", __doc__)
    script.add_argument("--clients", type=int, default=866)
    script.add_argument("--classes", type=int, default=36)
    args = script.begin(argv)
    spec = ImageSpec(28, 28, 1, args.classes)
    print(script.save({"rows": [row(*published, args.clients, spec) for published in PUBLISHED]}))


if __name__ == "__main__":
    terminal.main(main)
