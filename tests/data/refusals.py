"""A refusal is one line for the user, whatever is refused."""

import pytest

from dpgen_jax.core.types import UserError


def refused(match, call, *args, **options) -> str:
    """Calls what must be refused, and returns the line."""
    with pytest.raises(UserError, match=match) as caught:
        call(*args, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line
