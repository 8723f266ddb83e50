"""The file overlay: vLLM's own file with our branch, for images that are mounted read-only and take no plugin.

Owns building it and its manifest, and judging a file that is installed or mounted.  A file is known by its sha256
alone; must never lay anything over bytes that are not pinned for the version that was named.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from ofl.files import FileTooLongError, open_plain, read_plain

import spark_overlay
from spark_overlay.delivery.branch import SWITCH, BranchError, lay_over, stock_of
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.vllm_seam.versions import SEAMS, Seam, public_version

FORMAT = 1
MANIFEST = "overlay.json"
"""Beside the tree, so that it is mounted nowhere."""
FILE_BYTES_MAX = 1 << 20
"""The stock files have 4 KB; what is far larger is not one of them."""
PACKAGES = ("site-packages", "dist-packages")
DEPTH_MAX = 4
"""Folders above `lib/python3.x` in an image, at most: `usr/local`, `opt/venv` and the like."""


class State(StrEnum):
    """What a file is."""

    OVERLAY = "overlay"
    STOCK = "stock"
    OTHER = "other"


@dataclass(frozen=True)
class Verdict:
    """version: of vLLM, that it was held against or found to be of; "" where neither.  sentence: for an operator."""

    state: State
    file: str
    version: str
    sha256: str
    sentence: str


@dataclass(frozen=True)
class Built:
    """A tree that was written.  overlay: path of the file in it.  unchanged: it was there already, byte for byte."""

    overlay: Path
    manifest: Path
    base_sha256: str
    overlay_sha256: str
    unchanged: bool


def place_of(seam: Seam) -> str:
    """Path of the file below site-packages."""
    return f"{seam.base_package.replace('.', '/')}/__init__.py"


def build(
    base: Path, version: str, output: Path, *, wheel: Path | None = None, seams: Mapping[str, Seam] = SEAMS
) -> Built:
    """Write the tree for one version to output: a folder that is new, empty or holds exactly that already.

    wheel: of spark-overlay, its digest goes into the manifest.  Raises DeliveryError; then output is as it was.
    """
    seam = _seam(version, seams)
    stock = _read(base)
    digest = _sha256(stock)
    if digest != seam.base_sha256:
        raise DeliveryError(_not_the_base(base, version, digest, seam, stock))
    try:
        overlay = lay_over(stock)
    except BranchError as error:
        raise DeliveryError(f"{base} is pinned for vLLM {version}, but {error}") from None
    manifest = {
        "format": FORMAT,
        "vllm_version": public_version(version),
        "file": place_of(seam),
        "base_sha256": digest,
        "overlay_sha256": _sha256(overlay),
        "spark_overlay": {"version": spark_overlay.__version__} | (_wheel(wheel) if wheel else {}),
    }
    files = {place_of(seam): overlay, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}
    unchanged = _write_tree(files, output)
    return Built(output / place_of(seam), output / MANIFEST, digest, _sha256(overlay), unchanged)


def check_file(path: Path, version: str = "", *, seams: Mapping[str, Seam] = SEAMS) -> Verdict:
    """What a file is.  version: of the vLLM that it serves; "": whichever it is of.

    Raises DeliveryError where the version is not supported or the file cannot be read.
    """
    wanted = {public_version(version): _seam(version, seams)} if version else dict(seams)
    data = _read(path)
    digest, stock = _sha256(data), stock_of(data)
    under = digest if stock is None else _sha256(stock)
    for known, seam in seams.items():
        if under != seam.base_sha256:
            continue
        if known not in wanted:
            what = "stock file" if stock is None else "overlay"
            sentence = f"{path} is the {what} of vLLM {known}, not of {version}"
            return Verdict(State.OTHER, str(path), known, digest, sentence)
        if stock is None:
            sentence = f"{path} is the stock file of vLLM {known}: no overlay is mounted over it"
            return Verdict(State.STOCK, str(path), known, digest, sentence)
        sentence = f"{path} is the overlay of spark-overlay {spark_overlay.__version__} for vLLM {known}"
        return Verdict(State.OVERLAY, str(path), known, digest, sentence)
    return Verdict(State.OTHER, str(path), version, digest, _unknown(path, data, digest, wanted))


def check_image(root: Path, version: str = "", *, seams: Mapping[str, Seam] = SEAMS) -> Verdict:
    """What the file below an image's root, or below a site-packages folder, is.

    version: "" takes that of the installed distribution.  Raises DeliveryError where there is not exactly one.
    """
    packages = _packages(root)
    if not version:
        found = sorted(packages.glob("vllm-*.dist-info"))
        if len(found) != 1:
            raise DeliveryError(
                f"{packages} holds {len(found)} distributions of vLLM, where one would say the version: "
                "name it with --version"
            )
        version = found[0].name.removeprefix("vllm-").removesuffix(".dist-info")
    return check_file(packages / place_of(_seam(version, seams)), version, seams=seams)


def _packages(root: Path) -> Path:
    """The folder in which vLLM is installed."""
    if not root.is_dir():
        raise DeliveryError(f"{root} is not a folder")
    if (root / "vllm").is_dir():
        return root
    found = [
        path.parent
        for depth in range(DEPTH_MAX + 1)
        for name in PACKAGES
        for path in root.glob("*/" * depth + f"lib/python3*/{name}/vllm")
        if path.is_dir()
    ]
    if len(found) != 1:
        where = ", ".join(map(str, sorted(found))) or "no lib/python3*/site-packages or dist-packages"
        raise DeliveryError(f"{root} holds vLLM {len(found)} times, where one is needed: {where}")
    return found[0]


def _seam(version: str, seams: Mapping[str, Seam]) -> Seam:
    seam = seams.get(public_version(version))
    if seam is None:
        raise DeliveryError(f"vLLM {version} is not supported; supported: {', '.join(sorted(seams))}")
    return seam


def _not_the_base(base: Path, version: str, digest: str, seam: Seam, data: bytes) -> str:
    if stock_of(data) is not None or SWITCH in data:
        repair = "it reads VLLM_DSPARK_REMOTE itself, so take the file from the image where nothing is mounted over it"
    else:
        repair = "take it from an unchanged image of that version, or name the version that the image has"
    return f"{base} is not the file of vLLM {version}: its sha256 is {digest}, pinned is {seam.base_sha256}; {repair}"


def _unknown(path: Path, data: bytes, digest: str, wanted: Mapping[str, Seam]) -> str:
    if SWITCH in data:
        return (
            f"{path} reads VLLM_DSPARK_REMOTE itself, and is not what spark-overlay {spark_overlay.__version__} "
            f"builds (sha256 {digest}): take it away, or build it again with `spark-overlay overlay build`"
        )
    pinned = ", ".join(f"{seam.base_sha256} for {known}" for known, seam in wanted.items())
    return f"{path} is neither stock nor ours: its sha256 is {digest}, pinned is {pinned}"


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, FILE_BYTES_MAX)
    except FileTooLongError:
        raise DeliveryError(
            f"{path} is larger than {FILE_BYTES_MAX} bytes, which no such file of vLLM's is"
        ) from None
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None


def _wheel(path: Path) -> dict[str, str]:
    try:
        with open_plain(path) as file:
            return {"wheel": path.name, "wheel_sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise DeliveryError(f"--wheel: {path} cannot be read: {error.strerror}") from None


def _write_tree(files: Mapping[str, bytes], output: Path) -> bool:
    """Whether it was there already.  One rename puts the whole tree in its place."""
    made = ""
    try:
        if output.is_dir() and any(output.iterdir()):
            if _holds(output, files):
                return True
            raise DeliveryError(
                f"--output: {output} holds other files: name a new folder, or take it away first"
            )
        output.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent)
        Path(made).chmod(0o755)
        for name, data in files.items():
            path = Path(made, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        os.rename(made, output)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise DeliveryError(f"--output: {output} cannot be written: {error.strerror}") from None
    return False


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether exactly these files are there.  Looks no further than the first other one: it may be anybody's folder."""
    found = set()
    for inside, folders, names in os.walk(folder):
        links = [name for name in folders if Path(inside, name).is_symlink()]
        for name in (*names, *links):
            place = Path(inside, name).relative_to(folder).as_posix()
            if place not in files or not _holds_only(folder / place, files[place]):
                return False
            found.add(place)
    return found == set(files)


def _holds_only(path: Path, data: bytes) -> bool:
    try:
        return read_plain(path, len(data)) == data
    except FileTooLongError:
        return False


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_json(verdict: Verdict) -> str:
    """One JSON object."""
    return json.dumps(asdict(verdict), indent=1)
