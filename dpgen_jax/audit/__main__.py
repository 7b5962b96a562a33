"""python -m dpgen_jax.audit: see `command_line`."""

from dpgen_jax.audit import command
from dpgen_jax.core import cli

if __name__ == "__main__":
    cli.main(command)
