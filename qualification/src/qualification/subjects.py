"""What may be promoted, by digest: collected into a file that receipts and gate are held against."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from qualification.receipts.canonical import BYTES_MAX, field_violations, read_model, sha256
from qualification.receipts.errors import ReceiptError
from qualification.receipts.fields import Model
from qualification.receipts.files import read_given
from qualification.receipts.judge import twice
from qualification.receipts.statement import Digest, Kind, Subject

SUBJECTS_FORMAT: Final = "urn:spark-offload:qualification:subjects:v1"


class SubjectsError(Exception):
    """Subjects that cannot be collected or read; one sentence per line, each naming file or field."""


class SubjectsFile(Model):
    """subjects: sorted by name; no name and no digest stands twice."""

    format: Literal["urn:spark-offload:qualification:subjects:v1"]
    subjects: Annotated[tuple[Subject, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Sources:
    """Where subjects lie.  files: single files by kind.  checkpoints: folders.

    engine: name and version, "vllm 0.33.0", empty for none.  engine_files: patched ones, relative to engine_root.
    """

    files: Sequence[tuple[Kind, Path]] = ()
    checkpoints: Sequence[Path] = ()
    engine: str = ""
    engine_root: Path = field(default_factory=Path)
    engine_files: Sequence[str] = ()


def collect(sources: Sources) -> SubjectsFile:
    """Every subject with its digest.  Raises SubjectsError: a file cannot be read, or two subjects are one."""
    found = [subject(kind, path.name, file_digest(path)) for kind, path in sources.files]
    found += [subject("checkpoint", path.name, folder_digest(path)) for path in sources.checkpoints]
    if sources.engine:
        found.append(subject("engine", sources.engine, engine_digest(sources)))
    elif sources.engine_files:
        raise SubjectsError("engine files were given, but no engine version that they patch.")
    if not found:
        raise SubjectsError("no subject was given.")
    return _sound(
        SubjectsFile(format=SUBJECTS_FORMAT, subjects=tuple(sorted(found, key=lambda one: one.name)))
    )


def read_subjects(path: Path) -> SubjectsFile:
    """A subjects file.  Raises SubjectsError."""
    try:
        data = read_given(path, BYTES_MAX)
        return _sound(read_model(SubjectsFile, data, str(path), canonical=False))
    except OSError as error:
        raise SubjectsError(f"{path} cannot be read: {error.strerror}.") from None
    except ReceiptError as error:
        raise SubjectsError(str(error)) from None


def text(subjects: SubjectsFile) -> str:
    """The content of a subjects file."""
    return subjects.model_dump_json(indent=2) + "\n"


def subject(kind: Kind, name: str, digest: str) -> Subject:
    """Raises SubjectsError where the name cannot stand in a receipt."""
    try:
        return Subject(name=f"{kind}:{name}", digest=Digest(sha256=digest))
    except ValidationError as error:
        said = "; ".join(one.sentence for one in field_violations(error, ""))
        raise SubjectsError(f"{kind} {name!r} cannot be a subject: {said}.") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file.  Raises SubjectsError."""
    try:
        if not path.is_file():
            raise SubjectsError(f"{path} is no file.")
        with path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise SubjectsError(f"{path} cannot be read: {error.strerror}.") from None


def folder_digest(folder: Path) -> str:
    """One digest over all files of a folder, whatever their order on the disk.

    SHA-256 of one line per file, `<sha256>  <path>`, sorted by path: what this prints, run in the folder, too:
    `find -L . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum -- | sha256sum`.
    Links to files are read, as caches of checkpoints are made of them.
    Raises SubjectsError: no folder, no file in it, a name that is no line of UTF-8.
    """
    if not folder.is_dir():
        raise SubjectsError(f"{folder} is no folder.")
    found = []
    for place, folders, names in os.walk(folder, followlinks=False):
        linked = [name for name in folders if (Path(place) / name).is_symlink()]
        if linked:
            raise SubjectsError(f"{Path(place) / linked[0]} is a link to a folder; give the folder itself.")
        found += [(Path(place) / name).relative_to(folder) for name in names]
    if not found:
        raise SubjectsError(f"{folder} holds no file.")
    return _lines_digest((path.as_posix(), folder / path) for path in found)


def engine_digest(sources: Sources) -> str:
    """SHA-256 of the engine's name and version on a line, then a line per patched file as in `folder_digest`."""
    files = [(name, sources.engine_root / name) for name in sources.engine_files]
    if repeated := twice([name for name, _ in files]):
        raise SubjectsError(f"the engine file {repeated[0]} was given twice.")
    return _lines_digest(files, f"{sources.engine}\n".encode())


def _lines_digest(files: Iterable[tuple[str, Path]], first: bytes = b"") -> str:
    lines = []
    for name, path in files:
        try:
            encoded = name.encode("utf-8")
        except UnicodeEncodeError:
            raise SubjectsError(f"{path!r}: the name is not UTF-8.") from None
        if b"\n" in encoded or b"\\" in encoded:
            raise SubjectsError(f"{path!r}: the name holds a newline or a backslash.")
        lines.append((encoded, file_digest(path).encode() + b"  " + encoded + b"\n"))
    return sha256(first + b"".join(line for _, line in sorted(lines)))


def _sound(subjects: SubjectsFile) -> SubjectsFile:
    for what, values in (
        ("name", [one.name for one in subjects.subjects]),
        ("digest", [one.digest.sha256 for one in subjects.subjects]),
    ):
        if repeated := twice(values):
            raise SubjectsError(f"two subjects have the {what} {repeated[0]}.")
    return subjects
