"""The architecture's boundaries, read off the sources: who may import what.  Runs with no torch, vLLM or GPU."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "ofl": ROOT / "packages/ofl-transport/src/ofl",
    "spark_overlay": ROOT / "packages/spark-overlay/src/spark_overlay",
    "x86_worker": ROOT / "packages/x86-worker/src/x86_worker",
    "engram_remote": ROOT / "packages/engram-remote/src/engram_remote",
    "qualification": ROOT / "qualification/src/qualification",
}
HEAVY = {"torch", "vllm", "triton", "safetensors", "transformers"}
WIRE = {
    "socket",
    "selectors",
    "asyncio",
    "ssl",
    "ctypes",
    "threading",
    "multiprocessing",
    "subprocess",
    "time",
}
PURE = {  # folder or file -> what it may import beside the standard library and itself
    "ofl/contract": {"ofl"},
    "ofl/endpoint.py": {"ofl"},
    "qualification/checks": {"ofl", "qualification"},
    "spark_overlay/round": {"ofl", "spark_overlay", "numpy"},
    "x86_worker/session": {"ofl", "x86_worker"},
}
STANDARD_LIBRARY_ONLY = {
    "ofl": {"ofl"},
    "spark_overlay/probe.py": {"ofl", "spark_overlay"},
    "qualification/runs/watcher.py": set[str](),
    **{
        f"qualification/arms/{name}.py": {"ofl", "qualification"}
        for name in (
            "config",
            "fault_plan",
            "harness",
            "prompts",
            "protocol",
            "serve",
            "table_faults",
            "table_ids",
            "table_server",
        )
    },
}
"""The watcher runs isolated; what all arms share is run by each engine's own Python."""
ENGINES = {
    "qualification/arms/simulated.py": {"spark_overlay", "x86_worker"},
    "qualification/arms/simulated_hooks.py": {"spark_overlay"},
    "qualification/arms/tables.py": {"engram_remote"},
    "qualification/arms/vllm_engine.py": {"vllm", "tokenizers"},
}
"""Files of the harness that only an engine's Python runs, and what each imports that no other of its files may."""


def files(place: str) -> list[Path]:
    """Python files of a folder or file given as package/..., at least one."""
    package, _, rest = place.partition("/")
    path = SOURCES[package] / rest if rest else SOURCES[package]
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, f"{place} holds no Python file: the rule would match nothing"
    return found


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file; relative imports are forbidden by the linter."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("place", PURE)
def test_pure_parts_import_no_torch_vllm_sockets_clocks_or_threads(place: str) -> None:
    for path in files(place):
        foreign = tops(path) - PURE[place] - sys.stdlib_module_names
        assert not foreign, f"{path} imports {foreign}"
        assert not tops(path) & (WIRE | HEAVY), f"{path} imports {tops(path) & (WIRE | HEAVY)}"


@pytest.mark.parametrize("place", STANDARD_LIBRARY_ONLY)
def test_the_wire_and_the_probe_need_only_the_standard_library(place: str) -> None:
    for path in files(place):
        foreign = tops(path) - STANDARD_LIBRARY_ONLY[place] - sys.stdlib_module_names
        assert not foreign, f"{path} imports {foreign}"


def test_what_the_probe_imports_of_the_overlay_needs_only_the_standard_library_too() -> None:
    seen: set[Path] = set()
    todo = files("spark_overlay/probe.py")
    while todo:
        path = todo.pop()
        seen.add(path)
        assert not tops(path) - {"ofl", "spark_overlay"} - sys.stdlib_module_names, path
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "spark_overlay":
                base = SOURCES["spark_overlay"].joinpath(*parts[1:])
                candidates = [base.with_suffix(".py"), base / "__init__.py"]
                todo += [found for found in candidates if found.is_file() and found not in seen]


def test_only_the_seam_and_the_arm_that_runs_it_import_vllm() -> None:
    seams = [SOURCES[package] / "vllm_seam" for package in ("spark_overlay", "engram_remote")]
    (arm,) = files("qualification/arms/vllm_engine.py")
    namers = {path for package in SOURCES for path in files(package) if "vllm" in tops(path)}
    assert arm in namers
    for seam in seams:
        assert any(path.is_relative_to(seam) for path in namers), "the rule would match nothing"
    foreign = {path for path in namers if not any(path.is_relative_to(seam) for seam in seams)}
    assert foreign == {arm}


def test_the_packages_do_not_import_each_other() -> None:
    allowed = {files(place)[0]: names for place, names in ENGINES.items()}
    for package in SOURCES:
        others = set(SOURCES) - {package, "ofl"}
        for path in files(package):
            foreign = tops(path) & others - allowed.get(path, set())
            assert not foreign, f"{path} imports {foreign}"


def test_what_engines_bring_stays_in_the_files_that_their_python_runs() -> None:
    brought = set().union(*ENGINES.values())
    for place, names in ENGINES.items():
        (path,) = files(place)
        assert tops(path) & brought == names, place
    named = {files(place)[0] for place in ENGINES}
    for path in set(files("qualification")) - named:
        assert not tops(path) & brought, f"{path} imports {tops(path) & brought}"


def test_the_runner_never_imports_an_arms_engine() -> None:
    engines = {
        f"qualification.{place.removeprefix('qualification/').removesuffix('.py').replace('/', '.')}"
        for place in ENGINES
    }
    reached: set[str] = set()
    todo = list(files("qualification/runs"))
    while todo:
        for name in imported(todo.pop()):
            path = SOURCES["qualification"].parent.joinpath(*name.split(".")).with_suffix(".py")
            if name not in reached and path.is_file():
                reached.add(name)
                todo.append(path)
    assert "qualification.arms.client" in reached, "the rule would match nothing"
    assert not reached & engines


def test_no_package_declares_vllm_and_torch_stands_only_in_extras() -> None:
    import tomllib

    for package, source in SOURCES.items():
        project = tomllib.loads((source.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        declared = [*project["dependencies"], *(word for words in extras.values() for word in words)]
        assert not [word for word in declared if word.startswith("vllm")], package
        assert not [word for word in project["dependencies"] if word.startswith("torch")], package
        assert all(">=" in word and "<" not in word for word in declared if word.startswith("torch")), package
