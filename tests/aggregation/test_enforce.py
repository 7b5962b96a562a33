"""The integers that are checked are those that are added: read off the programs that run."""

import as_in_a_run
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_battery

from dpgen_jax.aggregation.bound import enforce

ONE_CHECK, NO_CHECK = [[], 1], [["compare"], 0]


def short(rows):
    return jnp.sum(rows * rows, -1, keepdims=True) <= 9


def test_rows_that_break_the_bound_become_zero_and_no_others():
    rows = np.array([[3, 0], [0, -3], [3, 1], [-2, 2], [4, 0]], np.int32)
    wanted = rows * np.array([1, 1, 0, 1, 0])[:, None]
    np.testing.assert_array_equal(jax.jit(lambda r: enforce(r, short))(rows), wanted)
    stacked = jax.jit(jax.vmap(lambda r: enforce(r, short)))
    np.testing.assert_array_equal(stacked(rows[:, None]), wanted[:, None])
    np.testing.assert_array_equal(stacked(rows[:, None][:2]), rows[:, None][:2])


BOUNDS = {"one of each module": ["RowL2", "KLevels", "TopKSign", "OneHot", "CellVotes",
                                 "LabelVotes", "FewRows"],
          "the others": ["GradientL2", "SketchedSigns", "clients"]}


def test_no_bound_is_forgotten():
    assert set(as_in_a_run.one_of_each_bound()) == {name for names in BOUNDS.values()
                                                    for name in names}


@pytest.mark.parametrize("names", [
    pytest.param(names, id=which, marks=pytest.mark.slow if which == "one of each module" else
                 pytest.mark.long) for which, names in BOUNDS.items()])
def test_every_bound_checks_the_integers_that_are_added(names):
    """Compiled with a run's flags, what is added to a sum comes from the check's loop and from
    integers alone; a label vote, a comparison that is 0 or 1 however it is computed, needs none."""
    found = as_in_a_run.call("sources_of_bounds", "loop", *names)
    assert found == {name: NO_CHECK if name == "LabelVotes" else ONE_CHECK for name in names}


@pytest.mark.slow
def test_messages_that_are_rounded_again_after_the_check_are_caught():
    found = as_in_a_run.call("sources_of_bounds", "inline", "GradientL2", "CellVotes")
    assert not [name for name, (floats, checks) in found.items() if checks or not floats], found


@pytest.mark.long
@pytest.mark.parametrize("name", test_battery.PRIVATE)
def test_every_method_checks_the_integers_that_are_added(name):
    wanted = NO_CHECK if name == "pategan" else ONE_CHECK
    assert as_in_a_run.call("sources", name, 1, 2) == [wanted, wanted]
