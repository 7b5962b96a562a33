"""The kinds of rounds of a mixture of Gaussians: their queries, answers and what follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.moments import Moments
from dpgen_jax.core.types import Array, ImageSpec, Metrics, PyTree
from dpgen_jax.methods.shared import gaussians, sample_classifier
from dpgen_jax.methods.shared.gaussian_answers import Query, about_mean, in_cell, of_class
from dpgen_jax.methods.shared.gaussians import Public, Sizes
from dpgen_jax.methods.shared.sample_classifier import Classifier
from dpgen_jax.nets.oriented import oriented

Verbs = dict[str, Any]
"""`ask`, `answer` and `absorb` of a kind of round."""


def of_mixture(s: Sizes, spec: ImageSpec, bounds: tuple[Moments, ...], sigma: float
               ) -> tuple[Verbs, ...]:
    """Returns the verbs of the rounds of classes, of what is within them, of means and of cells.

    Args:
        s: The sizes.
        spec: The schema of the images.
        bounds: Of these four kinds of rounds.
        sigma: The noise multiplier of a round.
    """
    classes, spread, means, cells = bounds

    def absorb_classes(key: Array, public: Public, query: PyTree, released: Array
                       ) -> tuple[Public, Metrics]:
        del key, query
        return logged(gaussians.begun(s, public, classes.sums(released), classes.noise(sigma)))

    def absorb_spread(key: Array, public: Public, query: PyTree, released: Array
                      ) -> tuple[Public, Metrics]:
        del query
        return logged(gaussians.spread(s, key, public, spread.sums(released), spread.noise(sigma)))

    def absorb_means(key: Array, public: Public, query: Query, released: Array
                     ) -> tuple[Public, Metrics]:
        del key
        sums, noise = means.sums(released), means.noise(sigma)
        return logged(gaussians.moved(s, public, sums, noise, query.scale))

    def absorb_cells(key: Array, public: Public, query: Query, released: Array
                     ) -> tuple[Public, Metrics]:
        del key, query
        return logged(gaussians.added(public, cells.sums(released)))

    def answer(way: Callable[..., Array]) -> Callable[..., Array]:
        return functools.partial(way, s, spec)

    return (
        {"ask": lambda key, public: jnp.zeros((), jnp.int32), "answer": answer(of_class),
         "absorb": absorb_classes},
        {"ask": lambda key, public: public.means, "answer": answer(about_mean),
         "absorb": absorb_spread},
        {"ask": cell_query(s, 0.0), "answer": answer(in_cell), "absorb": absorb_means},
        {"ask": cell_query(s, s.whitening), "answer": answer(in_cell), "absorb": absorb_cells})


def cell_query(s: Sizes, white: float) -> Callable[[Array, Public], Query]:
    """Returns the `ask` of the rounds of cells.

    Args:
        s: The sizes.
        white: As in `gaussians.scale`.
    """
    return lambda key, public: Query(public.centre, public.basis, public.centres,
                                     gaussians.scale(s, public, white))


def of_classifier(records: int, spec: ImageSpec, bound: Moments, sigma: float, rounds: int,
                  generator: Mapping[str, Callable[..., Any]]) -> Verbs:
    """Returns the verbs of the rounds of a classifier.

    Args:
        records: n, public.
        spec: The schema of the images.
        bound: Of these rounds.
        sigma: The noise multiplier of a round.
        rounds: How many there are.
        generator: `finalize` and `sample` of the mixture, which keeps all samples.
    """
    def described(key: Array, public: Public) -> tuple[Array, Array]:
        """Features of the mixture's images, and their labels, as frequent as among the records."""
        k_model, k_labels, k_draw = jax.random.split(key, 3)
        at_once, calls = sample_classifier.calls(spec)
        labels = jax.random.choice(k_labels, spec.classes, (calls, at_once), p=public.size)
        model = generator["finalize"](k_model, public)
        features = jax.lax.map(lambda call: oriented(generator["sample"](model, *call)),
                               (jax.random.split(k_draw, calls), labels))
        return features.reshape(calls * at_once, -1), labels.reshape(-1)

    def ask(key: Array, public: Public) -> Classifier:
        return jax.lax.cond(public.classifier.rounds == 0,
                            lambda: sample_classifier.started(spec, *described(key, public)),
                            lambda: public.classifier)

    def absorb(key: Array, public: Public, query: Classifier, released: Array
               ) -> tuple[Public, Metrics]:
        after = sample_classifier.moved(query, described(key, public)[0],
                                        bound.sums(released).first[0] / records,
                                        bound.noise(sigma)[2] / records, rounds)
        new, metrics = logged(dataclasses.replace(public, step=public.step + 1, classifier=after))
        return new, metrics | {"released_norm": jnp.linalg.norm(after.weights)}

    return {"ask": ask, "answer": functools.partial(sample_classifier.gradient, spec),
            "absorb": absorb}


def logged(public: Public) -> tuple[Public, Metrics]:
    """Returns the public state with what is logged of it."""
    return public, {"directions": jnp.sum(public.spectrum > 0).astype(jnp.float32),
                    "released_norm": jnp.linalg.norm(public.first)}
