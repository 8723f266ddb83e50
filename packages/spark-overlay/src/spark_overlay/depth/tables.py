"""The cost tables of remote drafting as they stand in settings: text to numbers and back.

Pure.  A draft cost is one number, milliseconds of a remote round; a round table is milliseconds of a verification by
depth 0 .. K, without any drafting in it.
"""

import math
from collections.abc import Sequence


def draft_cost(text: str) -> float:
    """Milliseconds that a remote round costs.  Raises ValueError where it is no finite number of 0 or more."""
    value = _number(text)
    if value < 0:
        raise ValueError(f"a finite number of at least 0 is needed, not {text!r}")
    return value


def round_table(text: str) -> tuple[float, ...]:
    """Milliseconds of a verification by depth, from numbers with commas between.

    Raises ValueError where one is not finite and above 0, or less than the one before it.  How many there must be is
    the engine's to say.
    """
    values = tuple(_number(part) for part in text.split(","))
    for depth, value in enumerate(values):
        if value <= 0:
            raise ValueError(f"depth {depth}: a finite number above 0 is needed, not {value:g}")
        if depth and value < values[depth - 1]:
            raise ValueError(
                f"depth {depth}: {value:g} is below depth {depth - 1}'s {values[depth - 1]:g}, and verifying more "
                "never costs less"
            )
    return values


def shown(values: Sequence[float]) -> str:
    """A table as `round_table` reads it, every digit kept."""
    return ",".join(repr(float(value)) for value in values)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"a number is needed, not {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"a finite number is needed, not {text!r}")
    return value
