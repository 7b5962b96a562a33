"""A value of a wrong shape or type from a method is refused by name when a run is compiled."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.run import loop


def transposed(*args):
    return adversary.answer(*args).T


def of_16_bits(*args):
    return adversary.answer(*args).astype(jnp.bfloat16)


def grown(key, unit, own, query):
    return unit | {"weights": jnp.zeros(9)}


def renamed(key, unit, own, query):
    return {"other": unit["weights"], "momentum": unit["momentum"]}


def of_text(key, public):
    return dataclasses.replace(adversary.ask(key, public), images="images")


def counted_in_floats(key, public, query, released):
    after, metrics = adversary.absorb(key, public, query, released)
    return dataclasses.replace(after, step=after.step.astype(jnp.float32)), metrics


def by_pixel(key, public, query, released):
    after, _ = adversary.absorb(key, public, query, released)
    return after, {"share": released[0]}


def compiled(**verbs) -> None:
    """Compiles a block of the real loop, and runs it once."""
    where = adversary.layout()
    method = adversary.build(**verbs)
    bits = np.zeros((adversary.STEPS, *adversary.SHAPE, 3), np.uint32)
    adversary.call(loop.compile_block(method, where), adversary.start(where),
                   adversary.placed(adversary.neighbours()[0], where), where, bits, 1)


def test_the_method_as_it_is_passes():
    compiled()


@pytest.mark.parametrize(("verb", "wrong", "message"), [
    ("answer", transposed, r"`Method.answer` .*shape"),
    ("answer", of_16_bits, r"`Method.answer` .*float32"),
    ("learn", grown, r"`Method.learn` .*weights"),
    ("learn", renamed, r"`Method.learn` "),
    ("ask", of_text, r"`Method.ask` .*a leaf is str"),
    ("absorb", counted_in_floats, r"`Method.absorb` .*step"),
    ("absorb", by_pixel, r"`Method.absorb` .*'share' has shape \(8,\)")],
    ids=lambda value: getattr(value, "__name__", None))
def test_a_wrong_shape_or_type_is_refused_by_name(verb, wrong, message):
    with pytest.raises(TypeError, match=f"(?s){message}"):
        compiled(**{verb: wrong})


def test_a_contribution_that_is_not_of_integers_is_refused():
    bound = adversary.mechanism().bound

    class Floats:
        """A bound that forgets to round."""

        def __getattr__(self, name):
            return getattr(bound, name)

        def project(self, key, message):
            return bound.project(key, message).astype(jnp.float32)

    with pytest.raises(TypeError, match="mechanism.contribution"):
        compiled(bound=Floats())


def test_numbers_of_64_bits_are_refused():
    def wide(key, public):
        with jax.enable_x64(True):
            return {"images": jnp.zeros(adversary.SHAPE, jnp.float64)}

    with pytest.raises(TypeError, match="at most 32 bits"):
        compiled(ask=wide)
