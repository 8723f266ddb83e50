"""Observation lines: what is written is read back as it was, and nothing else is read."""

import hashlib
import hmac
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observation_strategies import observations
from ofl.contract.observation_v1 import (
    KINDS,
    Blind,
    Closed,
    Completed,
    Drafter,
    Observation,
    ObservationError,
    Published,
    Scheduled,
    ScheduledRequest,
    parse_key,
    read_line,
    schema,
    write_line,
)

PUBLISHED = Path(__file__).parents[4] / "docs/contract/observation-v1.schema.json"
SCHEDULED = Observation(7, 1000, Scheduled(3, (ScheduledRequest("a", 1, 1, 4, 4, 3, 20, 2, 3, "00" * 16),)))
LINE = (
    b'{"index":7,"time_ns":1000,"kind":"scheduled","step":3,"requests":[{"request":"a","slot":1,"life":1,"q":4,'
    b'"kept":4,"valid":3,"first_position":20,"sampled":2,"verified":3,"anchor":"00000000000000000000000000000000"}]}\n'
)
CLOSED = b'{"index":7,"time_ns":1000,"kind":"closed","records":7,"dropped":0}\n'
DRAFTER = (
    b'{"index":0,"time_ns":0,"kind":"drafter","step":1,"request":"a","drafted":7,"common":2,"margin":0.5}\n'
)


def refused(line: bytes) -> ObservationError:
    with pytest.raises(ObservationError) as refusal:
        read_line(line)
    assert refusal.value.detail
    return refusal.value


def test_a_line_has_its_fields_in_the_order_of_their_declaration() -> None:
    assert write_line(SCHEDULED) == LINE
    assert read_line(LINE) == SCHEDULED
    assert read_line(CLOSED).record == Closed(7, 0)
    assert read_line(DRAFTER).record == Drafter(1, "a", 7, 2, 0.5)


@given(observations)
@settings(max_examples=500)
def test_every_observation_is_read_back_as_it_was(observation: Observation) -> None:
    line = write_line(observation)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    read = read_line(line)
    assert read == observation
    assert write_line(read) == line


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (b'"step":3,', b'"step":3,"tokens":[1],', "scheduled.tokens"),
        (b'"step":3,', b"", "scheduled.step"),
        (b'"step":3', b'"step":true', "scheduled.step"),
        (b'"step":3', b'"step":3.0', "scheduled.step"),
        (b'"step":3', b'"step":null', "scheduled.step"),
        (b'"step":3', b'"step":9223372036854775808', "scheduled.step"),
        (b'"step":3', b'"step":NaN', "line"),
        (b'"step":3', b'"step":3,"step":3', "step"),
        (b'"q":4', b'"q":"4"', "scheduled.requests[0].q"),
        (b'"q":4', b'"q":4,"row":"00"', "scheduled.requests[0].row"),
        (b'"q":4,', b"", "scheduled.requests[0].q"),
        (b'"slot":1', b'"slot":1,"slot":2', "slot"),
        (b'"request":"a"', b'"request":1', "scheduled.requests[0].request"),
        (b'"request":"a"', b'"request":"\\n"', "scheduled.requests[0].request"),
        (b"[{", b'{"0":{', "line"),
        (b'"index":7', b'"index":-1', "index"),
        (b'"index":7', b'"index":false', "index"),
        (b'"index":7,', b"", "index"),
        (b'"time_ns":1000', b'"time_ns":"now"', "time_ns"),
        (b'"kind":"scheduled"', b'"kind":"prompt"', "kind"),
        (b'"kind":"scheduled",', b"", "kind"),
        (b'"kind":"scheduled"', b'"kind":3', "kind"),
        (b'"kind":"scheduled"', b'"kind":"closed"', "closed.step"),
        (b"}\n", b"} {}\n", "line"),
        (b"}\n", b"}", "line"),
        (b"}\n", b"}\n\n", "line"),
        (b"}\n", b"\n", "line"),
        (b'"a"', b'"\xff"', "line"),
    ],
)
def test_a_changed_line_is_refused_with_the_field(old: bytes, new: bytes, field: str) -> None:
    assert LINE.count(old) >= 1
    assert refused(LINE.replace(old, new, 1)).field == field


@pytest.mark.parametrize("margin", [b"1", b"true", b"1e999", b"-1e999", b"Infinity", b'"0.5"', b"null"])
def test_a_margin_is_a_finite_number_with_a_fraction(margin: bytes) -> None:
    assert refused(DRAFTER.replace(b"0.5", margin)).field in ("drafter.margin", "line")


def test_what_is_no_object_is_refused() -> None:
    for line in (b"\n", b"[]\n", b"3\n", b"null\n", b"[" * 100_000 + b"\n", b"1" * 5000 + b"\n"):
        assert refused(line).field == "line"


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    refused(data + b"\n")


@given(st.data(), observations)
@settings(max_examples=300)
def test_a_line_that_is_cut_is_refused(data: st.DataObject, observation: Observation) -> None:
    line = write_line(observation)
    refused(line[: data.draw(st.integers(0, len(line) - 1))])


UNREADABLE: list[Any] = [
    Published(True, ()),
    Published(3, (3,)),  # type: ignore[arg-type]
    Published(3, ({},)),  # type: ignore[arg-type]
    Published(3, ("5,17,9",)),
    Published(3, ("0" * 33,)),
    Published(3, ("A" * 32,)),
    Completed("a", 3, 2, "stop", "Once upon a time"),
    Drafter(1, "a", 7, 2, float("nan")),
    Drafter(1, "a", 7, 2, 1),
    Drafter(1, "\ud800", 7, 2, 1.0),
]


@pytest.mark.parametrize("record", UNREADABLE)
def test_what_could_not_be_read_back_is_not_written(record: Any) -> None:
    with pytest.raises(ObservationError):
        write_line(Observation(0, 0, record))


def test_a_tag_that_is_none_is_refused_without_being_repeated() -> None:
    with pytest.raises(ObservationError) as refusal:
        write_line(Observation(0, 0, Completed("a", 3, 2, "stop", "Once upon a time")))
    assert str(refusal.value) == "completed.text: 32 hex digits or nothing are needed"
    lines = [
        LINE.replace(b'"anchor":"' + b"0" * 32, b'"anchor":"' + text)
        for text in (b"17", b"0" * 31, b"A" * 32)
    ]
    for line in lines:
        assert refused(line).field == "scheduled.requests[0].anchor"
        assert not VALIDATOR.is_valid(json.loads(line))


def _leaves(made: Any) -> set[Any]:
    hints = get_type_hints(made)
    found: set[Any] = set()
    for field in fields(made):
        hint = hints[field.name]
        while get_origin(hint) is tuple:
            hint = get_args(hint)[0]
        found |= _leaves(hint) if is_dataclass(hint) else {hint}
    return found


def test_no_record_has_a_field_for_bytes_or_a_list_of_numbers() -> None:
    for made in KINDS.values():
        assert _leaves(made) <= {int, float, str, bool}, made
        for hint in get_type_hints(made).values():
            if get_origin(hint) is tuple:
                assert get_args(hint)[0] is str or is_dataclass(get_args(hint)[0]), made


KEY = bytes(range(32))


def test_a_tag_is_the_first_half_of_hmac_over_domain_and_bytes() -> None:
    right = hmac.new(KEY, b"rows\0" + b"abc", hashlib.sha256).hexdigest()[:32]
    assert Blind(KEY).tag("rows", b"abc") == Blind(KEY).tag("rows", memoryview(b"abc")) == right
    tokens = (5).to_bytes(8, "little") + (-1).to_bytes(8, "little", signed=True)
    assert Blind(KEY).text([5, -1]) == Blind(KEY).tag("text", tokens)


def test_tags_of_other_domains_keys_or_contents_differ() -> None:
    blind = Blind(KEY)
    tags = [blind.tokens("anchor", [5]), blind.tokens("drafts", [5]), blind.text([5]), blind.text([5, 0])]
    tags.append(Blind(KEY[::-1]).text([5]))
    assert len(set(tags)) == len(tags)


def test_a_key_is_64_hex_digits_and_a_wrong_one_is_never_repeated() -> None:
    assert parse_key(KEY.hex()) == KEY
    for text in ("", "00" * 31, "00" * 33, "0g" * 32, KEY.hex() + " ", " ".join(["00"] * 32)):
        with pytest.raises(ValueError, match="64 hex digits") as refusal:
            parse_key(text)
        assert text == "" or text not in str(refusal.value)
    with pytest.raises(ValueError, match="32 bytes"):
        Blind(b"short")


def test_the_published_schema_is_that_of_the_records() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema.text(), (
        "run python -m ofl.contract.observation_v1.schema"
    )


VALIDATOR = jsonschema.Draft202012Validator(schema.schema())


@given(observations)
@settings(max_examples=100)
def test_the_schema_takes_what_is_written_and_is_closed(observation: Observation) -> None:
    values = json.loads(write_line(observation))
    VALIDATOR.validate(values)
    assert not VALIDATOR.is_valid(values | {"tokens": [1]})
    for name in values:
        assert not VALIDATOR.is_valid({key: value for key, value in values.items() if key != name}), name


def test_every_line_is_one_json_object_that_any_reader_understands() -> None:
    assert list(json.loads(LINE))[:3] == ["index", "time_ns", "kind"]
