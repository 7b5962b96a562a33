"""Shapes of a class in a column: beta distributions of ranks, as masses of bins."""

import jax.numpy as jnp
import numpy as np
from scipy.special import betainc

from dpgen_jax.methods.shared import table_tree


def test_the_distributions_are_those_of_beta():
    odds = np.linspace(-table_tree.ENDS, table_tree.ENDS, table_tree.CELLS + 1)
    low, high = (a.reshape(-1, 1) for a in np.meshgrid(table_tree.POWERS, table_tree.POWERS))
    exact = betainc(low, high, 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(table_tree.shape_cumulative(), exact, atol=1e-3)


def test_masses_are_those_of_a_beta_distribution_and_others_have_their_share():
    """Bins of unlike masses; a null apart, and an empty bin."""
    total = np.array([[0.3, 0.0, 0.1, 0.4, 0.2], [0.25] * 4 + [0.0]], np.float32)
    is_number = np.array([[True, True, True, True, False], [False] * 5])
    found = np.asarray(table_tree.shape_deviations(jnp.asarray(total), jnp.asarray(is_number)))
    np.testing.assert_allclose(found.sum(2), 0, atol=1e-6)
    assert (found[:, 0, 4] == 0).all() and (found[:, 1] == 0).all()
    k = [(a, b) for b in table_tree.POWERS for a in table_tree.POWERS].index((0.2, 5.0))
    below = betainc(0.2, 5.0, np.array([0, 3, 3, 4, 8]) / 8)
    np.testing.assert_allclose(found[k, 0, :4], 0.8 * np.diff(below) - total[0, :4], atol=2e-3)
    alike = found[len(table_tree.POWERS)**2 // 2, 0]
    np.testing.assert_allclose(alike, 0, atol=1e-3)
