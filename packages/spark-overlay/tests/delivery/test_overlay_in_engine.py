"""The file overlay in an engine's start: it reaches the plugin's code and guard, once, and unset it is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SWITCH = "VLLM_DSPARK_REMOTE"
ASKED = {SWITCH: "tcp://127.0.0.1:9", f"{SWITCH}_IDENTITY": "0" * 64, f"{SWITCH}_MARKOV_IDENTITY": "0" * 64}
ENGINE = Path(__file__).with_name("stand_in_engine.py")


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Starts a stand-in engine; what happened in it."""

    def run(environ: dict[str, str], **wanted: Any) -> dict[str, Any]:
        wanted = {"plugin": False, "overlay": True, "method": "dspark", "ours": "known"} | wanted
        clean = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        done = subprocess.run(
            [sys.executable, str(ENGINE), str(tmp_path), json.dumps(wanted)],
            env=clean | environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def test_the_file_alone_builds_the_remote_speculator_once_and_the_guard_sees_it(start: Any) -> None:
    said = start(ASKED)
    assert (said["refused"], said["speculator"]) == ("", "Remote")
    assert (said["built"], said["up"]) == (1, 1)


def test_plugin_and_file_in_one_engine_install_once(start: Any) -> None:
    said = start(ASKED, plugin=True)
    assert (said["refused"], said["speculator"]) == ("", "Remote")
    assert (said["built"], said["up"], said["guarded"]) == (1, 1, 1)


def test_the_plugin_alone_does_the_same(start: Any) -> None:
    said = start(ASKED, plugin=True, overlay=False)
    assert (said["refused"], said["built"], said["up"], said["guarded"]) == ("", 1, 1, 1)


def test_without_either_the_stand_in_engine_is_stock(start: Any) -> None:
    """So that the tests above are about the file and the plugin."""
    said = start(ASKED, overlay=False)
    assert (said["refused"], said["speculator"], said["built"]) == ("", "str", 0)


@pytest.mark.parametrize("environ", [{}, {SWITCH: ""}], ids=["unset", "empty"])
@pytest.mark.parametrize("ours", ["there", "missing"])
def test_without_the_setting_the_file_is_stock_and_imports_nothing_of_ours(
    start: Any, environ: dict[str, str], ours: str
) -> None:
    said = start(environ, ours=ours)
    assert (said["refused"], said["speculator"], said["built"]) == ("", "str", 0)
    assert said["ours"] == ([] if ours == "there" else ["spark_overlay"]), "missing: the test's own block"


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("mtp", "spark-overlay: speculative_config.method is 'mtp': VLLM_DSPARK_REMOTE needs 'dspark'"),
        (None, "instead of the remote drafter's"),
    ],
)
def test_an_engine_that_cannot_have_it_does_not_start_by_the_file_alone(
    start: Any, method: str | None, sentence: str
) -> None:
    said = start(ASKED, method=method)
    assert said["refused"].startswith("SeamError: ")
    assert said["refused"].endswith(sentence)
    assert said["up"] == 0


def test_an_image_without_our_package_does_not_start(start: Any) -> None:
    said = start(ASKED, ours="missing")
    assert said["refused"].startswith("ModuleNotFoundError: ")
    assert "spark_overlay" in said["refused"]


def test_a_bad_setting_ends_the_start_through_the_file_too(start: Any) -> None:
    said = start(ASKED | {f"{SWITCH}_TIMEOUT_MS": "-1"})
    assert said["refused"].startswith("SettingsError: VLLM_DSPARK_REMOTE_TIMEOUT_MS")
