"""What the guest runs: a copy of the package, its tests and the library, made before boot and not changed afterwards.

The guest reads it through its view of this machine's root file system, which keeps what it has read; a copy is never
stale, whatever is edited meanwhile.  It has the repository's layout, so that reports name the tests as everywhere else.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rdma_vm.prerequisites import GUEST_PYTHON

ROOT = Path(__file__).resolve().parents[4]
PACKAGE = Path("packages", "ofl-transport")
TESTS = PACKAGE / "tests"


@dataclass(frozen=True)
class Stage:
    """A folder that `lay` filled.  The guest sees it at the same path."""

    folder: Path

    @staticmethod
    def lay(folder: Path, library: Path, site: Path) -> "Stage":
        """Copy everything into an empty folder.  site: pytest and hypothesis, installed for the guest's Python."""
        ignored = shutil.ignore_patterns("__pycache__")
        for part in (PACKAGE / "src", TESTS):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        shutil.copy(library, folder / "libofl.so")
        (folder / "site").symlink_to(site.resolve())
        # Python compiles what it imports, and ten times slower in the guest.
        command = [str(GUEST_PYTHON), "-m", "compileall", "-q", str(folder / PACKAGE / "src")]
        subprocess.run(command, check=True)
        return Stage(folder)

    def environment(self) -> dict[str, str]:
        """For a Python program, here or in the guest, that uses the copied package and the copied library."""
        return {
            "OFL_LIBRARY": str(self.folder / "libofl.so"),
            "PYTHONPATH": str(self.folder / PACKAGE / "src"),
        }

    def python(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """A shell command for the guest: its Python, in this folder, with our package, pytest and hypothesis."""
        values = self.environment() | dict(environment or {})
        values["PYTHONPATH"] = os.pathsep.join([values["PYTHONPATH"], str(self.folder / "site")])
        assignments = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        command = shlex.join([str(GUEST_PYTHON), *words])
        return f"cd {shlex.quote(str(self.folder))} && exec env {' '.join(assignments)} {command}"
