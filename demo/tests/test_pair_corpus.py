"""The corpus is pinned by digests and split by path."""

import hashlib
from pathlib import Path

import pytest

from demo.training import corpus


def test_manifest_names_source_files_once_each_with_full_digests() -> None:
    pinned = corpus.read_manifest()
    lines = corpus.MANIFEST.read_text().splitlines()
    assert len(pinned) == len(lines) == 1500
    assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in pinned.values())
    assert list(pinned) == sorted(pinned, key=lambda name: Path(name).parts)
    assert not [name for name in pinned if "site-packages/" in name or name.startswith("_sysconfigdata")]


def test_about_four_percent_of_the_files_are_held_out_by_their_path_alone() -> None:
    names = list(corpus.read_manifest())
    held_out = [name for name in names if corpus.is_held_out(name)]
    assert len(held_out) == 51
    # sha256("netrc.py") begins with 00, sha256("os.py") with b7: below and above the limit of 10.
    digests = {name: hashlib.sha256(name.encode()).digest()[0] for name in ("os.py", held_out[0])}
    assert digests["os.py"] >= 10 > digests[held_out[0]]
    assert not corpus.is_held_out("os.py")


def test_files_that_differ_or_are_missing_are_named(tmp_path: Path) -> None:
    root = tmp_path / "Lib"
    root.mkdir()
    for name in ("a.py", "b.py", "c.py"):
        (root / name).write_text("x = 1\n" * 100)
    manifest = tmp_path / "corpus.sha256"
    assert corpus.write_manifest(root, manifest) == 3
    assert list(corpus.read_pinned(root, manifest)) == ["a.py", "b.py", "c.py"]
    (root / "a.py").write_text("x = 2\n" * 100)
    (root / "c.py").unlink()
    with pytest.raises(
        corpus.CorpusError, match=r"2 corpus files .*: a\.py \(differs\), c\.py \(missing\)\."
    ):
        corpus.read_pinned(root, manifest)


def test_files_the_manifest_does_not_name_do_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "Lib"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n" * 100)
    manifest = tmp_path / "corpus.sha256"
    corpus.write_manifest(root, manifest)
    (root / "new.py").write_text("y = 1\n" * 100)
    assert list(corpus.read_pinned(root, manifest)) == ["a.py"]


def test_short_foreign_and_undecodable_files_are_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("x = 1\n" * 100)
    (tmp_path / "short.py").write_text("x = 1\n")
    (tmp_path / "foreign.py").write_text("# äöü\n" * 100, encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"# \xe4\n" * 100)
    assert corpus.select_files(tmp_path) == ["good.py"]
