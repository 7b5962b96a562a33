"""The papers' own accountings, of the numbers that they depend on."""

from types import SimpleNamespace

from dpgen_jax import methods


def published(method, delta, **fields):
    return methods.published(method, SimpleNamespace(**fields), delta)


def datalens(top_k, batch, sigma, delta):
    return published("datalens", delta, aggregate="topk", top_k=top_k, batch=batch, sigma=sigma)


def gpate(batch, projection, sigma, sigma_threshold, delta, *answer_rate):
    config = SimpleNamespace(aggregate="gnmax", batch=batch, projection=projection, sigma=sigma,
                             sigma_threshold=sigma_threshold)
    return methods.get("gpate").published(config, delta, *answer_rate)


def gswgan(critics, batch, sigma, delta, method="gswgan", federated=False):
    return published(method, delta, critics=critics, critics_per_step=1, batch=batch, sigma=sigma,
                     federated=federated)
