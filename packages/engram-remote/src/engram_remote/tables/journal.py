"""What an unfinished build has done, so that the next attempt goes on from there.

One file of JSON lines beside the shards: first the plan, then what the source was, then each chunk by its
digest.  Nothing in it is believed: chunks are digested again before they are kept, so a lost or torn line costs
work and nothing else.  It is locked while a build runs.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engram_remote.tables.errors import BuildError

FILE_NAME = ".build.journal"


class Journal:
    """The journal of a folder, opened and locked.

    plan: what is built, in plain JSON values; another build's journal is refused.  Raises BuildError, OSError.
    """

    def __init__(self, folder: Path, plan: Mapping[str, Any]) -> None:
        self.path = folder / FILE_NAME
        self.source: dict[str, Any] | None = None
        """What the source was when it was last described."""
        self._chunks: dict[str, dict[int, str]] = {}
        self._shards: dict[str, str] = {}
        self._file = self.path.open(
            "a+b", buffering=0
        )  # a failed write leaves nothing for close to try again
        try:
            self._lock()
            self._read(json.loads(json.dumps(plan)))
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Release the lock and keep the journal."""
        self._file.close()

    def remove(self) -> None:
        """The build is complete."""
        self.path.unlink()
        self._file.close()

    def chunks(self, name: str) -> list[str]:
        """Digests of a shard's chunks from the first on, as far as they are known."""
        known = self._chunks.get(name, {})
        found: list[str] = []
        while len(found) in known:
            found.append(known[len(found)])
        return found

    def add_chunk(self, name: str, index: int, sha256: str) -> None:
        """One more chunk is written."""
        self._chunks.setdefault(name, {})[index] = sha256
        self._append({"shard": name, "chunk": index, "sha256": sha256})

    def shard(self, name: str) -> str | None:
        """Digest of a whole shard that is complete."""
        return self._shards.get(name)

    def add_shard(self, name: str, sha256: str) -> None:
        """A shard is complete."""
        self._shards[name] = sha256
        self._append({"shard": name, "sha256": sha256})

    def set_source(self, source: Mapping[str, Any]) -> None:
        """What the source is: plain JSON values."""
        self.source = json.loads(json.dumps(source))
        self._append({"source": self.source})

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BuildError(f"{self.path.parent}: another build is at work there") from None

    def _read(self, plan: dict[str, Any]) -> None:
        self._file.seek(0)
        lines = [line for line in map(_parsed, self._file.read().split(b"\n")) if line is not None]
        if not lines or "plan" not in lines[0]:
            self._file.truncate(0)
            self._append({"plan": plan})
            return
        if (field := _difference(lines[0]["plan"], plan)) is not None:
            raise BuildError(
                f"{self.path.parent}: holds an unfinished build that differs in {field}; "
                "finish it with its own settings, or remove the folder"
            )
        for line in lines[1:]:
            self._take(line)
        self._end_torn_line()

    def _take(self, line: dict[str, Any]) -> None:
        if isinstance(line.get("source"), dict):
            self.source = line["source"]
            return
        name, index, sha256 = line.get("shard"), line.get("chunk"), line.get("sha256")
        if not isinstance(name, str) or not isinstance(sha256, str):
            return
        if isinstance(index, int):
            self._chunks.setdefault(name, {})[index] = sha256
        else:
            self._shards[name] = sha256

    def _append(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise BuildError(
                f"{self.path}: {error.strerror}; the same command goes on when that is mended"
            ) from error

    def _end_torn_line(self) -> None:
        """A kill may have left half a line, which must not swallow the next one."""
        size = self._file.seek(0, os.SEEK_END)
        if size and os.pread(self._file.fileno(), 1, size - 1) != b"\n":
            self._write(b"\n")


def _difference(before: object, plan: dict[str, Any]) -> str | None:
    """Name of a field that is not equal in both."""
    if not isinstance(before, dict):
        return "plan"
    names = sorted(before.keys() | plan.keys())
    return next((name for name in names if before.get(name) != plan.get(name)), None)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
