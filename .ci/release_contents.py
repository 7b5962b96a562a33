"""Checks what lies in a wheel and an sdist: `python .ci/release_contents.py WHEEL SDIST`.

The package in both must be exactly the tracked files of dpgen_jax/: schemas, templates and py.typed
with the code, and neither tests nor benchmarks in the wheel.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable


def tracked() -> set[str]:
    """The paths of the package's files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "dpgen_jax"], check=True, capture_output=True,
                            text=True)
    return set(listed.stdout.split("\n")) - {""}


def in_wheel(path: str) -> tuple[set[str], set[str]]:
    """The wheel's files, and those of them in its .dist-info folder, without the folder's name."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    return names - about, {name.split("/", 1)[1] for name in about}


def in_sdist(path: str) -> set[str]:
    """The sdist's files, without the folder that holds all of them."""
    with tarfile.open(path) as sdist:
        return {member.name.split("/", 1)[1] for member in sdist if member.isfile()}


def require(names: Iterable[str], present: set[str], where: str) -> None:
    """Exits with an error that lists the names that are not present."""
    if missing := sorted(set(names) - present):
        sys.exit(f"{where} lacks {', '.join(missing)}")


def main(wheel: str, sdist: str) -> None:
    """Compares both archives with the tracked files."""
    expected, (files, about), source = tracked(), in_wheel(wheel), in_sdist(sdist)
    require(expected, files, wheel)
    if extra := sorted(files - expected):
        sys.exit(f"{wheel} holds files that are not in dpgen_jax/: {', '.join(extra)}")
    require(["licenses/LICENSE", "METADATA"], about, wheel)
    require([*expected, "LICENSE", "README.md", "setup.cfg", "pyproject.toml"], source, sdist)
    print(f"contents: {len(files)} files in the wheel, {len(source)} in the sdist")


if __name__ == "__main__":
    main(*sys.argv[1:])
