"""Whatever ends a runner, and whenever: what it leaves behind verifies as incomplete, and nothing of it goes on
running."""

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small
from leftovers import wait_gone
from qualification.receipts.errors import ReceiptError
from qualification.receipts.keys import PUBLIC_FILE, keygen, load_public
from qualification.receipts.verify import find_runs, verify_run
from qualification.runs import folder
from qualification.runs.ledger import Ledger, of_kind, read_ledger

SCRIPT = Path(small.__file__)
SECONDS = 120.0
SEED = 20_260
KILLS = 5


def rules(root: Path, keys: Path) -> frozenset[str]:
    """What verification of a run finds wrong; nothing where it holds."""
    try:
        verify_run(root, load_public(keys / PUBLIC_FILE))
    except ReceiptError as error:
        return error.rules
    return frozenset()


def lines_of_a_run() -> int:
    """Of the small check: 2 of the run; of either side 14 and `side`; 3 of the one receipt.

    Of a side: start, ready, check; case, intent, opened, completed for each of two requests; checkpoint; evidence of
    harness and rank; ended.
    """
    return 2 + 2 * (3 + 2 * 4 + 1 + 2 + 1 + 1) + 3


def test_what_lies_there_at_any_line_verifies_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves what it has written so far: a copy of it is taken before and after each line, and between
    the steps of publication.
    """
    evidence, keys = tmp_path / "evidence", tmp_path / "keys"
    keygen(keys)
    taken: list[Path] = []

    def take() -> None:
        taken.append(tmp_path / "taken" / f"{len(taken)}")
        shutil.copytree(evidence, taken[-1])

    append, publish_file = Ledger.append, folder.publish_file

    def watched_append(self: Ledger, kind: str, **fields: Any) -> None:
        take()
        append(self, kind, **fields)
        take()

    def watched_publish(path: Path, data: bytes) -> None:
        take()
        publish_file(path, data)

    monkeypatch.setattr(Ledger, "append", watched_append)
    monkeypatch.setattr(folder, "publish_file", watched_publish)
    published = small.complete(small.begin(evidence, folder.draw_key()), keys)
    assert rules(published, keys) == frozenset()
    assert len(read_ledger(published / "ledger.jsonl")) == lines_of_a_run()
    assert len(taken) > 2 * lines_of_a_run()
    roots = [root for copy in taken for root in find_runs(copy)]
    assert len(roots) > 2 * lines_of_a_run(), "nearly every copy holds the run"
    for root in roots:
        assert "incomplete" in rules(root, keys), root


def killed_at(line: int, tmp_path: Path) -> tuple[Path, Path]:
    """Evidence and keys of a runner that killed itself at a line."""
    evidence, keys = tmp_path / "evidence", tmp_path / "keys"
    command = [sys.executable, str(SCRIPT), str(evidence), str(keys), str(line), "kill"]
    done = subprocess.run(command, timeout=SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL
    return evidence, keys


@pytest.mark.parametrize("line", sorted(random.Random(SEED).sample(range(2, lines_of_a_run()), KILLS)))
def test_a_killed_runner_leaves_no_process_and_no_run_that_holds(line: int, tmp_path: Path) -> None:
    evidence, keys = killed_at(line, tmp_path)
    assert not wait_gone(evidence)
    (root,) = find_runs(evidence)
    assert "incomplete" in rules(root, keys)
    assert len(read_ledger(root / "ledger.jsonl")) == line


def test_a_run_goes_on_after_its_runner_was_killed_and_counts_nothing_of_the_start_that_was_cut_off(
    tmp_path: Path,
) -> None:
    evidence, keys = killed_at(8, tmp_path)  # in the middle of the first start's requests
    assert not wait_gone(evidence)
    key = folder.key_of(keys / small.KEY_FILE, create=False)
    published = small.complete(
        folder.resume(evidence, small.RUN_ID, small.platform(), [small.CHECK], key), keys
    )
    assert rules(published, keys) == frozenset()
    entries = read_ledger(published / "ledger.jsonl")
    (abandoned,) = of_kind(entries, "abandoned")
    assert abandoned["why"] == "the runner that made it is gone"
    starts = [entry["start"] for entry in of_kind(entries, "start")]
    assert len(starts) == 3
    assert starts[0] == abandoned["start"]
    assert {entry["start"] for entry in of_kind(entries, "evidence")} == set(starts[1:])
    assert any(published.glob(f"arms/off/target_only/{starts[0]}/*.jsonl")), (
        "what was abandoned still lies there"
    )


def test_another_blinding_key_cannot_go_on_with_a_run(tmp_path: Path) -> None:
    evidence, _ = killed_at(3, tmp_path)
    with pytest.raises(folder.RunError, match="the blinding key is not the one"):
        folder.resume(evidence, small.RUN_ID, small.platform(), [small.CHECK], folder.draw_key())


def test_a_full_disk_leaves_a_run_that_is_incomplete(tmp_path: Path) -> None:
    evidence, keys = tmp_path / "evidence", tmp_path / "keys"
    command = [sys.executable, str(SCRIPT), str(evidence), str(keys), "12", "full"]
    done = subprocess.run(command, timeout=SECONDS, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "line 12: No space left on device")
    assert not wait_gone(evidence)
    (root,) = find_runs(evidence)
    assert "incomplete" in rules(root, keys)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_everything_and_the_status_says_which(number: signal.Signals, tmp_path: Path) -> None:
    keygen(tmp_path / "keys")
    subjects = tmp_path / "subjects.json"
    subjects.write_text(
        '{"format": "urn:spark-offload:qualification:subjects:v1", "subjects": '
        f'[{{"name": "wheel:a", "digest": {{"sha256": "{"1" * 64}"}}}}]}}'
    )
    evidence = tmp_path / "evidence"
    words = ["rehearse", "--evidence", str(evidence), "--run", "run", "--check", "no_local_drafter"]
    words += ["--key", str(tmp_path / "keys" / "qualify.key.pem"), "--subjects", str(subjects)]
    command = [sys.executable, "-c", "from qualification.cli import main; main()", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as runner:
        wait_for_line(evidence / "run.partial" / "ledger.jsonl", b'"kind":"ready"', runner)
        runner.send_signal(number)
        _, said = runner.communicate(timeout=SECONDS)
    assert runner.returncode == 128 + number, said
    assert f"ended by {number.name}" in said
    assert not wait_gone(evidence)
    (root,) = find_runs(evidence)
    assert "incomplete" in rules(root, tmp_path / "keys")
    assert read_ledger(root / "ledger.jsonl")[-1].kind == "stopped"


def wait_for_line(path: Path, wanted: bytes, runner: subprocess.Popen[str]) -> None:
    """Return once a file holds it; there is no event for a file that grows."""
    for _ in range(int(SECONDS / 0.05)):
        if path.is_file() and wanted in path.read_bytes():
            return
        try:
            runner.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the runner ended before: {runner.stderr and runner.stderr.read()}")
    raise AssertionError("it never came")
