"""Whatever bytes come: a receipt that was signed so, or `ReceiptError`, and nothing else."""

import copy
import json
from pathlib import Path

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_changes import changed_somewhere, json_values
from qualification.receipts import ReceiptError, sign, verify_receipt, verify_run
from qualification.receipts.canonical import read_canonical, read_json
from qualification.receipts.envelope import seal
from qualification.receipts.rules import BY_ID
from receipt_corpus import sound
from receipt_corpus.bench import Bench

STATEMENT = sound.statements(sound.run_record())[0]
SOUND = STATEMENT.model_dump(mode="json", by_alias=True)
RECEIPT = sign(STATEMENT, sound.SIGNER)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("evidence")
    sound.write_files(root)
    return root


def refused(data: bytes, root: Path) -> bool:
    """False: it was accepted, or refused for a rule that does not exist."""
    try:
        verify_receipt(data, sound.KEY, root)
    except ReceiptError as error:
        return error.rules <= set(BY_ID)
    return False


@given(data=st.binary(max_size=400))
def test_any_bytes_are_refused(evidence: Path, data: bytes) -> None:
    assert refused(data, evidence)


@given(data=st.binary(max_size=400))
def test_any_signed_bytes_are_refused(evidence: Path, data: bytes) -> None:
    assert refused(seal(data, sound.SIGNER), evidence)


@given(place=st.integers(0, len(RECEIPT) - 1), turned=st.integers(1, 255))
def test_no_byte_of_a_receipt_can_change(evidence: Path, place: int, turned: int) -> None:
    changed = RECEIPT[:place] + bytes([RECEIPT[place] ^ turned]) + RECEIPT[place + 1 :]
    assert refused(changed, evidence)


@given(start=st.integers(0, len(RECEIPT)), length=st.integers(0, 40), put=st.binary(max_size=8))
def test_a_receipt_that_is_cut_or_patched_is_refused_unless_it_is_the_same(
    evidence: Path, start: int, length: int, put: bytes
) -> None:
    changed = RECEIPT[:start] + put + RECEIPT[start + length :]
    assert refused(changed, evidence) is (changed != RECEIPT)


@given(st.data())
def test_an_envelope_changed_anywhere_is_refused_unless_it_is_the_same(
    evidence: Path, data: st.DataObject
) -> None:
    changed = rfc8785.dumps(changed_somewhere(data, json.loads(RECEIPT), json_values()))
    assert refused(changed, evidence) is (changed != RECEIPT)


@given(st.data())
def test_a_signed_statement_is_refused_or_read_as_it_stands(evidence: Path, data: st.DataObject) -> None:
    changed = rfc8785.dumps(changed_somewhere(data, copy.deepcopy(SOUND), json_values()))
    try:
        receipt = verify_receipt(seal(changed, sound.SIGNER), sound.KEY, evidence)
    except ReceiptError:
        return
    assert rfc8785.dumps(receipt.statement.model_dump(mode="json", by_alias=True)) == changed


@given(json_values())
def test_what_is_canonical_is_read_as_it_was(value: object) -> None:
    data = rfc8785.dumps(value)  # type: ignore[arg-type]
    assert rfc8785.dumps(read_canonical(data, "")) == data


@given(st.text(max_size=30))
def test_reading_any_text_ends_in_a_value_or_a_refusal(text: str) -> None:
    rules: frozenset[str] = frozenset()
    try:
        read_json(text.encode("utf-8", "surrogatepass"), "")
    except ReceiptError as error:
        rules = error.rules
    assert rules <= {"json", "encoding", "duplicate_key", "number"}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["run.json", "complete.json", "ledger.jsonl", "receipts/00000000000000000002-r2.json"]
    ),
    size=st.integers(0, 300),
)
def test_a_run_with_a_file_cut_off_is_refused(bench: Bench, name: str, size: int) -> None:
    path = bench.root / name
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[: min(size, len(whole) - 1)])
        with pytest.raises(ReceiptError):
            verify_run(bench.root, sound.KEY)
    finally:
        path.write_bytes(whole)
