"""The findings of a measure, as metrics.json has them."""

from dpgen_jax.evaluation.assessment import Assessment


def written(part):
    return Assessment.of([part], {"seconds": part.seconds}).json()
