"""The packages of this repository that carry a native library: where each keeps what, and how it names it.

Owns those conventions.  Standard library only; runs nothing.
"""

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class NativePackage:
    """folder: relative to the repository.  name: of the library, and what all that it exports begins with.  module: the
    Python package.
    """

    folder: Path
    name: str
    module: str

    @property
    def root(self) -> Path:
        return REPOSITORY / self.folder

    @property
    def tests(self) -> Path:
        """Relative to the repository."""
        return self.folder / "tests"

    @property
    def library(self) -> str:
        return f"lib{self.name}.so"

    @property
    def prefix(self) -> str:
        """Of CMake's switches, of the header's macros and of the linker's version nodes."""
        return self.name.upper()

    @property
    def variable(self) -> str:
        """Of the environment: the path of a library that is used instead of the package's own."""
        return f"{self.prefix}_LIBRARY"

    @property
    def header(self) -> Path:
        return self.root / "cpp" / "include" / f"{self.name}.h"

    @property
    def version_script(self) -> Path:
        return self.root / "cpp" / f"{self.name}.map"

    @property
    def wheel(self) -> str:
        """What the file names of its wheels begin with."""
        return self.folder.name.replace("-", "_") + "-"


OFL = NativePackage(Path("packages", "ofl-transport"), "ofl", "ofl")
ENGRAM = NativePackage(Path("packages", "engram-remote"), "engram", "engram_remote")
PACKAGES = (OFL, ENGRAM)
"""Each after those whose library it opens."""
