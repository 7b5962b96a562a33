"""python -m dpgen_jax.audit: see `command_line`."""

from dpgen_jax.audit import command
from dpgen_jax.cli import terminal

if __name__ == "__main__":
    terminal.main(command)
