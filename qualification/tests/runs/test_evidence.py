"""Evidence that is not exactly this run's own is refused: changed, of another start, spliced, or a stranger's."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from one_check import CHECK, MakeRun
from qualification.arms.harness import HARNESS_FILE
from qualification.runs.declared import SIDES
from qualification.runs.evidence import load_side
from qualification.runs.finish import decide_run
from qualification.runs.folder import Run, RunError
from qualification.runs.ledger import Entry, of_kind
from qualification.runs.platform import Platform
from qualification.runs.side import run_side


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run with both sides lies; copied by each test."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def run(make_run: MakeRun, simulator: Platform, whole: Path, tmp_path: Path) -> Run:
    """A run whose sides are complete: made once, then copied."""
    made = make_run(simulator)
    if not (whole / "root").is_dir():
        for side in SIDES:
            run_side(made, simulator, [CHECK], side)
        shutil.copytree(made.root, whole / "root")
        ENTRIES[:] = made.ledger.entries
    shutil.rmtree(made.root)
    shutil.copytree(whole / "root", made.root)
    made.ledger.entries[:] = copy.deepcopy(ENTRIES)
    return made


ENTRIES: list[Entry] = []
"""The ledger of the run that is copied."""


def files(run: Run, side: str) -> dict[str, Path]:
    """The evidence of a side by what it is: "harness" or "rank"."""
    found = {}
    starts = {entry["start"] for entry in of_kind(run.ledger.entries, "start", side=side)}
    for entry in of_kind(run.ledger.entries, "evidence"):
        if entry["start"] in starts:
            path = run.root / entry["path"]
            found["harness" if path.name == HARNESS_FILE else "rank"] = path
    return found


def test_what_a_run_made_is_read_back_whole(run: Run) -> None:
    sides, (decision,) = decide_run(run, [CHECK])
    assert not decision.hold
    (off,), (on,) = sides["off"].values(), sides["on"].values()
    assert (off.facts[0].arm, on.facts[0].arm) == ("target_only", "local")
    assert off.facts[0].start_id != on.facts[0].start_id
    assert [len(each.files) for each in (off, on)] == [2, 2]
    kinds = [observation.record.kind for observation in on.of(CHECK).harness]
    assert kinds == ["case", "completed", "case"]
    assert [observation.record.kind for observation in on.ranks[0]][:: len(on.ranks[0]) - 1] == [
        "facts",
        "closed",
    ]


def flip_a_byte(run: Run) -> None:
    path = files(run, "on")["rank"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_off(run: Run) -> None:
    path = files(run, "on")["rank"]
    path.write_bytes(path.read_bytes()[:-20])


def take_the_other_sides(run: Run) -> None:
    shutil.copyfile(files(run, "off")["rank"], files(run, "on")["rank"])


def lose_a_file(run: Run) -> None:
    files(run, "on")["harness"].unlink()


def leave_a_stale_file(run: Run) -> None:
    path = files(run, "on")["rank"]
    shutil.copyfile(path, path.with_name("observations-00-rank1.jsonl"))


def leave_a_file_from_before_the_run(run: Run) -> None:
    folder = run.root / "arms" / "on" / "local" / "0123456789abcdef"
    folder.mkdir()
    shutil.copyfile(files(run, "on")["rank"], folder / "observations-00-rank0.jsonl")


def leave_a_file_at_the_root(run: Run) -> None:
    (run.root / "notes.txt").write_text("all well")


def leave_a_link(run: Run) -> None:
    (run.root / "arms" / "notes.txt").symlink_to("/etc/hostname")


WAYS: dict[str, tuple[Callable[[Run], None], str]] = {
    "changed": (flip_a_byte, "the file is not as it was when its start ended"),
    "cut off": (cut_off, "the file is not as it was when its start ended"),
    "spliced": (take_the_other_sides, "the file is not as it was when its start ended"),
    "lost": (lose_a_file, "cannot be read: No such file"),
    "stale": (leave_a_stale_file, "the run did not make this file"),
    "from before": (leave_a_file_from_before_the_run, "the run did not make this file"),
    "a stranger's": (leave_a_file_at_the_root, "the run did not make this file"),
    "a link": (leave_a_link, "arms/notes.txt: the run did not make this, and it is no regular file"),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused(run: Run, way: str) -> None:
    falsify, sentence = WAYS[way]
    falsify(run)
    with pytest.raises(RunError, match=sentence):
        decide_run(run, [CHECK])


def test_evidence_of_another_start_is_refused_though_its_digest_is_in_the_ledger(run: Run) -> None:
    """As if an engine had started again before its files were entered."""
    (ready,) = of_kind(run.ledger.entries, "ready", start=files(run, "on")["rank"].parent.name)
    ready.fields["start_id"] = "another"
    with pytest.raises(RunError, match=r"it is of the start '\w+', not 'another'"):
        decide_run(run, [CHECK])


def test_a_side_that_is_not_complete_decides_nothing(run: Run) -> None:
    run.ledger.entries[:] = [entry for entry in run.ledger.entries if entry.kind != "side"]
    with pytest.raises(RunError, match="the side 'off' is not complete"):
        decide_run(run, [CHECK])


def test_files_of_an_abandoned_start_may_lie_there_and_do_not_count(run: Run) -> None:
    path = files(run, "on")["rank"]
    folder = path.parents[1] / "fedcba9876543210"
    shutil.copytree(path.parent, folder)
    entry = next(of_kind(run.ledger.entries, "start", side="on"))
    run.ledger.entries.append(type(entry)(99, entry.utc, "start", entry.fields | {"start": folder.name}))
    run.ledger.entries.append(
        type(entry)(99, entry.utc, "abandoned", {"start": folder.name, "why": "it died"})
    )
    decide_run(run, [CHECK])
    (counted,) = load_side(run.root, run.ledger.entries, [CHECK], "on").values()
    assert counted.start == path.parent.name
