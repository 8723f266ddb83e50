"""Receipts of the first version, as files: they stay acceptable, and the same statement makes the same bytes."""

from pathlib import Path

import pytest
from qualification.receipts import making, verify_receipt
from receipt_corpus import golden, sound

FILES = sorted(golden.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_receipt_of_the_first_version_is_accepted(path: Path, tmp_path: Path) -> None:
    sound.write_files(tmp_path, sound.simulated if "rehearsed" in path.stem else sound.native)
    receipt = verify_receipt(path.read_bytes(), sound.KEY, tmp_path)
    assert receipt.predicate.tool_version == "0.1.0"


def test_the_same_statements_are_the_same_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "__version__", "0.1.0")
    monkeypatch.setattr(sound, "__version__", "0.1.0")
    assert golden.contents() == {path.name: path.read_bytes() for path in FILES}
