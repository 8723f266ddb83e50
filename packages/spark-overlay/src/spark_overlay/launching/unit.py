"""The engine's systemd unit, as the package brings it, for this installation.

Owns nothing of systemd: it prints, or writes one file; enabling it is the operator's.
"""

from importlib import resources
from pathlib import Path

from ofl.files import publish

NAME = "spark-engine.service"
COMMAND = "spark-overlay"


def unit(prefix: Path) -> str:
    """The unit's text.  prefix: of the Python that it is to run with; where that has our command, the unit names it in
    full, and its folder is the first that the engine's own command is looked for in.
    """
    text = resources.files("spark_overlay.launching").joinpath(NAME).read_text(encoding="utf-8")
    command = prefix / "bin" / COMMAND
    if not command.is_file():
        return text
    path = f"Environment=PATH={command.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    return text.replace(f"/usr/bin/env {COMMAND}", str(command)).replace(
        "EnvironmentFile=", f"{path}\nEnvironmentFile=", 1
    )


def write_unit(folder: Path, prefix: Path) -> Path:
    """Write it as FOLDER/spark-engine.service, also over an older one; raises OSError."""
    path = folder / NAME
    publish(path, unit(prefix).encode())
    return path
