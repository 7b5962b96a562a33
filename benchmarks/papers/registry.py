"""All rows, by name."""

from __future__ import annotations

from benchmarks.papers import datalens, dpac, gpate, gswgan
from benchmarks.papers.rows import Row
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import UserError

TITLES = {"gpate": "G-PATE", "datalens": "DataLens", "gswgan": "GS-WGAN", "dpac": "DP-GAN-DPAC"}
"""The papers; the fifth text is G-PATE's appendix."""
ROWS = {row.name: row for module in (gpate, datalens, gswgan, dpac) for row in module.ROWS}


def find(name: str) -> Row:
    """Return the row of a name, with its variant."""
    base, _, variant = name.partition("+")
    if base not in ROWS:
        raise UserError(f"unknown row {base!r}{nearest(base, list(ROWS))}; list them with "
                        "python -m benchmarks.papers")
    return ROWS[base].with_variant(variant) if variant else ROWS[base]
