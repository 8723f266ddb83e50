"""The entry point: inert without the switch, fatal with a switch that cannot be followed."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import spark_overlay
from spark_overlay.refusal import read_refusal
from spark_overlay.settings import SettingsError
from spark_overlay.vllm_seam import plugin

PACKAGE = Path(spark_overlay.__file__).parent
SWITCH = "VLLM_DSPARK_REMOTE"


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A vllm.plugins whose plugins are taken as loaded, as vLLM sets it before it calls them."""
    package, plugins = ModuleType("vllm"), ModuleType("vllm.plugins")
    package.__version__ = "0.99.1"  # type: ignore[attr-defined]
    package.plugins = plugins  # type: ignore[attr-defined]
    plugins.plugins_loaded = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.plugins", plugins)
    return plugins


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_switch_register_imports_nothing_at_all(value: str | None) -> None:
    environ = {"PYTHONPATH": ":".join(sys.path)} | ({} if value is None else {SWITCH: value})
    code = (
        "import sys; from spark_overlay.vllm_seam.plugin import register; "
        "before = set(sys.modules); register(); print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_entry_points_modules_import_only_the_standard_library_at_their_top() -> None:
    for path in (PACKAGE / "__init__.py", PACKAGE / "vllm_seam/__init__.py", PACKAGE / "vllm_seam/plugin.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names, path
            if isinstance(node, ast.ImportFrom):
                assert str(node.module).split(".")[0] in sys.stdlib_module_names, path


def test_a_bad_setting_ends_the_engine_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: ModuleType
) -> None:
    monkeypatch.setenv(SWITCH, "tcp://127.0.0.1:9")
    monkeypatch.setenv(f"{SWITCH}_TIMEOUT_MS", "-1")
    monkeypatch.setenv(f"{SWITCH}_IDENTITY", "0" * 64)
    monkeypatch.setenv(f"{SWITCH}_MARKOV_IDENTITY", "0" * 64)
    with pytest.raises(SettingsError, match=f"{SWITCH}_TIMEOUT_MS: .*above 0"):
        plugin.register()


def test_an_unknown_vllm_is_refused_by_name_with_the_supported_ones(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: ModuleType
) -> None:
    monkeypatch.setenv(SWITCH, "tcp://127.0.0.1:9")
    monkeypatch.setenv(f"{SWITCH}_IDENTITY", "0" * 64)
    monkeypatch.setenv(f"{SWITCH}_MARKOV_IDENTITY", "0" * 64)
    with pytest.raises(
        RuntimeError, match=r"^spark-overlay: vLLM 0\.99\.1 is not supported; supported: .*0\.32\.0"
    ):
        plugin.register()


def test_a_refusal_is_left_for_the_launcher(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: ModuleType, tmp_path: Path
) -> None:
    monkeypatch.setenv(SWITCH, "nonsense")
    monkeypatch.setenv(f"{SWITCH}_READY_FILE", str(tmp_path / "ready.json"))
    monkeypatch.setenv(f"{SWITCH}_START_ID", "s1")
    with pytest.raises(SettingsError) as refused:
        plugin.register()
    assert read_refusal(tmp_path / "ready.json", "s1") == str(refused.value)


def test_after_a_refusal_vllm_loads_the_plugin_again_instead_of_serving_stock(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: ModuleType
) -> None:
    monkeypatch.setenv(SWITCH, "nonsense")
    with pytest.raises(SettingsError):
        plugin.register()
    assert fake_vllm.plugins_loaded is False
