"""Compares what a CNN learns from a mixture's images and from records cut to what it can draw.

    nohup python -m benchmarks.headroom > headroom.log &
    python -m benchmarks.headroom --dataset fashion --epsilons 10

A mixture is trained with its preset on five sixths of the training images. A CNN then learns from
- `mixture`: its images;
- `directions`: these very records, each moved to the directions that were released, in which alone
  the mixture draws: what a perfect distribution in these directions would teach;
- `frequencies`: the records without the frequencies that no message has;
- `records`: the records as they are;
and is tested on the other sixth. All but the first are read off the records and are for diagnosis
alone. The script goes on where it stopped; results/headroom.json has the accuracies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from benchmarks import common, systems, training, validation_part
from dpgen_jax import data
from dpgen_jax.cli import terminal
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.evaluation import utility
from dpgen_jax.evaluation.scores import Images, checked
from dpgen_jax.evaluation.utility import SETTINGS
from dpgen_jax.methods import mixture
from dpgen_jax.nets.frequencies import frequencies, restored
from dpgen_jax.release import bundle

AT_ONCE = 2000
"""Images that are transformed together."""


def low(images: np.ndarray, count: int, basis: np.ndarray | None, centre: np.ndarray
        ) -> np.ndarray:
    """Return images of nothing but low frequencies, or of some directions among them.

    Args:
      images: float32 [n, H, W, ch] in [0, 1].
      count: Frequencies a side.
      basis: [M, k], whose columns span the directions about `centre`; None: all of them.
      centre: [M].

    Returns:
      float32 [n, H, W, ch] in [0, 1].
    """
    spec = ImageSpec(*images.shape[1:], classes=1)
    across = None if basis is None else np.linalg.qr(basis[:, basis.any(0)])[0]

    def one(block: np.ndarray) -> np.ndarray:
        found = np.asarray(frequencies(jnp.asarray(block), count))
        if across is not None:
            found = centre + (found - centre) @ across @ across.T
        return np.clip(np.asarray(restored(jnp.asarray(found), spec, count)), 0, 1)

    return np.concatenate([one(images[start:start + AT_ONCE])
                           for start in range(0, len(images), AT_ONCE)])


def kinds(run: Path, real: Images) -> dict[str, Callable[[], Images]]:
    """Return functions that make the training images of each kind.

    Args:
      run: The folder of a mixture's run.
      real: The records that it was trained on, uint8.
    """
    release, x, y = bundle.load(run), real[0].astype(np.float32) / 255, real[1]
    config = release.config
    assert isinstance(config, mixture.Config)
    sizes = mixture.sizes(config, release.spec)
    # The frequencies of the level from which images are counted belong to the centre.
    grey = np.asarray(frequencies(jnp.full((1, *x.shape[1:]), sizes.grey), sizes.frequencies))[0]
    centre, basis = grey + np.asarray(release.model["centre"]), np.asarray(release.model["basis"])
    return {"mixture": lambda: release.sample(SETTINGS["full"].n_samples, seed=0),
            "directions": lambda: (low(x, sizes.frequencies, basis, centre), y),
            "frequencies": lambda: (low(x, sizes.frequencies, None, centre), y),
            "records": lambda: (x, y)}


def case(out: Path, name: str, epsilon: float) -> dict[str, object]:
    """Return the row of a data set at an epsilon."""
    parts = out / f"{name}.npz"
    if not parts.exists():
        validation_part.main(["--dataset", *systems.DATA[name], "--out", str(parts)])
    made = data.load(f"npz:{parts}")
    preset = systems.preset_of("mixture", name, epsilon)
    run = training.finish(systems.folder(out, "mixture", name, epsilon), "mixture", "--preset",
                          preset, "--dataset", f"npz:{parts}", f"--epsilon={epsilon:g}",
                          f"--records={len(made.y_train)}")
    real = checked("training", made.x_train, made.y_train, at_least=1)
    test = checked("validation", made.x_test, made.y_test, at_least=1)
    scores: dict[str, float] = {}
    for kind, images in kinds(run, real).items():
        # The records are the same at each epsilon.
        path = out / f"{name if kind == 'records' else run.name}-{kind}.json"
        if not path.exists():
            trained = utility.train("cnn", checked(kind, *images(), at_least=1), made.spec.classes,
                                    SETTINGS["full"], 0)
            write_json(path, {"accuracy": trained.accuracy(test)})
        scores[kind] = read_json(path)["accuracy"]
        print(name, epsilon, kind, scores[kind], flush=True)
    privacy = read_json(run / "release" / "privacy.json")
    return {"dataset": name, "preset": preset, "epsilon": epsilon, "records": len(made.y_train),
            "proven_epsilon": privacy["epsilon"], "accuracy": scores}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/headroom"))
    parser.add_argument("--dataset", nargs="+", choices=systems.DATA, default=list(systems.DATA))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[10.0, 1.0])
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    where = common.machine()
    rows = [case(args.out, name, epsilon) for epsilon in args.epsilons for name in args.dataset]
    words = ["--dataset", *args.dataset, "--epsilons", *(f"{e:g}" for e in args.epsilons)]
    common.write(common.record("headroom", words, [0], {"rows": rows}, where))


if __name__ == "__main__":
    terminal.main(lambda argv: main(argv))
