"""What a native library of ours must be, whatever machine it is for, and what a wheel that carries it must say.

    python tools/native_library.py [--machine x86_64] WHEEL...

Reads files with binutils' readelf, which knows every architecture; loads and runs nothing.  Exit status 0 only if
every wheel keeps the rules.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from native_packages import PACKAGES, NativePackage

ELF_MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
"""What readelf calls them."""
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux[\w-]*)\.so\.\d+")
"""All that the library may ask the dynamic linker for.  libstdc++ and libgcc are linked in, because it runs beside
other C++ code in images with any version of them; what a host may lack (libibverbs) is opened at run time."""
GLIBC_NEWEST = (2, 35)
"""The library runs with this glibc and newer ones; Ubuntu 22.04, under many CUDA and vLLM images, has 2.35."""


@dataclass(frozen=True)
class Library:
    """What the dynamic linker will see of a shared library."""

    machine: str
    needed: tuple[str, ...]
    exports: Mapping[str, str]  # symbol -> its version node, "" where it has none
    glibc: Mapping[tuple[int, ...], tuple[str, ...]]  # GLIBC_ version -> the symbols that need it


def readelf(path: Path, *options: str) -> str:
    words = ["readelf", "--wide", *options, str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def library(path: Path) -> Library:
    """Read a library.  Raises subprocess.CalledProcessError where it is no ELF file."""
    machine = re.search(r"^\s*Machine:\s*(.+?)\s*$", readelf(path, "--file-header"), re.MULTILINE)
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", readelf(path, "--dynamic"))
    exports: dict[str, str] = {}
    glibc: dict[tuple[int, ...], list[str]] = {}
    for line in readelf(path, "--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[4] == "LOCAL":
            continue
        section, (name, _, version) = fields[6], fields[7].partition("@")
        if section == "UND":
            if numbers := re.fullmatch(r"GLIBC_([\d.]+)", version.lstrip("@")):
                key = tuple(int(part) for part in numbers[1].split("."))
                glibc.setdefault(key, []).append(name)
        elif section != "ABS":  # the version nodes themselves are absolute symbols
            exports[name] = version.lstrip("@")
    return Library(
        machine=machine[1] if machine else "",
        needed=tuple(needed),
        exports=exports,
        glibc={key: tuple(names) for key, names in glibc.items()},
    )


def version_nodes(package: NativePackage) -> set[str]:
    """The version nodes of the linker's map."""
    return set(re.findall(r"^(\w+)\s*\{", package.version_script.read_text(), re.MULTILINE))


def declared(package: NativePackage) -> set[str]:
    """The functions that the public header exports."""
    pattern = rf"^{package.prefix}_EXPORT\b[^;(]*?\b({package.name}_\w+)\("
    return set(re.findall(pattern, package.header.read_text(), re.MULTILINE))


def faults(package: NativePackage, found: Library, machine: str) -> list[str]:
    """Which rules a package's library for a machine ("x86_64", "aarch64") breaks, as sentences."""
    broken = []
    if found.machine != ELF_MACHINES[machine]:
        broken.append(f"it is for {found.machine or 'no machine'}, not {ELF_MACHINES[machine]}")
    broken += [
        f"it needs {name}, which must be linked in or opened at run time"
        for name in found.needed
        if not GLIBC.fullmatch(name)
    ]
    wanted, header, script = declared(package), package.header.name, package.version_script.name
    broken += [f"it does not export {name}" for name in sorted(wanted - set(found.exports))]
    broken += [f"it exports {name}, which {header} does not" for name in sorted(set(found.exports) - wanted)]
    nodes = version_nodes(package)
    broken += [
        f"{name} has version {version or 'none'}, which {script} does not know"
        for name, version in sorted(found.exports.items())
        if version not in nodes
    ]
    broken += [
        f"it needs glibc {'.'.join(map(str, key))} for {', '.join(names)}; "
        f"{'.'.join(map(str, GLIBC_NEWEST))} must do"
        for key, names in sorted(found.glibc.items())
        if key > GLIBC_NEWEST
    ]
    return broken


def newest_glibc(found: Library) -> str:
    """The highest GLIBC_ version that a library asks for, and what for."""
    if not found.glibc:
        return "none"
    newest = max(found.glibc)
    return f"GLIBC_{'.'.join(map(str, newest))} ({', '.join(sorted(found.glibc[newest]))})"


def wheel_faults(package: NativePackage, wheel: Path, machine: str) -> list[str]:
    """The same for a package's wheel: its name, what its WHEEL file says, and the one library in it."""
    expected = f"{package.module}/{package.library}"
    tag = f"py3-none-linux_{machine}"
    broken = []
    if not wheel.name.endswith(f"-{tag}.whl"):
        broken.append(f"its name does not end with {tag}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        metadata = [name for name in names if name.endswith(".dist-info/WHEEL")]
        tags = [
            line.partition(": ")[2]
            for name in metadata
            for line in archive.read(name).decode().splitlines()
            if line.startswith("Tag: ")
        ]
        if tags != [tag]:
            broken.append(f"its WHEEL file says {tags or 'no tag'}")
        libraries = [name for name in names if re.search(r"\.so(\.|$)", name)]
        if libraries != [expected]:
            broken.append(f"the libraries in it are {libraries or 'none'}, not {expected} alone")
        else:
            broken += faults(package, library(Path(archive.extract(expected, folder))), machine)
    return broken


def package_of(wheel: Path) -> NativePackage:
    """Whose wheel this is, by its name.  Raises ValueError for one that carries no library."""
    for package in PACKAGES:
        if wheel.name.startswith(package.wheel):
            return package
    raise ValueError(f"{wheel.name} is of no package with a native library")


def main() -> int:
    """Judge wheels; one line for each, and one for each rule that it breaks."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    options.add_argument("--machine", choices=sorted(ELF_MACHINES), required=True)
    options.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    chosen = options.parse_args()
    sound = True
    for wheel in chosen.wheels:
        broken = wheel_faults(package_of(wheel), wheel, chosen.machine)
        sound = sound and not broken
        print(f"{wheel.name}: {'broken' if broken else 'sound'}")
        for fault in broken:
            print(f"  {fault}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
