"""Answers in low frequencies: what is made of gradients, where fakes move, and what is refused."""

import dataclasses

import jax
import numpy as np
import people_table
import pytest
import small_datalens

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.methods import datalens, gpate
from dpgen_jax.methods.shared.low_frequencies import in_frequencies, length
from dpgen_jax.methods.shared.teachers import Messages
from dpgen_jax.nets.frequencies import frequencies, restored
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet

COLOUR = ImageSpec(12, 10, 3, 4)
AS_THEY_ARE = Messages(lambda _, gradients: gradients, lambda _, released: released)


def test_a_message_is_made_of_low_frequencies_and_of_no_others(rng):
    """There are 6 a side in brightness and 2 in colours; a gradient of higher ones says nothing."""
    assert length(COLOUR, 6) == 36 + 4 + 4 and length(COLOUR, 0) == 360
    low = in_frequencies(AS_THEY_ARE, COLOUR, 6)
    gradients = rng.normal(size=(5, 360)).astype(np.float32)
    said = np.asarray(low.message((), gradients))
    assert said.shape == (5, 44)
    moved = np.asarray(low.direction((), said))
    np.testing.assert_allclose(frequencies(moved.reshape(5, 12, 10, 3), 6), said, atol=1e-5)
    np.testing.assert_allclose(low.message((), gradients - moved), 0, atol=1e-5)
    assert (np.linalg.norm(said, axis=1) < np.linalg.norm(gradients, axis=1)).all()
    np.testing.assert_allclose(moved, np.asarray(restored(said, COLOUR, 6)).reshape(5, 360))


def test_a_fake_without_an_answer_has_none_in_frequencies():
    gradients = np.ones((2, 360), np.float32)
    gradients[1] = np.nan
    said = np.asarray(in_frequencies(AS_THEY_ARE, COLOUR, 6).message((), gradients))
    assert np.isnan(said).all(1).tolist() == [False, True]


def test_without_frequencies_messages_are_as_they_were():
    assert in_frequencies(AS_THEY_ARE, COLOUR, 0) is AS_THEY_ARE
    assert in_frequencies(AS_THEY_ARE, people_table.THREE, 0) is AS_THEY_ARE


@pytest.mark.parametrize(("config", "numbers"), [
    (gpate.Config(projection=5), 5 * 10), (gpate.Config(aggregate="mean", projection=5), 5 * 10),
    (gpate.Config(aggregate="sum", projection=0), 16), (datalens.Config(top_k=9), 16),
    (gpate.Config(aggregate="topk", projection=5), 16), (datalens.Config(aggregate="d2p"), 16),
    (datalens.Config(aggregate="fetchsgd", top_k=9, sketch_columns=8), 3 * 8)])
def test_as_many_numbers_are_added_up_as_there_are_frequencies(config, numbers):
    """Images have 8 x 8 pixels, of which 4 frequencies a side are used."""
    config = dataclasses.replace(config, teachers=11, batch=6, sigma=1.0, steps=2, frequencies=4)
    module = {gpate.Config: gpate, datalens.Config: datalens}[type(config)]
    assert module.mechanism(config, small_datalens.SPEC).shape == (6, numbers)


@pytest.mark.parametrize("config", [gpate.Config(projection=5), datalens.Config(aggregate="d2p")])
def test_teachers_with_networks_answer_in_frequencies_too(config, tmp_path):
    config = dataclasses.replace(config, teachers=11, batch=3, sigma=1.0, steps=2, frequencies=4,
                                 generator=GeneratorNet(4, 8, 4),
                                 discriminator=DiscriminatorNet(4, 4, 8))
    module = {gpate.Config: gpate, datalens.Config: datalens}[type(config)]
    method = module.build(config, small_datalens.SPEC)
    state, _ = small_datalens.run(tmp_path, *small_datalens.images(), method=method, steps=2)
    public = state.public
    assert int(public.step) == 2
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(public.params))


def test_frequencies_that_do_not_fit_are_named():
    with pytest.raises(UserError, match="prototypes and frequencies are for images"):
        gpate.build(gpate.Config(frequencies=4, sigma=1.0, steps=1), people_table.THREE)
