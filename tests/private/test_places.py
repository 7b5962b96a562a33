"""A message does not depend on its place: nobody's draw or neighbours are in anybody's integers."""

import as_in_a_run
import jax.numpy as jnp
import message_positions
import pytest

from dpgen_jax.private import teachers

FEW = ["dpcgan", "datalens"]  # a record that is drawn, and a teacher that stays


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_message_is_the_same_in_every_place_and_beside_whomever(name):
    assert message_positions.differing(name) == 0


@pytest.mark.long
def test_and_so_it_is_in_the_programs_that_run():
    names = ["dpcgan", "dpgan", "topagg_sgd", "gpate", "gswgan", "pategan", "datalens"]
    assert as_in_a_run.call("places", *names) == dict.fromkeys(names, 0)


@pytest.mark.parametrize("name", [pytest.param("dpcgan", marks=pytest.mark.slow),
                                  pytest.param("datalens", marks=pytest.mark.long)])
def test_a_place_that_speaks_louder_is_caught(name, monkeypatch):
    """The planted fault: whoever lies second in a chunk says one more wherever it says anything."""
    usual = teachers.vmapped

    def louder(one, chunk):
        def all_of_them(*args):
            units, votes = usual(one, chunk)(*args)
            second = (jnp.arange(chunk) == 1)[:, None, None]
            return units, votes + second * (votes != 0)

        return all_of_them

    monkeypatch.setattr(teachers, "vmapped", louder)
    assert message_positions.differing(name) > 0
