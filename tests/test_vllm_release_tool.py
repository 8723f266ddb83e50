"""`tools/vllm_release.py` unpacks a release whole or not at all, never its machine code, and keeps no wheel."""

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "vllm_release.py"
METADATA = "Metadata-Version: 2.4\nName: vllm\nVersion: 0.33.0\nSummary: of Version: 0.33.0\n"
FILES = {
    "vllm/__init__.py": b"",
    "vllm/config/model.py": b"model = 1\n",
    "vllm/v1/worker/gpu/states.py": b"states = 1\n",
    "vllm/_C.abi3.so": b"\x7fELF of another device",
    "vllm/server": b"\x7fELF without a suffix",
    "vllm/chat.jinja": b"{{ text }}",
    "vllm-0.33.0.dist-info/METADATA": METADATA.encode(),
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("vllm_release", TOOL)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def download(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Puts a small wheel in pip's place; says how often it was asked for."""
    asked = []

    def downloaded(requirement: Path, into: Path) -> Path:
        asked.append(requirement)
        return wheel(into)

    monkeypatch.setattr(tool, "_download", downloaded)
    return lambda: len(asked)


def wheel(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "vllm-0.33.0-cp38-abi3-linux.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}


def requirement(folder: Path, text: str = "vllm==0.33.0") -> Path:
    path = folder / "0.33.0.txt"
    path.write_text(text)
    return path


def test_everything_but_machine_code_is_unpacked_whatever_its_name(tool: ModuleType, tmp_path: Path) -> None:
    tool.unpack(wheel(tmp_path / "wheel"), tmp_path / "tree")
    assert names(tmp_path / "tree") == set(FILES) - {"vllm/_C.abi3.so", "vllm/server"}


def test_a_tree_is_made_once_and_again_when_what_it_is_made_from_changes(
    tool: ModuleType, download: Callable[[], int], tmp_path: Path
) -> None:
    tree = tmp_path / "releases" / "0.33.0"
    assert tool.fetch(requirement(tmp_path), tree)
    (tree / "vllm/left.py").touch()
    assert not tool.fetch(requirement(tmp_path), tree)
    assert download() == 1
    assert tool.fetch(requirement(tmp_path, "vllm==0.33.0 --hash=sha256:00"), tree)
    assert download() == 2
    assert not (tree / "vllm/left.py").exists()
    assert [path.name for path in tree.parent.iterdir()] == ["0.33.0"], "neither wheel nor part is left"


def test_a_tree_that_cannot_be_made_leaves_the_one_before_it(
    tool: ModuleType, download: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = tmp_path / "releases" / "0.33.0"
    tool.fetch(requirement(tmp_path), tree)
    before = names(tree)

    def broken(requirement: Path, into: Path) -> Path:
        into.mkdir()
        (into / "vllm.whl").write_bytes(b"cut off")
        return into / "vllm.whl"

    monkeypatch.setattr(tool, "_download", broken)
    with pytest.raises(zipfile.BadZipFile):
        tool.fetch(requirement(tmp_path, "vllm==0.33.0 --hash=sha256:00"), tree)
    assert names(tree) == before
    assert [path.name for path in tree.parent.iterdir()] == ["0.33.0"]


def test_a_tree_laid_over_a_cpu_builds_libraries_links_them_and_says_that_it_is_one(
    tool: ModuleType, tmp_path: Path
) -> None:
    tree, libraries = tmp_path / "tree", tmp_path / "site" / "vllm"
    tool.unpack(wheel(tmp_path / "wheel"), tree)
    (libraries / "third_party").mkdir(parents=True)
    for name in ("_C.abi3.so", "third_party/fast.so", "__init__.py"):
        (libraries / name).write_text(f"of the CPU build: {name}")
    for _ in range(2):  # the second time changes nothing
        tool.lay_over(tree, libraries)
        assert (tree / "vllm/_C.abi3.so").resolve() == (libraries / "_C.abi3.so").resolve()
        assert (tree / "vllm/third_party/fast.so").resolve() == (libraries / "third_party/fast.so").resolve()
        assert (tree / "vllm/__init__.py").read_bytes() == FILES["vllm/__init__.py"]
        metadata = (tree / "vllm-0.33.0+cpu.dist-info/METADATA").read_text()
        assert metadata == METADATA.replace("\nVersion: 0.33.0\n", "\nVersion: 0.33.0+cpu\n")
        assert not (tree / "vllm-0.33.0.dist-info").exists()


def test_a_folder_without_libraries_and_a_tree_without_metadata_are_refused(
    tool: ModuleType, tmp_path: Path
) -> None:
    tree, libraries = tmp_path / "tree", tmp_path / "site" / "vllm"
    tool.unpack(wheel(tmp_path / "wheel"), tree)
    (tree / "vllm-0.33.0.dist-info").rename(tmp_path / "elsewhere")
    libraries.mkdir(parents=True)
    with pytest.raises(ValueError, match="holds no libraries"):
        tool.lay_over(tree, libraries)
    (libraries / "_C.abi3.so").touch()
    with pytest.raises(ValueError, match="holds 0 distributions"):
        tool.lay_over(tree, libraries)
