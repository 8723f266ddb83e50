"""Evidence that is not what the receipt says, or not where."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Apply, Mutant
from receipt_corpus.of_fields import field

FIRST = "observations/off-1-a-0.jsonl"


def _file(bench: Bench) -> Path:
    return bench.root / FIRST


def _outside(bench: Bench) -> Path:
    outside = bench.root.with_name("outside")
    outside.mkdir()
    (outside / "off-1-a-0.jsonl").write_bytes(_file(bench).read_bytes())
    return outside


def _link(bench: Bench) -> None:
    outside = _outside(bench)
    _file(bench).unlink()
    _file(bench).symlink_to(outside / "off-1-a-0.jsonl")


def _inner_link(bench: Bench) -> None:
    """To a file of the run, which is no excuse."""
    _file(bench).rename(bench.root / "off-1-a-0.jsonl")
    _file(bench).symlink_to(bench.root / "off-1-a-0.jsonl")


def _linked_folder(bench: Bench) -> None:
    (bench.root / "elsewhere").symlink_to(_outside(bench), target_is_directory=True)


def _folder(bench: Bench) -> None:
    _file(bench).unlink()
    _file(bench).mkdir()


def _pipe(bench: Bench) -> None:
    _file(bench).unlink()
    os.mkfifo(_file(bench))


def _other_letter(bench: Bench) -> None:
    _file(bench).write_bytes(_file(bench).read_bytes().replace(b"off-1-a", b"off-9-a"))


def _observed(change: Callable[[dict[str, Any]], object]) -> Apply:
    """The first receipt says what it says; its evidence shows the arms after the change."""

    def apply(bench: Bench) -> None:
        bench.observed[0] = change

    return apply


def _on_a_cpu(arms: dict[str, Any]) -> None:
    for arm in arms.values():
        arm["platform"]["devices"] = [{"device": "cpu", "capability": "", "driver": ""}]


def _one_rank(bench: Bench) -> None:
    """In the receipt of the check that runs on two."""
    bench.observed[4] = lambda arms: arms["on"]["platform"]["devices"].pop()


def _path(name: str, path: str) -> Mutant:
    return Mutant(name, "evidence_path", field("evidence", 0, "path", value=path))


MUTANTS = [
    _path("an absolute path", "/observations/off-1-a-0.jsonl"),
    _path("a path that leaves the root", "../outside/off-1-a-0.jsonl"),
    _path(
        "a path that leaves the root and comes back", "observations/../../run/observations/off-1-a-0.jsonl"
    ),
    _path("a path with a dot", "./observations/off-1-a-0.jsonl"),
    _path("a path with an empty part", "observations//off-1-a-0.jsonl"),
    _path("a path that ends in a slash", "observations/"),
    _path("a path with a backslash", "observations\\off-1-a-0.jsonl"),
    _path("a path over a file", f"{FIRST}/inside"),
    Mutant("evidence that is a link out", "evidence_path", afterwards=_link),
    Mutant("evidence that is a link inside", "evidence_path", afterwards=_inner_link),
    Mutant(
        "evidence behind a linked folder",
        "evidence_path",
        field("evidence", 0, "path", value="elsewhere/off-1-a-0.jsonl"),
        _linked_folder,
    ),
    Mutant("evidence that is gone", "evidence_missing", afterwards=lambda bench: _file(bench).unlink()),
    Mutant(
        "evidence that never was", "evidence_missing", field("evidence", 0, "path", value="observations/none")
    ),
    Mutant("evidence that is a folder", "evidence_missing", afterwards=_folder),
    Mutant("evidence that is a pipe", "evidence_missing", afterwards=_pipe),
    Mutant("evidence cut off", "evidence_size", afterwards=lambda b: os.truncate(_file(b), 5)),
    Mutant("evidence that grew", "evidence_size", afterwards=lambda b: os.truncate(_file(b), 5000)),
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
    Mutant("a CPU engine whose receipt says GB10", "facts", _observed(_on_a_cpu)),
    Mutant(
        "another version than the receipt says",
        "facts",
        _observed(lambda arms: arms["on"]["platform"].update(engine_version="0.32.0")),
    ),
    Mutant("a start without evidence", "facts", _observed(lambda arms: arms["off"]["starts"].pop())),
    Mutant(
        "evidence of other starts", "facts", _observed(lambda arms: arms["on"].update(starts=["elsewhere"]))
    ),
    Mutant(
        "evidence of another arm", "facts", _observed(lambda arms: arms["on"]["arm"].update(name="shadow"))
    ),
    Mutant("evidence of one rank of two", "facts", _one_rank),
]
