"""The end of a log, as far as its lines are ours.  Reads files that were named, and no others."""

import os
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from ofl.files import open_plain

from spark_overlay.support_bundle.known_text import sentence

BYTES_MAX = 64 << 20
"""Of a log's end that are looked at."""
LINE_MAX = 4096
_LEVEL = "(?:DEBUG|INFO|WARNING|ERROR)"
_PREFIX = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [A-Za-z0-9.-]{1,64} [A-Za-z0-9_.@-]{1,64}\[\d{1,10}\]: )?"  # journalctl
    r"(?:\([A-Za-z0-9_]{1,40} pid=\d{1,10}\) ){0,3}"  # vLLM, which of its processes
    rf"(?:{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d \[[A-Za-z0-9_./-]{{1,80}}:\d{{1,6}}\] "  # vLLM
    rf"|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} {_LEVEL} )?"  # the worker
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,12}m")


class LogError(ValueError):
    """A log that was named cannot be read; the text names it."""


@dataclass(frozen=True)
class LogEnd:
    """Lines of ours among the last ones, and how many were looked at."""

    lines: list[str]
    seen: int


def end_of_log(path: Path, lines_max: int) -> LogEnd:
    """What is ours of the last lines of a file.  Raises LogError."""
    try:
        with open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - BYTES_MAX))
            last = deque(file.read(BYTES_MAX).splitlines(), maxlen=lines_max)
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from None
    kept = [line for line in map(_ours, last) if line]
    return LogEnd(kept, len(last))


def _ours(data: bytes) -> str:
    """The line with its prefix and without what may quote others; "" where it is none of ours."""
    if len(data) > LINE_MAX:
        return ""
    text = _COLOUR.sub("", data.decode("utf-8", "replace")).rstrip()
    found = _PREFIX.match(text)
    assert found is not None, "every part of a prefix may be missing"
    said = sentence(text[found.end() :])
    return text[: found.end()] + said if said else ""
