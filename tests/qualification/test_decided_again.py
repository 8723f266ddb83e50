"""A receipt that its key signed, and that its own evidence contradicts: it verifies, and the gate holds it."""

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from qualification.again import decided_otherwise
from qualification.checks.no_local_drafter import CHECK
from qualification.cli import main
from qualification.receipts import verify_run
from qualification.receipts.canonical import sha256, to_bytes
from qualification.receipts.envelope import COMPLETE_TYPE, seal
from qualification.receipts.keys import PRIVATE_FILE, PUBLIC_FILE, keygen, load_public, load_signer
from qualification.receipts.run_record import COMPLETE_FILE, complete_record

SUBJECTS = {
    "format": "urn:spark-offload:qualification:subjects:v1",
    "subjects": [{"name": "wheel:a", "digest": {"sha256": "1" * 64}}],
}
POLICY = Path(__file__).parents[2] / "qualification/platforms/simulator.policy.toml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of keys, subjects and the run of one check, which passed."""
    folder = tmp_path_factory.mktemp("decided")
    keygen(folder / "keys")
    (folder / "subjects.json").write_text(json.dumps(SUBJECTS))
    words = ["rehearse", "--evidence", folder / "runs", "--run", "r", "--check", CHECK.name]
    words += ["--key", folder / "keys" / PRIVATE_FILE, "--subjects", folder / "subjects.json"]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return folder


def signed_again(made: Path, folder: Path, change: Callable[[bytes], bytes]) -> Path:
    """The run with other observations of the hooks in its arm ON, and everything about them signed anew."""
    run = folder / "r"
    shutil.copytree(made / "runs" / "r", run)
    (path,) = run.glob("arms/on/*/*/observations-*.jsonl")
    data = change(path.read_bytes())
    assert data != path.read_bytes()
    path.write_bytes(data)
    (receipt,) = (run / "receipts").iterdir()
    statement = json.loads(base64.b64decode(json.loads(receipt.read_bytes())["payload"]))
    for file in statement["predicate"]["evidence"]:
        if file["path"] == path.relative_to(run).as_posix():
            file |= {"bytes": len(data), "sha256": sha256(data)}
    receipt.write_bytes(seal(to_bytes(statement), load_signer(made / "keys" / PRIVATE_FILE)))
    (run / COMPLETE_FILE).unlink()
    record = to_bytes(complete_record(run, "r"))
    signer = load_signer(made / "keys" / PRIVATE_FILE)
    (run / COMPLETE_FILE).write_bytes(seal(record, signer, COMPLETE_TYPE))
    return run


def gate(made: Path, evidence: Path) -> str:
    words = ["gate", "--policy", POLICY, "--subjects", made / "subjects.json", "--evidence", evidence]
    result = CliRunner().invoke(main, [*map(str, words), "--key", str(made / "keys" / PUBLIC_FILE)])
    assert result.exit_code == 1, "a rehearsal never promotes"
    return result.output


def test_what_was_decided_from_its_evidence_is_decided_so_again(made: Path) -> None:
    run = verify_run(made / "runs" / "r", load_public(made / "keys" / PUBLIC_FILE))
    assert list(decided_otherwise([run])) == []
    assert "decided_again" not in gate(made, made / "runs")
    assert list(decided_otherwise([run], [])) == [], "the gate refuses a check that nobody asks"
    unable = [replace(CHECK, decide=None)]
    assert [one.sentence for one in decided_otherwise([run], unable)] == [
        "the verdict is PASS, of a check that cannot run"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda data: data.replace(b'"source":"remote"', b'"source":"local"'),
            "no_local_drafts is passed on ",
        ),
        (lambda data: data[: data.index(b"\n") + 1], "its evidence cannot be judged: arms/on/remote/"),
        (lambda data: data.replace(b'"dropped":0', b'"dropped":1'), "its evidence cannot be judged: ON"),
        (lambda data: data.replace(b'"kind":"published"', b'"kind":"tokens"', 1), "a line cannot be read"),
    ],
)
def test_a_signed_verdict_that_its_evidence_contradicts_holds_the_gate(
    made: Path, tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    root = signed_again(made, tmp_path, change)
    run = verify_run(root, load_public(made / "keys" / PUBLIC_FILE))
    (wrong,) = decided_otherwise([run])
    assert said in wrong.sentence
    assert f"hold: evidence: {wrong}" in gate(made, root)
