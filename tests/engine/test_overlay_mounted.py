"""The file overlay in real engines, laid over an installed vLLM that is asked to load no plugin."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from driver import Engine, dspark, engine_environment
from reference.tiny_checkpoints import BLOCK, KINDS, make_pair
from spark_overlay.delivery.overlay_file import build, place_of
from spark_overlay.vllm_seam.versions import SEAMS

pytestmark = pytest.mark.engine

SWITCH = "VLLM_DSPARK_REMOTE"
ASKED = {SWITCH: "tcp://127.0.0.1:9", f"{SWITCH}_IDENTITY": "0" * 64, f"{SWITCH}_MARKOV_IDENTITY": "0" * 64}
NO_PLUGIN = {"VLLM_PLUGINS": "none"}
VERSION = "0.32.0"
ARGUMENTS: dict[str, Any] = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64}


@pytest.fixture(scope="module")
def laid_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH: the installed vLLM, linked file by file, but for the one that is laid over."""
    folder = tmp_path_factory.mktemp("laid-over")
    found = find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    installed = Path(found.origin).parent
    shutil.copytree(installed, folder / "vllm", copy_function=os.symlink)
    place = place_of(SEAMS[VERSION])
    built = build(installed.parent / place, VERSION, folder / "built")
    (folder / place).unlink()
    shutil.copy(built.overlay, folder / place)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_pair(tmp_path_factory.mktemp("pair"), KINDS["sliding"])


def test_the_file_alone_binds_the_remote_drafter_or_ends_the_start(
    laid_over: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    drafter, target = pair
    environment = engine_environment(**ASKED, **NO_PLUGIN, PYTHONPATH=str(laid_over))
    with Engine(tmp_path / "log", environment) as engine:
        refused = engine.start(model=str(target), **ARGUMENTS)
        assert (refused["event"], refused["kind"]) == ("refused", "SeamError")
        assert "speculative_config is missing" in refused["text"]
        ready = engine.start(model=str(target), speculative_config=dspark(drafter, BLOCK), **ARGUMENTS)
        assert (ready["event"], ready["speculator"]) == ("ready", "RemoteDSparkSpeculator")
        assert ready["wrapper_methods_of"] == ["spark_overlay.vllm_seam.guard"]


def test_with_the_plugin_too_one_engine_has_one_remote_drafter(
    laid_over: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    drafter, target = pair
    with Engine(tmp_path / "log", engine_environment(**ASKED, PYTHONPATH=str(laid_over))) as engine:
        ready = engine.start(model=str(target), speculative_config=dspark(drafter, BLOCK), **ARGUMENTS)
        assert (ready["event"], ready["speculator"]) == ("ready", "RemoteDSparkSpeculator")


def test_without_the_setting_the_engine_is_stock(
    laid_over: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    drafter, target = pair
    with Engine(tmp_path / "log", engine_environment(**NO_PLUGIN, PYTHONPATH=str(laid_over))) as engine:
        ready = engine.start(model=str(target), speculative_config=dspark(drafter, BLOCK), **ARGUMENTS)
        assert (ready["event"], ready["speculator"]) == ("ready", "DSparkSpeculator")
        assert ready["overlay_modules"] == []
        assert ready["init_speculator_of"] == "vllm.v1.worker.gpu.spec_decode"
