"""The debugging task: do samples show that some clients' images are inverted?

    python -m benchmarks.federated [--dataset idx:mnist] [--clients 100] [--preset federated]

Task of Augenstein et al. 2020 (arXiv 1911.06679), as GS-WGAN runs it: one generator is trained over
clients that are believed to be sound, one over clients of which 80 % invert their pixel intensities
(1,720 of 2,136 in the paper). Nobody looks at a client's records; whoever looks at the two
generators' samples should see which is which. Written: both grids in one picture, the mean
brightness of samples, gen2real accuracy of the sound one, and the bytes that a client is sent and
sends in one step. Clients add the noise themselves; the promise is for a client's whole data.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import common
from dpgen_jax import api, cli, data, presets
from dpgen_jax.config import Budget
from dpgen_jax.data import clients
from dpgen_jax.methods import gswgan

FAULTY = 0.8
SAMPLES = 4000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--dataset", default="idx:mnist")
    parser.add_argument("--clients", type=int, default=100, help="in each of the two federations")
    parser.add_argument("--preset", default="federated")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--out", help="run folders; temporary ones if left out")
    return parser.parse_args()


def bytes_of_a_step(config: Any, spec: Any) -> dict[str, int]:
    """What one client is sent and sends in one step, as plain arrays."""
    method = gswgan.build(config, spec)
    query = jax.eval_shape(lambda key: method.ask(key, method.init(key)), jax.random.key(0))
    down = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(query))
    weights = jax.eval_shape(method.init_unit, jax.random.key(0))[0][0]
    return {"to_a_client": down, "from_a_client": 4 * int(np.prod(method.mechanism.shape)),
            "weights_of_a_critic_for_comparison":
                sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(weights))}


def train(given: argparse.Namespace, loaded: data.Dataset, root: Path) -> api.Release:
    chosen = presets.get("gswgan", given.preset)[1]
    config = dataclasses.replace(chosen.config, critics=given.clients)
    return api.run(api.Run("gswgan", given.preset, config, Budget(given.epsilon, chosen.delta),
                           out=root), loaded)


def picture(grids: dict[str, np.ndarray], path: Path) -> None:
    """One panel of samples for each federation, on one grey scale."""
    figure = Figure(figsize=(9, 4.9), layout="constrained")
    for axes, (name, x) in zip(figure.subplots(1, len(grids)), grids.items(), strict=True):
        rows = x[:100].reshape(10, 10, *x.shape[1:3])
        axes.imshow(rows.transpose(0, 2, 1, 3).reshape(10 * x.shape[1], -1), cmap="gray",
                    vmin=0, vmax=255)
        axes.set_title(name)
        axes.set_axis_off()
    figure.savefig(path, dpi=100)


def main() -> None:
    given = arguments()
    cli.use_all_cores()
    where, loaded = common.machine(), data.load(given.dataset)
    half = len(loaded.y_train) // 2
    parts = {"sound": slice(0, half), "suspect": slice(half, 2 * half)}
    found, grids = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, part in parts.items():
            own = dataclasses.replace(loaded, x_train=loaded.x_train[part],
                                      y_train=loaded.y_train[part])
            own, faulty = clients.split(own, given.clients, None, seed=0), np.zeros(0)
            if name == "suspect":
                own, faulty = clients.flipped(own, FAULTY, seed=0)
            release = train(given, own, Path(given.out or scratch) / name)
            x, y = release.sample(SAMPLES, seed=0)
            title = f"{given.clients} clients, {len(faulty)} of them inverted"
            grids[title] = x[np.argsort(y, kind="stable")][::SAMPLES // 100]
            found[name] = {"clients": given.clients, "inverted_clients": len(faulty),
                           "mean_brightness_of_samples": float(x.mean() / 255),
                           "privacy": release.privacy}
            if name == "sound":
                found[name]["gen2real_cnn"] = common.usefulness(
                    release, loaded, ("gen2real",), 1, SAMPLES, classifiers=("cnn",)
                )["gen2real"]["cnn"]
                config = release.config
    found["bytes_of_a_step"] = bytes_of_a_step(config, loaded.spec)
    found["brightness_of_the_data"] = float(loaded.x_train.mean() / 255)
    name = f"federated-{loaded.name}"
    picture(grids, common.RESULTS / f"{name}.png")
    shown = [f"--dataset {given.dataset}", f"--clients {given.clients}",
             f"--preset {given.preset}", f"--epsilon {given.epsilon:g}"]
    print(common.write(common.record("federated", shown, [0], found, where),
                       common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    cli.main(lambda argv: main())
