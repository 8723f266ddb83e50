"""The blinding key's file: made once for its owner alone, read again, and refused by name where it cannot be one."""

import os
from pathlib import Path

import pytest
from qualification.runs.folder import RunError, key_of


def test_a_key_is_made_once_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = key_of(path, create=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert key_of(path, create=True) == made
    assert key_of(path, create=False) == made


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda path: path.mkdir(0o755), "it is no regular file"),
        (lambda path: path.mkdir(0o700), "it is no regular file"),
        (lambda path: os.mkfifo(path, 0o600), "it is no regular file"),
        (lambda path: path.touch(0o644), "others may read it"),
        (lambda path: path.touch(0o600), "holds no blinding key"),
        (lambda path: None, "cannot be used: No such file"),
    ],
)
def test_what_is_no_key_is_refused_by_name(tmp_path: Path, made: object, told: str) -> None:
    path = tmp_path / "key"
    assert callable(made)
    made(path)
    with pytest.raises(RunError, match=f"^{path}:? .*{told}"):
        key_of(path, create=False)
