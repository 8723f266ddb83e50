"""The committed JSON Schemas: those of the models, closed, and of their opinion wherever a schema can have one."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from json_changes import changed_somewhere, json_values
from jsonschema import Draft202012Validator, FormatChecker
from pydantic import ValidationError
from qualification.receipts.run_record import CompleteRecord, complete_record
from qualification.receipts.schema import FOLDER, MODELS, text
from qualification.receipts.statement import Statement
from receipt_corpus import of_fields, sound
from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Mutant

SOUND = sound.statements(sound.run_record())[0].model_dump(mode="json", by_alias=True)
NOT_FOR_SCHEMAS = {"a newer tool", "a much newer tool"}
"""Which version is newer is no matter of a pattern."""


def validator(name: str) -> Draft202012Validator:
    """Of a committed schema, with formats enforced."""
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text())
    return Draft202012Validator(schema, format_checker=FormatChecker(["date-time"]))


RECEIPT = validator("receipt")


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema of an object, however deep."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


@pytest.mark.parametrize("name", MODELS)
def test_a_committed_schema_is_that_of_the_model(name: str) -> None:
    assert (FOLDER / f"{name}.schema.json").read_text() == text(name)


def test_there_is_no_schema_of_nothing() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.schema.json" for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_a_schema_is_valid_and_every_object_in_it_is_closed(name: str) -> None:
    schema = validator(name).schema
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    found = list(objects(schema))
    assert found
    for one in found:
        assert one["additionalProperties"] is False, one.get("title")
        assert set(one["properties"]) >= set(one["required"])


@pytest.mark.parametrize("name", ["receipt", "envelope", "run", "complete", "subjects"])
def test_no_field_can_be_left_out(name: str) -> None:
    for one in objects(validator(name).schema):
        assert set(one["properties"]) == set(one["required"]), one.get("title")


def test_the_schemas_accept_a_sound_run(bench: Bench) -> None:
    for statement in bench.statements:
        RECEIPT.validate(statement)
    validator("run").validate(bench.run)
    validator("envelope").validate(json.loads((bench.root / "complete.json").read_bytes()))
    validator("complete").validate(bench.called_complete())
    for place in range(len(bench.statements)):
        validator("envelope").validate(json.loads(bench.path(place).read_bytes()))


@pytest.mark.parametrize("mutant", of_fields.MUTANTS, ids=lambda mutant: mutant.name)
def test_the_schema_refuses_what_the_model_does(bench: Bench, mutant: Mutant) -> None:
    mutant.apply(bench)
    assert RECEIPT.is_valid(bench.statements[0]) is (mutant.name in NOT_FOR_SCHEMAS)


def model_accepts(statement: Any) -> bool:
    try:
        Statement.model_validate_json(rfc8785.dumps(statement))
    except ValidationError:
        return False
    return True


@given(st.data())
def test_schema_and_model_agree_on_any_change(data: st.DataObject) -> None:
    statement = changed_somewhere(data, copy.deepcopy(SOUND), json_values())
    # RFC 8785 writes 1.0 as 1, so both are shown what would stand in a file.
    statement = json.loads(rfc8785.dumps(statement))
    assert RECEIPT.is_valid(statement) is model_accepts(statement)


@pytest.mark.parametrize(
    "text_of_time", ["0000-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z"]
)
def test_schema_and_model_agree_on_odd_times(text_of_time: str) -> None:
    statement = copy.deepcopy(SOUND)
    statement["predicate"]["window"]["closed"] = text_of_time
    assert RECEIPT.is_valid(statement) is model_accepts(statement)


@pytest.mark.parametrize(
    ("counter", "fits"),
    [(0, True), (9, True), (10, True), (2**63, True), (2**64 - 1, True), (2**64, False), (10**20, False)],
)
def test_schema_and_model_agree_on_the_range_of_counters(counter: int, fits: bool) -> None:
    statement = copy.deepcopy(SOUND)
    statement["predicate"]["counter"] = str(counter)
    assert RECEIPT.is_valid(statement) is fits
    assert model_accepts(statement) is fits


def test_a_record_of_files_holds_what_the_schema_asks(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    record = complete_record(tmp_path, "run-1")
    validator("complete").validate(json.loads(record.model_dump_json()))
    assert record == CompleteRecord.model_validate_json(record.model_dump_json())
