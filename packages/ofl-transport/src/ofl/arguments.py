"""What a caller passes, in the form that the library takes.  Pure.

ctypes cuts a number that is too large and ends a text at its first NUL, both without a word: whatever would reach the
library as something else is refused here by name.
"""

import os

_NS_BITS = 63


def text(name: str, value: str) -> bytes:
    """A text of ASCII characters without a NUL.  Raises ValueError."""
    if not value.isascii() or "\0" in value:
        raise ValueError(f"{name} must have printable ASCII characters alone, not {value!r}")
    return value.encode("ascii")


def key_path(value: str | os.PathLike[str] | None) -> bytes | None:
    """The path of a key file, or None.  Raises ValueError."""
    if value is None:
        return None
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("the path of the key file has a NUL character")
    return encoded


def unsigned(name: str, value: int, bits: int) -> int:
    """A whole number of that many bits.  Raises ValueError."""
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} must be from 0 to 2**{bits} - 1, not {value}")
    return value


def deadline(value: int) -> int:
    """A moment in nanoseconds of CLOCK_MONOTONIC, past or to come.  Raises ValueError."""
    if not -(1 << _NS_BITS) <= value < 1 << _NS_BITS:
        raise ValueError(f"deadline_ns must fit into 64 bits, not {value}")
    return value


def span_ns(name: str, value: int) -> int:
    """A span in nanoseconds; the library says which are too short.  Raises ValueError."""
    if not -(1 << _NS_BITS) <= value < 1 << _NS_BITS:
        raise ValueError(f"{name} must fit into 64 bits, not {value}")
    return value
