"""Without its setting the plugin is not there; with it, a vLLM that was not studied is refused.  No vLLM is needed."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engram_remote.vllm_seam import versions
from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.versions import SEAMS, check_file, check_sources, seam_for, source_of

REGISTER = """
import json, sys
before = set(sys.modules)
from engram_remote.vllm_seam import plugin
plugin.register()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(source: str, **environ: str) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_ENGRAM")}
    command = [sys.executable, "-c", source]
    return subprocess.run(
        command, env=keep | environ, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("environ", [{}, {"VLLM_ENGRAM_REMOTE": ""}])
def test_without_the_setting_nothing_is_imported(environ: dict[str, str]) -> None:
    done = run(REGISTER, **environ)
    assert done.returncode == 0, done.stderr
    # Modules of the standard library too, where an editable install has a finder of its own.
    found = [
        name for name in json.loads(done.stdout) if name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert found == ["engram_remote", "engram_remote.vllm_seam", "engram_remote.vllm_seam.plugin"]


FAKE = """
import os, sys, types
for name in ("vllm", "vllm.plugins"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["vllm"].__version__ = "{version}"
sys.modules["vllm"].plugins = sys.modules["vllm.plugins"]
sys.modules["vllm.plugins"].plugins_loaded = True
from engram_remote.vllm_seam import plugin
try:
    plugin.register()
except Exception as error:
    print(type(error).__name__, error)
print(sys.modules["vllm.plugins"].plugins_loaded)
"""


@pytest.mark.parametrize(
    ("version", "tables", "says"),
    [
        (
            "0.29.0",
            ".",
            "SeamError engram-remote: vLLM 0.29.0 is not supported; supported: 0.30.0, 0.31.0, 0.32.0, 0.33.0",
        ),
        ("0.33.1", ".", "SeamError engram-remote: vLLM 0.33.1 is not supported"),
        ("0.33.0", "/no/such", "SettingsError VLLM_ENGRAM_REMOTE_TABLES: /no/such is not a folder."),
    ],
)
def test_a_refusal_ends_the_start_and_the_next_start_asks_again(version: str, tables: str, says: str) -> None:
    environ = {"VLLM_ENGRAM_REMOTE": "tcp://192.0.2.1:5", "VLLM_ENGRAM_REMOTE_TABLES": tables}
    done = run(FAKE.format(version=version), **environ)
    assert done.stdout.splitlines()[0].startswith(says), done.stdout + done.stderr
    assert done.stdout.splitlines()[1] == "False", "vLLM would take the plugin as loaded"


def test_a_build_for_another_device_has_its_releases_seam() -> None:
    assert seam_for("0.32.0+cpu") is SEAMS["0.32.0"]


def test_a_file_that_is_not_the_releases_is_refused_with_both_digests(tmp_path: Path) -> None:
    file = tmp_path / "engram.py"
    file.write_bytes(b"class ParallelEngramEmbedding: ...\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    check_file(file, digest, "0.33.0")
    with pytest.raises(
        SeamError, match=f"{file} is not the file of vLLM 0.33.0: its sha256 is {digest}, not {'0' * 64}"
    ):
        check_file(file, "0" * 64, "0.33.0")


def test_a_file_that_reads_the_setting_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "engram.py"
    file.write_text("REMOTE = 'VLLM_ENGRAM_REMOTE'\n")
    with pytest.raises(SeamError, match="has been replaced by a file that reads VLLM_ENGRAM_REMOTE itself"):
        check_file(file, hashlib.sha256(file.read_bytes()).hexdigest(), "0.33.0")


def test_a_missing_file_or_module_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SeamError, match="cannot be read: No such file"):
        check_file(tmp_path / "engram.py", "0" * 64, "0.33.0")
    with pytest.raises(SeamError, match=r"this vLLM has no module no_such_package\.models\.engram"):
        source_of("no_such_package.models.engram")


@pytest.mark.parametrize("version", SEAMS)
def test_each_pinned_file_is_checked(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam = SEAMS[version]
    for wrong in seam.files:
        checked: list[str] = []
        monkeypatch.setattr(versions, "source_of", Path)
        monkeypatch.setattr(versions, "check_file", _only(wrong, checked))
        with pytest.raises(SeamError, match=wrong):
            check_sources(seam, version)
        assert checked[-1] == wrong
    assert seam.module in seam.files


def _only(wrong: str, checked: list[str]) -> Callable[[Path, str, str], None]:
    def check(path: Path, digest: str, version: str) -> None:
        checked.append(str(path))
        if str(path) == wrong:
            raise SeamError(wrong)

    return check
