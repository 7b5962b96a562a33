"""Fidelity by client: a client whom the samples do not resemble shows."""

import numpy as np
import pytest

from benchmarks import client_likeness as module
from benchmarks.client_likeness import by_client
from dpgen_jax.core.types import EMPTY, UserError

pytestmark = pytest.mark.long


class Means:
    """A judge whose features are the means of the rows of an image."""

    def see(self, x):
        features = x.reshape(*x.shape[:2], -1).mean(2) / 255
        probabilities = np.exp(5 * features[:, :3])
        return features, probabilities / probabilities.sum(1, keepdims=True)


def images(rng, n, brightness):
    return np.clip(rng.normal(brightness, 20, (n, 8, 8, 1)), 0, 255).astype(np.uint8)


def test_a_client_unlike_the_samples_is_the_most_distant():
    rng = np.random.default_rng(0)
    x = np.concatenate([images(rng, 40, 60) for _ in range(4)] + [images(rng, 40, 200)])
    clients = np.repeat(np.arange(5), 40)
    order = rng.permutation(200)
    score = by_client(images(rng, 100, 60), x[order], np.zeros(200, int), clients[order], Means())
    distances = score["by_client"]["fid_features"]
    assert distances["most"] > 20 * distances["three_quarters"] > 0
    assert score["by_client"]["clients"] == 5
    assert list(distances) == ["least", "quarter", "median", "three_quarters", "most"]
    # Samples like the first four clients' are nearer to these than the images of all clients are.
    assert distances["median"] < score["by_client"]["floor"]["median"]
    assert 1 <= score["by_client"]["inception_score_of_real_images"]["least"] < 3
    assert score["not_covered_by_epsilon"][0] == "by_client.fid_features"


def test_clients_of_one_image_and_empty_slots_do_not_count():
    rng = np.random.default_rng(0)
    x, clients = images(rng, 9, 60), np.array([0, 0, 0, 0, 1, 2, 2, 2, 2])
    y = np.array([0, 0, 0, 0, 0, 1, EMPTY, EMPTY, EMPTY])
    score = by_client(images(rng, 9, 60), x, y, clients, Means())
    assert score["by_client"]["clients"] == 1
    with pytest.raises(UserError, match="no client has 2 images"):
        by_client(x, x[4:6], y[4:6], clients[4:6], Means())


def test_fid_by_client_is_by_inception_s_features_of_some_clients(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.concatenate([images(rng, 20, 60 + 20 * client) for client in range(6)])
    clients, y, seen = np.repeat(np.arange(6), 20), np.zeros(120, int), []

    def inception(x):
        seen.append(len(x))
        return Means().see(x)[0]

    args = images(rng, 40, 60), x, y, clients, Means()
    plain, score = by_client(*args), by_client(*args, inception)
    for ours, theirs in (("fid", "fid_features"), ("fid_floor", "floor")):  # the same features
        assert score["by_client"][ours] == pytest.approx(plain["by_client"][theirs])
    assert score["by_client"]["fid_clients"] == 6 and seen == [40, 40, 120]
    assert "by_client.fid_floor" in score["not_covered_by_epsilon"]
    assert "fid" not in plain["by_client"]
    monkeypatch.setattr(module, "INCEPTION_CLIENTS", 2)
    few = by_client(*args, inception)["by_client"]
    assert few["fid_clients"] == 2 and seen[-1] == 40 and few["clients"] == 6
    assert few["fid"]["most"] <= score["by_client"]["fid"]["most"]
