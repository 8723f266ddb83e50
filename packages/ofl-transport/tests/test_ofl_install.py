"""How the library is found, and that a copied package folder is a whole installation."""

import shutil
import subprocess
import sys
from pathlib import Path

import ofl
import pytest
from ofl import abi, library, native


def isolated(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a Python that sees only one folder and no environment."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={},
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package folder with its library, copied as into a container."""
    source = Path(ofl.__file__).parent
    shutil.copytree(source, tmp_path / "ofl", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(native.library_path(), tmp_path / "ofl" / "libofl.so")
    return tmp_path


def test_a_copied_package_folder_works_without_site_packages(copied: Path) -> None:
    done = isolated(copied, "from ofl.cli import main; sys.exit(main(['probe', '--json']))")
    assert done.returncode == 0, done.stderr
    assert str(copied / "ofl" / "libofl.so") in done.stdout


def test_the_package_needs_only_the_standard_library(copied: Path) -> None:
    names = [path.stem for path in (copied / "ofl").glob("*.py") if path.stem != "__main__"]
    done = isolated(copied, "import " + ", ".join(f"ofl.{name}" for name in names))
    assert done.returncode == 0, done.stderr


def test_a_missing_library_is_one_clear_sentence(copied: Path) -> None:
    (copied / "ofl" / "libofl.so").unlink()
    done = isolated(copied, "from ofl.cli import main; sys.exit(main(['probe']))")
    assert done.returncode == 1
    assert "libofl.so is in none of" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_library_of_another_abi_or_without_a_function_is_refused() -> None:
    path = native.library_path()
    with pytest.raises(ImportError, match=f"has ABI version {native.ABI_VERSION}; this package needs 999"):
        library.load(path, "ofl_abi_version", 999)
    with pytest.raises(ImportError, match="has no ofl_of_tomorrow"):
        library.load(path, "ofl_abi_version", native.ABI_VERSION, {"ofl_of_tomorrow": (None, ())})
    with pytest.raises(ImportError, match=r"cannot be loaded: .*engram_abi_version"):
        library.load(path, "engram_abi_version", 1)


def test_the_override_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OFL_LIBRARY", str(tmp_path / "other.so"))
    assert native.library_path() == tmp_path / "other.so"
    native.loaded.cache_clear()
    try:
        with pytest.raises(ImportError, match=r"other\.so cannot be loaded"):
            native.loaded()
    finally:
        native.loaded.cache_clear()


def test_the_library_exports_its_abi_and_nothing_else() -> None:
    shown = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(native.library_path())],
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode != 0:
        pytest.skip("nm is not installed")
    names = {line.split()[-1] for line in shown.stdout.splitlines()}
    assert names - {"OFL_1"} == {f"{name}@@OFL_1" for name in (*abi.SIGNATURES, "ofl_abi_version")}
