"""What the guest runs: a copy of the packages, their tests and libraries, made before boot and not changed afterwards.

The guest reads it through its view of this machine's root file system, which keeps what it has read; a copy is never
stale, whatever is edited meanwhile.  It has the repository's layout, so that reports name the tests as everywhere else.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from native_packages import OFL, PACKAGES
from native_packages import REPOSITORY as ROOT

from rdma_vm.prerequisites import GUEST_PYTHON

TESTS = OFL.tests


@dataclass(frozen=True)
class Stage:
    """A folder that `lay` filled.  The guest sees it at the same path."""

    folder: Path

    @staticmethod
    def lay(folder: Path, libraries: Sequence[Path], site: Path) -> "Stage":
        """Copy everything into an empty folder.

        libraries: of our packages, by the names that they are built under.  site: pytest, hypothesis and what our
        packages need, installed for the guest's Python.
        """
        ignored = shutil.ignore_patterns("__pycache__")
        for part in (part for package in PACKAGES for part in (package.folder / "src", package.tests)):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        for file in (ROOT / "pyproject.toml", *libraries):
            shutil.copy(file, folder)
        (folder / "site").symlink_to(site.resolve())
        # Python compiles what it imports, and ten times slower in the guest.
        sources = [str(folder / package.folder / "src") for package in PACKAGES]
        subprocess.run([str(GUEST_PYTHON), "-m", "compileall", "-q", *sources], check=True)
        return Stage(folder)

    def environment(self) -> dict[str, str]:
        """For a Python program, here or in the guest, that uses the copied packages and the copied libraries."""
        files = {package.variable: self.folder / package.library for package in PACKAGES}
        sources = [str(self.folder / package.folder / "src") for package in PACKAGES]
        found = {variable: str(file) for variable, file in files.items() if file.is_file()}
        return {**found, "PYTHONPATH": os.pathsep.join(sources)}

    def python(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """A shell command for the guest: its Python, in this folder, with our packages, pytest and hypothesis."""
        values = self.environment() | dict(environment or {})
        values["PYTHONPATH"] = os.pathsep.join([values["PYTHONPATH"], str(self.folder / "site")])
        assignments = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        command = shlex.join([str(GUEST_PYTHON), *words])
        return f"cd {shlex.quote(str(self.folder))} && exec env {' '.join(assignments)} {command}"
