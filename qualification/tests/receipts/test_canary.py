"""The canaries: a verifier that sees passes them, each kind of blindness is found out."""

from pathlib import Path

import pytest
from qualification.policy import read_policy
from qualification.receipts import ReceiptError, verify_receipt, verify_run
from qualification.receipts.canary import BlindError, canaries, watch, watch_runs
from qualification.receipts.errors import refuse
from qualification.receipts.keys import SSlibKey
from qualification.receipts.rules import BY_ID
from receipt_corpus import sound

from qualification import gate

POLICIES = sorted((Path(__file__).parents[2] / "policies").glob("*.toml"))


def test_the_verifier_is_awake() -> None:
    watch(verify_receipt)


def test_a_verifier_that_lets_everything_pass_is_blind() -> None:
    with pytest.raises(BlindError, match="the verifier is blind: it let a breach of signature pass"):
        watch(lambda data, key, root: None)


def test_a_verifier_that_refuses_everything_for_one_reason_is_blind() -> None:
    def verify(data: bytes, key: SSlibKey, root: Path) -> None:
        raise refuse("json", "no")

    with pytest.raises(BlindError, match="it refused a breach of signature for json"):
        watch(verify)


@pytest.mark.parametrize("rule", ["signature", "verdict", "evidence_class", "evidence_digest", "facts"])
def test_a_verifier_blind_to_one_rule_is_found_out(rule: str) -> None:
    def verify(data: bytes, key: SSlibKey, root: Path) -> None:
        try:
            verify_receipt(data, key, root)
        except ReceiptError as error:
            if error.rules != {rule}:
                raise

    with pytest.raises(BlindError, match=f"it let a breach of {rule} pass"):
        watch(verify)


def test_a_verifier_that_sees_refuses_the_killed_run() -> None:
    watch_runs(verify_run)


def test_a_verifier_that_lets_a_killed_run_pass_is_blind() -> None:
    with pytest.raises(BlindError, match="it let a killed run pass"):
        watch_runs(lambda root, key: None)


def test_a_verifier_that_refuses_a_killed_run_for_another_reason_is_blind() -> None:
    def verify(root: Path, key: SSlibKey) -> None:
        raise refuse("previous", "no")

    with pytest.raises(BlindError, match="it refused a killed run for previous"):
        watch_runs(verify)


def test_canaries_are_of_every_kind_of_judgement() -> None:
    stages = [BY_ID[rule].stage for rule, _ in canaries(sound.SIGNER)]
    assert stages == ["signature", "receipt", "receipt", "evidence", "evidence"]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_the_gate_is_awake_under_every_policy(path: Path) -> None:
    gate.watch_gate(read_policy(path))


def test_a_gate_that_promotes_without_receipts_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gate, "judge_gate", lambda policy, *rest, **known: gate.Judgement(policy.name, (), ())
    )
    with pytest.raises(BlindError, match="without any receipt"):
        gate.watch_gate(read_policy(POLICIES[0]))


def test_a_gate_that_finds_nothing_wrong_with_a_receipt_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_reasons", lambda policy, receipt, known: iter(()))
    with pytest.raises(BlindError, match="by a rehearsal that failed"):
        gate.watch_gate(read_policy(POLICIES[0]))
