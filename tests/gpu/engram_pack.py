"""What `engram_on_gpu.py` needs on a machine without network, in one folder: some MiB.

    python3 tests/gpu/engram_pack.py FOLDER --releases RELEASES [--version 0.33.0 ...] [--ofl LIB] [--engram LIB]

RELEASES holds unpacked vLLM releases by version, as `nox -s contracts` leaves them in .nox/vllm: of each, stock's
files with the lookup kernel are copied and nothing else.  Libraries are built here with cmake unless given.  The wheels
are those of what our packages need, for the Python given by --python (3.12).
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOCK = ("vllm/models/deepseek_v41/common/engram.py", "vllm/models/deepseek_v41/nvidia/engram.py")
NEEDED = ("pydantic>=2.12", "click>=8.1", "rich>=13", "prometheus-client>=0.18")
"""Of what our packages need; numpy comes with torch."""
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28)), "manylinux2014_x86_64")


def stock(releases: Path, versions: list[str], into: Path) -> None:
    """Stock's files of each release.  Raises FileNotFoundError."""
    for version in versions:
        for name in STOCK:
            if name == STOCK[0] or (releases / version / name).is_file():
                target = into / version / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(releases / version / name, target)


def library(name: str, given: Path | None, into: Path) -> None:
    """lib{name}.so, as given or built from its package."""
    package = ROOT / "packages" / {"ofl": "ofl-transport", "engram": "engram-remote"}[name]
    if given is None:
        build = into.parent / f"build-{name}"
        subprocess.run(["cmake", "-S", package, "-B", build], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", build, "--target", name], check=True, stdout=subprocess.DEVNULL)
        given = build / f"lib{name}.so"
    into.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(given, into / f"lib{name}.so")
    shutil.rmtree(into.parent / f"build-{name}", ignore_errors=True)


def wheels(python: str, into: Path) -> None:
    """What our packages import, unpacked for that Python."""
    platforms = [argument for name in PLATFORMS for argument in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(into), "--upgrade"]
    command += ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp", *platforms]
    subprocess.run([*command, *NEEDED], check=True)


def main() -> None:
    """The command line of the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--releases", type=Path, default=ROOT / ".nox" / "vllm")
    parser.add_argument("--version", action="append", dest="versions")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--ofl", type=Path)
    parser.add_argument("--engram", type=Path)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    stock(options.releases, options.versions or ["0.33.0"], options.folder / "releases")
    library("ofl", options.ofl, options.folder / "lib")
    library("engram", options.engram, options.folder / "lib")
    wheels(options.python, options.folder / "site")
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    print(f"{options.folder}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
