"""A vLLM that is not laid out as the seam knows it is refused in a sentence before anything of it is bound."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from spark_overlay.vllm_seam import install as module
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.signature import check_propose
from spark_overlay.vllm_seam.versions import SEAMS

PACKAGE = "an_engine.gpu.spec_decode"
Write = Callable[[dict[str, str]], None]
SEAM = replace(SEAMS["0.32.0"], base_package=PACKAGE)
SETTINGS = {
    "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
    "VLLM_DSPARK_REMOTE_IDENTITY": "0" * 64,
    "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": "0" * 64,
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes files of an engine's package, text by path; vLLM is of a version whose seam binds PACKAGE."""
    vllm = ModuleType("vllm")
    vllm.__version__ = "0.32.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(module, "seam_for", lambda version: SEAM)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "an_engine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "an_engine"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"other.py": ""}, id="no parent"),
        pytest.param({"gpu.py": ""}, id="a parent that is a file"),
        pytest.param({"gpu/other.py": ""}, id="no package"),
        pytest.param({"gpu/spec_decode/other.py": ""}, id="a folder without a file of its own"),
    ],
)
def test_a_vllm_without_the_package_is_refused_in_a_sentence(tree: Write, files: dict[str, str]) -> None:
    tree(files)
    with pytest.raises(SeamError, match=rf"^spark-overlay: this vLLM has no package {PACKAGE}$"):
        module.install(SETTINGS)


def test_the_package_that_is_there_is_the_one_whose_digest_is_compared(tree: Write) -> None:
    tree({"gpu/spec_decode/__init__.py": "changed = True\n"})
    with pytest.raises(SeamError, match=r"spec_decode/__init__\.py is not the file of vLLM 0\.32\.0"):
        module.install(SETTINGS)


def test_an_import_in_vain_of_the_engines_own_keeps_its_words(tree: Write) -> None:
    tree({"gpu/__init__.py": "import not_installed_here\n", "gpu/spec_decode/__init__.py": ""})
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        module.install(SETTINGS)


class Stated:
    """A class of vLLM's as a version's module states it."""

    def propose(self, input_batch: object, taps: object = None) -> None: ...


class Renamed:
    """The same in another release."""

    def propose(self, input_batch: object, hidden: object = None) -> None: ...


class Swapped:
    """And with its parameters in another order, some of which runners pass by position."""

    def propose(self, taps: object, input_batch: object = None) -> None: ...


def test_a_vllm_that_calls_speculators_as_stated_passes() -> None:
    check_propose("0.32.0", ("input_batch", "taps"), Stated, Stated)


@pytest.mark.parametrize("other", [Renamed, Swapped])
@pytest.mark.parametrize("place", [0, 1])
def test_a_vllm_that_calls_any_of_its_speculators_otherwise_is_refused_by_the_class(
    other: type, place: int
) -> None:
    owners: list[type] = [Stated, Stated]
    owners[place] = other
    with pytest.raises(SeamError) as refused:
        check_propose("0.32.0", ("input_batch", "taps"), *owners)
    said = str(refused.value)
    assert f"{other.__name__}.propose of this vLLM takes " in said
    assert said.endswith(": not vLLM 0.32.0's signature")
