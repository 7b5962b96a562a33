"""`python -m dpgen_jax` and the console script: one door to all commands."""

import importlib

import pytest

from dpgen_jax import __main__
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import about
from dpgen_jax.version import __version__


def test_it_lists_every_command(capsys):
    assert __main__.command([]) is None
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in __main__.COMMANDS)


def test_version_and_methods(capsys):
    __main__.command(["--version"])
    __main__.command(["methods"])
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"dpgen_jax {__version__}" and rest == about.lines()


@pytest.mark.parametrize("name", __main__.COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.command([name, "--help"])
    assert not stop.value.code
    assert f"python -m dpgen_jax.{name}" in capsys.readouterr().out
    assert callable(importlib.import_module(f"dpgen_jax.{name}").command)


def test_an_unknown_command_is_named_with_the_nearest():
    with pytest.raises(UserError, match="unknown command 'trian', did you mean 'train'.*known: "):
        __main__.command(["trian"])
