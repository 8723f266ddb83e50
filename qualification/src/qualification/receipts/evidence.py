"""What must hold of the evidence files that a receipt names, looked at where they lie."""

import errno
from collections.abc import Iterable

from qualification.receipts.errors import Violation
from qualification.receipts.fields import File
from qualification.receipts.files import Files


def path_violation(path: str) -> str:
    """Why a path is none that evidence may have; empty where it is fine."""
    if path.startswith("/"):
        return f"evidence path {path!r} is absolute"
    if "\\" in path:
        return f"evidence path {path!r} holds a backslash"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return f"evidence path {path!r} has a part that is empty, '.' or '..'"
    return ""


def judge_evidence(files: Iterable[File], root: Files, where: str = "") -> list[Violation]:
    """Every rule of the stage `evidence` that is violated, at most one per file."""
    found = []
    for file in files:
        wrong = _judge_file(file, root)
        if wrong is not None:
            found.append(Violation(*wrong, where))
    return found


def _judge_file(file: File, root: Files) -> tuple[str, str] | None:
    if wrong := path_violation(file.path):
        return "evidence_path", wrong
    try:
        size, digest = root.measure(file.path)
    except NotADirectoryError:
        return "evidence_path", f"evidence path {file.path!r} leads over something that is no folder"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "evidence_path", f"evidence path {file.path!r} leads over a symbolic link"
        return "evidence_missing", f"evidence file {file.path!r} cannot be read: {error.strerror}"
    if size != file.bytes:
        return "evidence_size", f"evidence file {file.path!r} has {size} bytes; the receipt says {file.bytes}"
    if digest != file.sha256:
        return (
            "evidence_digest",
            f"evidence file {file.path!r} has digest {digest}; the receipt says {file.sha256}",
        )
    return None
