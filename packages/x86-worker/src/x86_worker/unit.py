"""The systemd unit of the worker, as the package brings it, for this installation.

Owns nothing of systemd: it prints, or writes one file; enabling it is the operator's.
"""

import sys
from importlib import resources
from pathlib import Path

from ofl.files import publish

NAME = "x86-worker.service"
COMMAND = "x86-worker"


def unit(prefix: Path) -> str:
    """The unit's text.  prefix: of the Python that it is to run with; a command of ours there is named in full."""
    text = resources.files("x86_worker").joinpath(NAME).read_text(encoding="utf-8")
    command = prefix / "bin" / COMMAND
    return text.replace(f"/usr/bin/env {COMMAND}", str(command)) if command.is_file() else text


def write_unit(folder: Path) -> Path:
    """Write it as FOLDER/x86-worker.service, also over an older one; raises OSError."""
    path = folder / NAME
    publish(path, unit(Path(sys.prefix)).encode(), synced=True)
    return path
