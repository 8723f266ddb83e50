"""`qualify plan`, `run`, `finish` as an operator uses them: one side after the other in one window, then receipts."""

import base64
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from qualification.checks.registry import all_checks
from qualification.cli import main
from qualification.receipts.keys import PRIVATE_FILE, PUBLIC_FILE, keygen

POLICIES = Path(__file__).parents[2] / "qualification" / "policies"
CHECKS = ("--check", "no_local_drafter")
PLATFORM = f"""
name = "simulator"
engine = "simulator"
python = "{sys.executable}"
start_s = 60
capabilities = ["row_reduction"]
"""


class Operator:
    """Whoever types the commands, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evidence, self.blinding = folder / "evidence", folder / "blinding"
        (folder / "platform.toml").write_text(PLATFORM)
        (folder / "subjects.json").write_text(
            '{"format": "urn:spark-offload:qualification:subjects:v1", "subjects": '
            f'[{{"name": "wheel:a", "digest": {{"sha256": "{"1" * 64}"}}}}]}}'
        )
        keygen(folder / "keys")

    def type(self, *words: str) -> Result:
        return CliRunner().invoke(main, words)

    def run(self, side: str, *more: str) -> Result:
        where = ("--platform", str(self.folder / "platform.toml"), "--evidence", str(self.evidence))
        blinding = () if "--blinding" in more else ("--blinding", str(self.blinding))
        return self.type("run", *where, "--run", "r", "--arm", side, *blinding, *CHECKS, *more)

    def finish(self, *more: str) -> Result:
        where = ("--platform", str(self.folder / "platform.toml"), "--evidence", str(self.evidence))
        signed = ("--key", str(self.folder / "keys" / PRIVATE_FILE))
        bits = ("--subjects", str(self.folder / "subjects.json"))
        run = ("--run", "r", "--blinding", str(self.blinding))
        return self.type("finish", *where, *run, *signed, *bits, *CHECKS, *more)

    def verify(self) -> Result:
        return self.type("verify", "--key", str(self.folder / "keys" / PUBLIC_FILE), str(self.evidence))


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_plan_names_every_start_every_check_and_what_is_missing(operator: Operator) -> None:
    said = operator.type("plan", "--platform", str(operator.folder / "platform.toml")).output
    for check in all_checks():
        assert check.name in said
        if check.missing:
            assert f"NOT RUN {check.name}: {check.missing}" in said
    assert "OFF local (local, 1 rank)" in said
    assert "ON  remote_2 (remote, 2 ranks)" in said
    assert "subcase watchdog_releases: the platform is not expected to show asynchronous_hand_off" in said
    assert "row_reduction" not in said
    assert not operator.evidence.exists()


def test_two_sides_and_a_finish_make_a_run_that_verifies_and_the_key_is_nowhere(operator: Operator) -> None:
    assert operator.run("off").exit_code == 0
    key = operator.blinding.read_text().strip()
    early = operator.finish()
    assert (early.exit_code, "the side 'on' is not complete" in early.output) == (1, True)
    assert operator.verify().exit_code == 1, "a side alone is no run"
    assert operator.run("on").exit_code == 0
    done = operator.finish()
    assert done.exit_code == 0, done.output
    assert "no_local_drafter" in done.output
    assert operator.verify().exit_code == 0
    assert not operator.blinding.exists()
    kept = [path for path in operator.folder.rglob("*") if path.is_file()]
    assert len(kept) > 8
    for path in kept:
        data = path.read_bytes()
        assert key.encode() not in data, path
        assert bytes.fromhex(key) not in data, path


def test_checks_are_decided_by_a_policy_where_it_is_stricter(operator: Operator) -> None:
    name = "worker_equals_reference"
    check = next(check for check in all_checks() if check.name == name)
    strict = (POLICIES / "worker-one-card.toml").read_text().replace("at_least = 20.0", "at_least = 1e6")
    policy = operator.folder / "policy.toml"
    policy.write_text(strict.replace("at_most = 0.05", "at_most = 0.5"))
    for side in ("off", "on"):
        assert operator.run(side, "--check", name).exit_code == 0
    broken = operator.finish("--check", name, "--policy", str(operator.folder / "platform.toml"))
    assert (broken.exit_code, "platform.toml" in broken.output) == (2, True)
    done = operator.finish("--check", name, "--policy", str(policy))
    assert done.exit_code == 0, done.output
    (receipt,) = operator.evidence.glob(f"r/receipts/*{name}*")
    predicate = json.loads(base64.b64decode(json.loads(receipt.read_text())["payload"]))["predicate"]
    used = {threshold["name"]: threshold["value"] for threshold in predicate["thresholds"]}
    # The policy's million blocks; its looser bound on near ties leaves the check's own.
    assert used == {**check.thresholds, "blocks_min": 1e6}
    assert predicate["verdict"] == "NOT RUN", "the simulator compares no million blocks"
    assert operator.verify().exit_code == 0


def test_a_run_is_not_made_twice_under_one_name(operator: Operator) -> None:
    assert operator.run("off").exit_code == 0
    again = operator.run("off")
    assert (again.exit_code, "the side 'off' of this run is complete" in again.output) == (1, True)


def test_another_platform_cannot_go_on_with_a_run(operator: Operator) -> None:
    assert operator.run("off").exit_code == 0
    (operator.folder / "platform.toml").write_text(PLATFORM + "drafts = 4\n")
    changed = operator.run("on")
    assert (changed.exit_code, "the platform file is not the one" in changed.output) == (1, True)


def test_the_blinding_key_must_not_lie_in_the_evidence_nor_be_readable(operator: Operator) -> None:
    inside = operator.run("off", "--blinding", str(operator.evidence / "key"))
    assert (inside.exit_code, "must not lie in the evidence" in inside.output) == (1, True)
    (operator.folder / "link").symlink_to(operator.evidence)
    for way in (operator.folder / "link" / "key", operator.folder / "x" / ".." / "evidence" / "key"):
        roundabout = operator.run("off", "--blinding", str(way))
        assert (roundabout.exit_code, "must not lie in the evidence" in roundabout.output) == (1, True)
    operator.blinding.write_text("00" * 32)
    operator.blinding.chmod(0o644)
    shown = operator.run("off")
    assert (shown.exit_code, "chmod 600" in shown.output) == (1, True)
    assert not operator.evidence.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--check", "no_such_check"), "there is no check 'no_such_check'"),
        (("--submit-s", "100", "--hard-s", "50"), "must lie within the hard bound"),
        (("--hard-s", "inf"), "the hard bound must be at most 604800 s, not inf"),
        (("--checkpoint-s", "inf"), "must be a time above 0 s, not inf"),
        (("--guard", "'"), "No closing quotation"),
        (("--platform", "nowhere.toml"), "nowhere.toml cannot be read"),
    ],
)
def test_an_input_that_cannot_be_used_is_one_sentence(
    operator: Operator, words: tuple[str, ...], sentence: str
) -> None:
    result = operator.run("off", *words)
    assert (result.exit_code, sentence in result.output) == (2, True), result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not operator.evidence.exists()
