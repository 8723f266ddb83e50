"""What a stage holds: files by their place, digested, named by the digest of all digests, packed into one archive.

Owns the stage manifest (TOML), the checks of sources, the list of sums (`stage.sha256`, in sha256sum's own format) and
the archive that every host gets.  Must never follow a link to a folder or take what is no plain file.
"""

import hashlib
import io
import os
import re
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ofl.files import FileTooLongError, open_plain, read_plain

from spark_overlay.delivery.errors import DeliveryError

SUMS = "stage.sha256"
"""In a stage: a line for each of its files.  Its own digest is the stage's name."""
PLACE = re.compile(r"[A-Za-z0-9_.+@=,~][A-Za-z0-9_.+@=,~-]*")
"""One part of a place: what every shell and sha256sum takes as it is."""
DIGEST = re.compile(r"[0-9a-f]{64}")
FILES_MAX = 10_000
MANIFEST_BYTES_MAX = 1 << 20
ITEM_NAMES = {"place", "source", "sha256"}


@dataclass(frozen=True)
class Item:
    """What was asked for.  place: in the stage.  source: a file, or a folder whose files come below place.

    sha256: of a file, where it must be that and no other.
    """

    place: str
    source: Path
    sha256: str = ""


@dataclass(frozen=True)
class StagedFile:
    """One file.  executable: whether anybody may execute the source."""

    place: str
    source: Path
    sha256: str
    executable: bool
    size: int


@dataclass(frozen=True)
class Manifest:
    """A stage manifest.  to: destinations, used where the command line names none.  keep: stages to keep, 0: unsaid."""

    items: Sequence[Item]
    to: Sequence[str] = field(default_factory=tuple)
    keep: int = 0


@dataclass(frozen=True)
class Content:
    """All files of a stage, by place."""

    files: Sequence[StagedFile]

    @property
    def sums(self) -> bytes:
        """What `stage.sha256` says."""
        return "".join(f"{one.sha256}  {one.place}\n" for one in self.files).encode()

    @property
    def name(self) -> str:
        """64 hex digits: the sha256 of `sums`."""
        return hashlib.sha256(self.sums).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)

    def pack(self, into: IO[bytes]) -> None:
        """Write the archive, the sums first.  Raises DeliveryError where a source or the archive's place fails."""
        try:
            with tarfile.open(fileobj=into, mode="w", format=tarfile.GNU_FORMAT) as archive:
                archive.addfile(_entry(SUMS, len(self.sums), 0o644, 0), io.BytesIO(self.sums))
                for one in self.files:
                    with one.source.open("rb") as file:
                        found = os.fstat(file.fileno())
                        mode = 0o755 if one.executable else 0o644
                        archive.addfile(_entry(one.place, one.size, mode, int(found.st_mtime)), file)
        except (OSError, ValueError) as error:
            raise DeliveryError(f"the stage cannot be packed: {error}") from None


def read_manifest(path: Path) -> Manifest:
    """A stage manifest; sources are relative to its folder.  Raises DeliveryError naming the file and the field."""
    try:
        values = tomllib.loads(read_plain(path, MANIFEST_BYTES_MAX).decode("utf-8"))
    except FileTooLongError:
        raise DeliveryError(
            f"{path} is larger than {MANIFEST_BYTES_MAX} bytes, which no stage manifest is"
        ) from None
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DeliveryError(f"{path} is not TOML: {error}") from None
    try:
        return _manifest(values, path.parent)
    except ValueError as error:
        raise DeliveryError(f"{path}: {error}") from None


def _manifest(values: Mapping[str, Any], folder: Path) -> Manifest:
    _known(values, {"to", "keep", "item"}, "")
    to, keep, items = values.get("to", []), values.get("keep", 0), values.get("item", [])
    if not isinstance(to, list) or not all(isinstance(one, str) for one in to):
        raise ValueError("to: a list of texts is needed")
    if type(keep) is not int or ("keep" in values and keep < 1):
        raise ValueError(f"keep: a number above 0 is needed, not {keep!r}")
    if not isinstance(items, list) or not items:
        raise ValueError("item: at least one [[item]] is needed")
    return Manifest([_item(one, folder, f"item {number}") for number, one in enumerate(items, 1)], to, keep)


def _item(values: object, folder: Path, where: str) -> Item:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: a table is needed")
    _known(values, ITEM_NAMES, f"{where}: ")
    for name in ("place", "source"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise ValueError(f"{where}: {name}: a text is needed")
    digest = values.get("sha256", "")
    if digest != "" and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise ValueError(f"{where}: sha256: 64 lower-case hex digits are needed, not {digest!r}")
    return Item(values["place"], folder / values["source"], digest)


def _known(values: Mapping[str, Any], names: set[str], where: str) -> None:
    for name in values:
        if name not in names:
            raise ValueError(f"{where}{name}: no such field; there are {', '.join(sorted(names))}")


def parse_item(text: str) -> Item:
    """PLACE=SOURCE of a command line.  Raises DeliveryError."""
    place, equals, source = text.partition("=")
    if not (equals and place and source):
        raise DeliveryError(f"{text!r}: PLACE=SOURCE is needed, as in wheels/a.whl=dist/a.whl")
    return Item(place, Path(source))


def collect(items: Iterable[Item]) -> Content:
    """Find and digest all files.  Raises DeliveryError naming the item that cannot be staged."""
    found: dict[str, StagedFile] = {}
    for item in items:
        _check_place(item.place)
        for place, source in _sources(item):
            if place in found or place == SUMS:
                raise DeliveryError(f"{place}: stands for two files, {source} among them")
            found[place] = _digested(place, source)
            if len(found) > FILES_MAX:
                raise DeliveryError(f"a stage holds at most {FILES_MAX} files")
        if item.sha256:
            _check_pin(item, found)
    _check_folders(found)
    return Content([found[place] for place in sorted(found)])


def _check_place(place: str) -> None:
    for part in place.split("/"):
        if not PLACE.fullmatch(part) or part in (".", ".."):
            raise DeliveryError(
                f"{place!r}: a place in the stage is needed, letters, digits and _.+@=,~- between slashes, "
                "not beginning with a slash or a dash"
            )


def _check_pin(item: Item, found: Mapping[str, StagedFile]) -> None:
    staged = found.get(item.place)
    if staged is None:
        raise DeliveryError(f"{item.place}: a sha256 is of a file, and {item.source} is a folder")
    if staged.sha256 != item.sha256:
        raise DeliveryError(
            f"{item.source} is not what the manifest says: its sha256 is {staged.sha256}, not {item.sha256}"
        )


def _check_folders(found: Mapping[str, StagedFile]) -> None:
    """No place may be a file and a folder."""
    for place in found:
        parts = place.split("/")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in found:
                raise DeliveryError(f"{place}: lies below a file of the stage")


def _sources(item: Item) -> Iterator[tuple[str, Path]]:
    """Place and source of each file of an item."""
    if not _is_folder(item.source):
        yield item.place, item.source
        return
    empty = True
    for folder, folders, names in os.walk(item.source, onerror=_unreadable):
        for name in folders:
            if Path(folder, name).is_symlink():
                raise DeliveryError(f"{Path(folder, name)} is a link to a folder: name the folder itself")
        for name in names:
            path = Path(folder, name)
            place = f"{item.place}/{path.relative_to(item.source).as_posix()}"
            _check_place(place)
            empty = False
            yield place, path
    if empty:
        raise DeliveryError(f"{item.source} is a folder without a file")


def _is_folder(source: Path) -> bool:
    try:
        return source.is_dir()
    except OSError as error:  # a name that is too long
        raise DeliveryError(f"{source} cannot be read: {error.strerror}") from None


def _unreadable(error: OSError) -> None:
    raise DeliveryError(f"{error.filename} cannot be read: {error.strerror}")


def _digested(place: str, source: Path) -> StagedFile:
    try:
        if source.exists() and not source.is_file():
            raise DeliveryError(f"{source} is no plain file")
        with open_plain(source) as file:
            found = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DeliveryError(f"{source} cannot be read: {error.strerror}") from None
    return StagedFile(place, source, digest, bool(found.st_mode & 0o111), found.st_size)


def _entry(name: str, size: int, mode: int, mtime: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, mode, mtime
    return entry
