"""What must be on the disk before a run goes on.  Standard library only."""

import os
from datetime import UTC, datetime
from pathlib import Path


def sync(path: Path) -> None:
    """A file's bytes, or the names in a folder, are on the disk when this returns.  Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def utc() -> str:
    """Now, as ledger and records have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
