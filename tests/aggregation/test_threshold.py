"""Decoders against Algorithm 3 written out literally."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.topagg import Mean, Threshold


@pytest.mark.parametrize("beta,n_units", [("0.7", 4000), ("0.2", 4000), ("0.07", 100), ("0.5", 7),
                                          ("1", 3), ("0.001", 10)])
def test_threshold_is_algorithm_3_in_exact_arithmetic(beta, n_units):
    edge = Fraction(beta) * n_units
    around = int(edge) + np.arange(-2, 3)
    noised = np.unique(np.concatenate([around, -around, [0, 2**31 - 1, -2**31]])).astype(np.int32)
    expected = [1.0 if int(v) >= edge else -1.0 if int(v) <= -edge else 0.0 for v in noised]
    decoded = Threshold(float(beta))(jnp.asarray(noised)[None], n_units)
    assert decoded.dtype == jnp.float32
    np.testing.assert_array_equal(decoded[0], expected)


def test_mean_is_the_votes_over_the_units_unclipped():
    noised = jnp.array([[-9000, -4000, 0, 1, 12000]], jnp.int32)
    expected = np.float32([[-2.25, -1, 0, 1 / 4000, 3]])
    np.testing.assert_allclose(Mean()(noised, 4000), expected, rtol=2**-22)
    assert Mean()(noised, 4000).dtype == jnp.float32


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_out_of_range_is_refused(beta):
    with pytest.raises(ValueError):
        Threshold(beta)
