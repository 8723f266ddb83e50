"""Every supported vLLM release is what our seam for it was written against, read from the release's own sources."""

import os
from pathlib import Path

import pytest
from every_check import CHECKS
from release import Release
from spark_overlay.vllm_seam.versions import SEAMS

FOLDER = Path(os.environ["VLLM_RELEASES"]).resolve()


def test_the_sources_of_every_supported_release_are_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(SEAMS)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("version", SEAMS)
def test_a_release_keeps_what_the_seam_relies_on(version: str, check: str) -> None:
    assert list(CHECKS[check](Release(version, FOLDER / version))) == []
