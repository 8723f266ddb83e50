"""Processes that a run left behind, found by what stands in their environment."""

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GONE_S = 30.0


def naming(place: Path) -> Iterator[int]:
    """Processes that have a place in their environment or on their command line, this one left out."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            said = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
            if os.fsencode(place) in said:
                yield int(entry.name)


def wait_gone(place: Path) -> list[int]:
    """Those that are there now and do not end within a bound."""
    left = []
    for pid in naming(place):
        try:
            ended = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([ended], [], [], GONE_S)[0]:
                left.append(pid)
        finally:
            os.close(ended)
    return left
