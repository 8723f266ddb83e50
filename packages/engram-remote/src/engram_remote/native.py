"""The binding to libengram.so: hands it libofl, turns statuses into exceptions.

ctypes releases the interpreter lock during every call.  Nothing here knows about tables or lookups.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

import ofl.native
from ofl import errors, library
from ofl.library import text_of as text_of

import engram_remote
from engram_remote import abi
from engram_remote.abi import Status

FEATURES = ("io_uring", "checksum", "huge_pages", "numa")


class EngramError(errors.TransportError):
    """What the library refused or could not do; the text is one sentence.  status: its code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status)


class RefusedError(EngramError, ConnectionError):
    """The peer said no; the text holds its field, its sentence and, of an identity, both digests."""


class InUseError(EngramError, errors.AddressInUseError):
    """Another socket listens there already."""


class InvalidError(EngramError, ValueError):
    """An argument that cannot be served; the text names it."""


_CLASSES: dict[int, type[EngramError]] = {
    Status.REFUSED: RefusedError,
    Status.IN_USE: InUseError,
    Status.INVALID: InvalidError,
}


def library_path() -> Path:
    """Where libengram.so is: ENGRAM_LIBRARY if set, else in the package.  Raises ImportError naming its folders."""
    return library.library_path("libengram.so", engram_remote.__path__, "ENGRAM_LIBRARY")


@functools.cache
def loaded() -> ctypes.CDLL:
    """The loaded library with all its functions declared, and libofl open.

    Raises ImportError when either is missing or has another ABI version.
    """
    signatures = (abi.LIBRARY, abi.SERVER, abi.CLIENT)
    engram = library.load(library_path(), "engram_abi_version", abi.ABI_VERSION, *signatures)
    libofl = os.fsencode(ofl.native.library_path())
    status, text = text_of(lambda *room: engram.engram_library_open(libofl, *room))
    if status != Status.OK:
        raise ImportError(text)
    return engram


def missing(feature: str) -> str:
    """What is missing for one of FEATURES on this host, as a sentence; empty where nothing is."""
    return "" if (found := said_of(feature))[0] else found[1] or "this build does not know it"


def said_of(feature: str) -> tuple[bool, str]:
    """Whether this build has one of FEATURES on this host, and what it says about it."""
    status, text = text_of(lambda *room: loaded().engram_feature(feature.encode(), *room))
    return status == Status.OK, text


def check(function: Callable[..., int]) -> str:
    """As `text_of`, for functions that must succeed: their sentence.  Raises EngramError with it otherwise."""
    status, text = text_of(function)
    if status != Status.OK:
        raise _CLASSES.get(status, EngramError)(status, text)
    return text
