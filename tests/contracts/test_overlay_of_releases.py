"""The file overlay of every supported vLLM release, from the release's own file: what it is, and that unset it is not.

Nothing of vLLM is imported: its files are read, and executed with stand-ins for what they import.
"""

import ast
import builtins
import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from release import ROOT, RUNNER, SPEC_DECODE, Release
from sources import Sources
from spark_overlay.delivery.branch import lay_over, stock_of
from spark_overlay.delivery.overlay_file import State, build, check_file, check_image
from spark_overlay.vllm_seam.versions import SEAMS

FOLDER = Path(os.environ["VLLM_RELEASES"]).resolve()
PAGE = ROOT / "docs/operations/delivery.md"
SWITCH = "VLLM_DSPARK_REMOTE"
OVERLAY_SHA256 = {
    "0.26.0": "89e4cfb1237884d1b5ce3433ad1d0960499e02a1ebd97b73a368b56f7244875e",
    "0.30.0": "8dc3fe7eb51ff3ea6abcf535d5f743b3a1cd1652a5540c7d7f0f46daf83c5113",
    "0.32.0": "baa0aee26dc865209233e27230c78218c50ea22f1d31b4f1f8d95affeb695cec",
    "0.33.0": "8461d7d66f200f72005640eb369eac10056cdc4136a78e7d27470f72393eec80",
}
ADDED = """+
+
+if __import__("os").environ.get("VLLM_DSPARK_REMOTE"):
+    # spark-overlay: all above is vLLM's own; unset or empty, this branch is not taken and nothing else is here.
+    from spark_overlay.vllm_seam.plugin import register
+
+    register()
"""
WRAPPER = "vllm.v1.worker.worker_base"
"""What binding imports of vLLM, beside the package itself."""


def stock_file(version: str) -> Path:
    """The release's own."""
    return Release(version, FOLDER / version).sources.module(SPEC_DECODE).path


def executed(data: bytes, monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> dict[str, Any]:
    """The module's names after its execution, its imports stood in for and noted."""

    def bring(name: str, *rest: Any) -> Any:
        if name == "os":
            return os
        ran.append(name)
        module = ModuleType(name)
        module.__getattr__ = lambda attribute: lambda: ran.append(f"{name}.{attribute}()")  # type: ignore[method-assign]
        return module

    names: dict[str, Any] = {"__name__": SPEC_DECODE, "__builtins__": vars(builtins) | {"__import__": bring}}
    exec(compile(data, "spec_decode/__init__.py", "exec"), names)
    return names


def codes(code: CodeType) -> Iterator[tuple[str, bytes, tuple[Any, ...]]]:
    """Of functions, what they do, where nothing tells where they stand."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    yield code.co_qualname, code.co_code, tuple(one for one in code.co_consts if one not in inner)
    for one in inner:
        yield from codes(one)


@pytest.mark.parametrize("version", SEAMS)
def test_the_overlay_is_the_release_and_the_branch_that_is_pinned(version: str, tmp_path: Path) -> None:
    base = stock_file(version)
    built = build(base, version, tmp_path / "tree")
    stock, overlay = base.read_text(encoding="utf-8"), built.overlay.read_text(encoding="utf-8")
    lines = difflib.unified_diff(stock.splitlines(), overlay.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    assert "".join(f"{line}\n" for line in changed) == ADDED
    assert built.base_sha256 == SEAMS[version].base_sha256
    assert built.overlay_sha256 == OVERLAY_SHA256[version]
    assert built.overlay.relative_to(tmp_path / "tree") == base.relative_to(FOLDER / version)
    assert f"| {version} | `{built.base_sha256}` | `{built.overlay_sha256}` |" in PAGE.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("version", SEAMS)
@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_unset_the_overlay_is_stock_by_name_and_by_code(
    version: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    stock = stock_file(version).read_bytes()
    ran: dict[str, list[str]] = {"stock": [], "laid": []}
    names = executed(stock, monkeypatch, ran["stock"])
    laid = executed(lay_over(stock), monkeypatch, ran["laid"])
    assert ran["laid"] == ran["stock"]
    assert not [name for name in ran["laid"] if name.startswith("spark_overlay")]
    assert set(laid) == set(names)
    theirs, ours = names["init_speculator"].__code__, laid["init_speculator"].__code__
    assert list(codes(ours)) == list(codes(theirs))
    assert ours.co_firstlineno == theirs.co_firstlineno
    body = ast.parse(lay_over(stock)).body
    assert [ast.dump(one) for one in body[:-1]] == [ast.dump(one) for one in ast.parse(stock).body]
    assert isinstance(body[-1], ast.If)


@pytest.mark.parametrize("version", SEAMS)
def test_set_the_overlay_runs_the_plugin_last(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "tcp://127.0.0.1:9")
    ran: list[str] = []
    executed(lay_over(stock_file(version).read_bytes()), monkeypatch, ran)
    plugin = "spark_overlay.vllm_seam.plugin"
    assert ran[-2:] == [plugin, f"{plugin}.register()"]


@pytest.mark.parametrize("version", SEAMS)
def test_installed_files_are_told_apart(version: str, tmp_path: Path) -> None:
    base = stock_file(version)
    assert check_image(FOLDER / version).state == State.STOCK
    built = build(base, version, tmp_path / "tree")
    verdict = check_file(built.overlay)
    assert (verdict.state, verdict.version) == (State.OVERLAY, version)
    assert {check_file(built.overlay, other).state for other in set(SEAMS) - {version}} == {State.OTHER}
    assert stock_of(built.overlay.read_bytes()) == base.read_bytes()


@pytest.mark.parametrize("version", SEAMS)
def test_what_the_branch_imports_never_leads_back_to_the_file(version: str) -> None:
    """It runs while the file is being imported, so nobody on the way to the file may be wanted again, half imported."""
    sources = Release(version, FOLDER / version).sources
    reached = closure(sources, WRAPPER)
    assert len(reached) > 100, "the search still follows imports"
    assert not [name for name in reached if f"{name}.".startswith("vllm.v1.worker.gpu.")]
    runner = sources.module(RUNNER)
    assert SPEC_DECODE in set(imported(runner.tree.body, RUNNER.rpartition(".")[0])), (
        "the search would find it"
    )


def closure(sources: Sources, start: str) -> set[str]:
    """vLLM's modules that importing one imports, by statements that run when a module is imported."""
    seen, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        module = sources.find(name)
        if module is None or name in seen:
            continue
        seen.add(name)
        package = name if module.path.name == "__init__.py" else name.rpartition(".")[0]
        todo += [name.rpartition(".")[0], *imported(module.tree.body, package)]
    return seen


def imported(body: list[ast.stmt], package: str) -> Iterator[str]:
    """Names that may be modules.  package: what relative imports start from."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parts, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield from imported(node.orelse, package)
                continue
            for field in ("body", "orelse", "finalbody"):
                yield from imported(getattr(node, field, []), package)
            for handler in getattr(node, "handlers", []):
                yield from imported(handler.body, package)
