"""Replacing one name of the library for a while, as a planted fault does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces an attribute of a module or a class within the context.

    Args:
        owner: The module or class.
        name: Of the attribute, which it must have.
        value: What stands there instead.
    """
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def all_replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replaces several attributes within the context.

    Args:
        *changes: The arguments of `replaced`, one tuple each.
    """
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(replaced(*change))
        yield
