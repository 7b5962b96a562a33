"""One compilation for all runs that would compile the same."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import pytest

from dpgen_jax import methods
from dpgen_jax.private import pretraining, teachers
from dpgen_jax.run import loop


@functools.cache
def _once(function):
    return functools.cache(function)


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Runs of one configuration and layout share one compiled step: for whole runs in which
    nothing that is compiled is replaced, so that what a test varies is data, draws and files."""
    with pytest.MonkeyPatch.context() as patched:
        for method in map(methods.get, methods.NAMES):
            patched.setattr(method, "build", _once(method.build))
        patched.setattr(loop, "compile_block", _once(loop.compile_block))
        patched.setattr(teachers, "compile_stack", _once(teachers.compile_stack))
        patched.setattr(pretraining, "compile_call", _once(pretraining.compile_call))
        yield
