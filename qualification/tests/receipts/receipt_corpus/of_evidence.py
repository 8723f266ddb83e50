"""Evidence that is not what the receipt says, or not where."""

import os
from pathlib import Path

from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Mutant
from receipt_corpus.of_fields import field

FIRST = "observations/start-1.jsonl"


def _file(bench: Bench) -> Path:
    return bench.root / FIRST


def _outside(bench: Bench) -> Path:
    outside = bench.root.with_name("outside")
    outside.mkdir()
    (outside / "start-1.jsonl").write_bytes(_file(bench).read_bytes())
    return outside


def _link(bench: Bench) -> None:
    outside = _outside(bench)
    _file(bench).unlink()
    _file(bench).symlink_to(outside / "start-1.jsonl")


def _inner_link(bench: Bench) -> None:
    """To a file of the run, which is no excuse."""
    _file(bench).rename(bench.root / "start-1.jsonl")
    _file(bench).symlink_to(bench.root / "start-1.jsonl")


def _linked_folder(bench: Bench) -> None:
    (bench.root / "elsewhere").symlink_to(_outside(bench), target_is_directory=True)


def _folder(bench: Bench) -> None:
    _file(bench).unlink()
    _file(bench).mkdir()


def _pipe(bench: Bench) -> None:
    _file(bench).unlink()
    os.mkfifo(_file(bench))


def _other_letter(bench: Bench) -> None:
    _file(bench).write_bytes(_file(bench).read_bytes().replace(b"start-1", b"start-9"))


def _path(name: str, path: str) -> Mutant:
    return Mutant(name, "evidence_path", field("evidence", 0, "path", value=path))


MUTANTS = [
    _path("an absolute path", "/observations/start-1.jsonl"),
    _path("a path that leaves the root", "../outside/start-1.jsonl"),
    _path("a path that leaves the root and comes back", "observations/../../run/observations/start-1.jsonl"),
    _path("a path with a dot", "./observations/start-1.jsonl"),
    _path("a path with an empty part", "observations//start-1.jsonl"),
    _path("a path that ends in a slash", "observations/"),
    _path("a path with a backslash", "observations\\start-1.jsonl"),
    _path("a path over a file", f"{FIRST}/inside"),
    Mutant("evidence that is a link out", "evidence_path", afterwards=_link),
    Mutant("evidence that is a link inside", "evidence_path", afterwards=_inner_link),
    Mutant(
        "evidence behind a linked folder",
        "evidence_path",
        field("evidence", 0, "path", value="elsewhere/start-1.jsonl"),
        _linked_folder,
    ),
    Mutant("evidence that is gone", "evidence_missing", afterwards=lambda bench: _file(bench).unlink()),
    Mutant(
        "evidence that never was", "evidence_missing", field("evidence", 0, "path", value="observations/none")
    ),
    Mutant("evidence that is a folder", "evidence_missing", afterwards=_folder),
    Mutant("evidence that is a pipe", "evidence_missing", afterwards=_pipe),
    Mutant("evidence cut off", "evidence_size", afterwards=lambda b: os.truncate(_file(b), 5)),
    Mutant("evidence that grew", "evidence_size", afterwards=lambda b: os.truncate(_file(b), 500)),
    Mutant("evidence that is empty", "evidence_size", afterwards=lambda b: os.truncate(_file(b), 0)),
    Mutant("evidence of another size, stated", "evidence_size", field("evidence", 0, "bytes", value=1)),
    Mutant(
        "evidence with a letter changed",
        "evidence_digest",
        afterwards=_other_letter,
    ),
    Mutant(
        "evidence of another digest, stated",
        "evidence_digest",
        field("evidence", 0, "sha256", value="0" * 64),
    ),
]
