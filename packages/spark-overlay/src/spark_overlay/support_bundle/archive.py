"""Writes the archive: whole or not at all, for its owner alone."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ofl.files import publish

FOLDER = "support-bundle"
MANIFEST = "manifest.json"
FORMAT = 1


class OutputError(ValueError):
    """The bundle cannot be written where it is to be; the text names the file."""


def manifest_of(files: Mapping[str, bytes], more: Mapping[str, Any]) -> bytes:
    """Names, sizes and digests of what is inside."""
    entries = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return (json.dumps({"format": FORMAT, **more, "files": entries}, indent=1) + "\n").encode()


def archive(files: Mapping[str, bytes], made_s: int) -> bytes:
    """A tar.gz of the files in one folder; nothing in it names who made it."""
    room = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=room, mode="wb", filename="", mtime=made_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, made_s
            tar.addfile(entry, io.BytesIO(data))
    return room.getvalue()


def put(path: Path, data: bytes, *, force: bool) -> None:
    """The data at path, mode 0600, on its disk on return.  force: also in place of a file that is there.

    Raises OutputError; then whatever was there is as it was.
    """
    try:
        publish(path, data, mode=0o600, over=force, synced=True)
    except FileExistsError:
        raise OutputError(f"{path} is there already: --force replaces it") from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from None
