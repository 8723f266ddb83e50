"""A supported engine is one whose version and base file are both known."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.versions import SEAMS, check_base_file, public_version, seam_for


def test_builds_of_a_release_for_other_devices_are_that_release() -> None:
    assert public_version("0.32.0+cpu") == "0.32.0"
    assert seam_for("0.32.0+cu130") is seam_for("0.32.0")


@pytest.mark.parametrize("version", ["0.31.9", "0.32.1", "0.33.1", "0.32.0rc1", "dev", ""])
def test_any_other_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(
        SeamError, match=f"vLLM {version} is not supported; supported: 0.26.0, 0.30.0, 0.32.0, 0.33.0"
    ):
        seam_for(version)


def test_a_changed_base_file_is_refused_with_both_digests(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_bytes(b"original\n")
    seam = replace(SEAMS["0.32.0"], base_sha256=hashlib.sha256(b"original\n").hexdigest())
    check_base_file(seam, "0.32.0", file)
    file.write_bytes(b"patched\n")
    with pytest.raises(SeamError) as refused:
        check_base_file(seam, "0.32.0", file)
    for text in (str(file), seam.base_sha256, hashlib.sha256(b"patched\n").hexdigest()):
        assert text in str(refused.value)


def test_a_missing_base_file_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(SeamError, match="nothing-here"):
        check_base_file(SEAMS["0.32.0"], "0.32.0", tmp_path / "nothing-here")


def test_a_file_laid_over_vllms_own_beside_the_plugin_is_refused_by_its_own_sentence(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text('if os.environ.get("VLLM_DSPARK_REMOTE"):\n    ...\n')
    with pytest.raises(SeamError, match=r"reads VLLM_DSPARK_REMOTE itself.*take away one of the two"):
        check_base_file(SEAMS["0.32.0"], "0.32.0", file)
