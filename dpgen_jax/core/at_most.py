"""An upper bound as a text that never says less than it is.

Epsilon and delta are upper bounds: a text that rounds them to the nearest number of its digits
promises, half of the time, what does not hold. Needs nothing, so that every part may use it.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context

FLOATS = 1e-12
"""The share by which products of numbers that people wrote may be off, as 0.1 * 1e-5 is"""


def at_most(value: float, digits: int = 6) -> str:
    """Returns a bound in the format `g`, rounded up where its digits do not hold it.

    Args:
        value: The bound.
        digits: The most significant digits.
    """
    text = f"{value:.{digits}g}"
    if not math.isfinite(value) or float(text) * (1 + FLOATS) >= value:
        return text
    larger = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{float(larger):.{digits}g}"
