"""The notation of records, and the digests that name a drafter."""

import hashlib
from typing import Any

import pytest
from ofl.contract.identity import (
    UNSTATED,
    Tensor,
    canonical_json,
    hex_or_unstated,
    identity,
    is_markov_tensor,
    parse_digest,
    target_binding,
    tensors_digest,
)
from ofl.contract.records import ContractError, Field, Record

RECORD = Record(
    "thing",
    Field("kind", "u8", ""),
    Field("reserved0", "bytes3", ""),
    Field("count", "u32", ""),
    Field("name", "bytes6", ""),
    Field("reserved1", "u16", ""),
)


def test_a_record_packs_little_endian_with_zero_reserved_fields() -> None:
    wire = RECORD.pack({"kind": 7, "count": 0x01020304, "name": b"abcdef"})
    assert wire.hex(" ") == "07 00 00 00 04 03 02 01 61 62 63 64 65 66 00 00"
    assert RECORD.unpack(wire) == {"kind": 7, "count": 0x01020304, "name": b"abcdef"}
    assert RECORD.row(b"\xff" * 3 + wire, 3) == (7, 0x01020304, b"abcdef")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kind": 256, "count": 0, "name": b""}, "thing.kind"),
        ({"kind": -1, "count": 0, "name": b""}, "thing.kind"),
        ({"kind": 1, "count": 2**32, "name": b""}, "thing.count"),
        ({"kind": 1, "count": "x", "name": b""}, "thing.count"),
        ({"kind": 1, "count": 0}, "thing.name"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values: dict[str, object], field: str) -> None:
    with pytest.raises(ContractError) as caught:
        RECORD.pack(values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("at", "field"), [(1, "reserved0"), (3, "reserved0"), (14, "reserved1"), (15, "reserved1")]
)
def test_every_reserved_byte_must_be_zero(at: int, field: str) -> None:
    wire = bytearray(RECORD.size)
    wire[at] = 1
    with pytest.raises(ContractError) as caught:
        RECORD.row(wire)
    assert caught.value.field == f"thing.{field}"


@pytest.mark.parametrize("size", [0, 1, 15])
def test_a_record_that_ends_early_says_how_much_there_is(size: int) -> None:
    with pytest.raises(ContractError, match=f"thing: {size} bytes where the record needs 16"):
        RECORD.row(bytes(20), 20 - size)


@pytest.mark.parametrize(
    "fields",
    [
        (Field("a", "u8", ""), Field("b", "u32", ""), Field("c", "bytes3", "")),
        (Field("a", "u32", ""),),
        (Field("a", "u32", ""), Field("a", "u32", "")),
    ],
)
def test_a_layout_with_holes_odd_size_or_twins_cannot_be_declared(fields: tuple[Field, ...]) -> None:
    with pytest.raises(TypeError, match="wrong"):
        Record("wrong", *fields)


def test_the_tensor_digest_is_what_the_document_says() -> None:
    tensors = [Tensor("a", "F32", (2,), b"\1\0\0\0\2\0\0\0"), Tensor("b", "BF16", (1, 1), b"\3\0")]
    heads = [b'["a","F32",[2],8]', b'["b","BF16",[1,1],2]']
    by_hand = b"ofl-tensors-v1\0"
    for head, tensor in zip(heads, tensors, strict=True):
        by_hand += len(head).to_bytes(4, "little") + head + tensor.data
    assert tensors_digest(tensors) == hashlib.sha256(by_hand).digest()


def test_the_tensor_digest_tells_name_type_shape_and_bytes_apart() -> None:
    data = bytes(range(8))
    variants = [
        Tensor("a", "F32", (2,), data),
        Tensor("b", "F32", (2,), data),
        Tensor("a", "I32", (2,), data),
        Tensor("a", "F32", (1, 2), data),
        Tensor("a", "F32", (2,), bytes(8)),
    ]
    assert len({tensors_digest([tensor]) for tensor in variants}) == len(variants)


@pytest.mark.parametrize("names", [("b", "a"), ("a", "a")])
def test_tensors_out_of_order_or_twice_are_refused_by_name(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=f"tensor '{names[1]}' follows '{names[0]}'"):
        tensors_digest(Tensor(name, "F32", (0,), b"") for name in names)


def test_the_identity_covers_tensors_configuration_and_target() -> None:
    tensors, binding = bytes(range(32)), bytes(range(32, 64))
    by_hand = b"ofl-dspark-identity-v1\0" + tensors + binding + b'{"block_size":5,"name":"\\u00e9"}'
    config = {"name": "é", "block_size": 5}
    assert identity(tensors, config, binding) == hashlib.sha256(by_hand).digest()
    others = {
        identity(bytes(32), config, binding),
        identity(tensors, config | {"block_size": 6}, binding),
        identity(tensors, config, bytes(32)),
    }
    assert len(others | {identity(tensors, config, binding)}) == 4


def test_the_target_binding_covers_every_fact() -> None:
    facts: dict[str, Any] = {
        "vocabulary": 512,
        "hidden_size": 192,
        "num_hidden_layers": 6,
        "tokenizer_sha256": None,
    }
    by_hand = b"ofl-target-binding-v1\0"
    by_hand += b'{"hidden_size":192,"num_hidden_layers":6,"tokenizer_sha256":null,"vocabulary":512}'
    assert target_binding(**facts) == hashlib.sha256(by_hand).digest()
    changed = [facts | {name: 7} for name in ("vocabulary", "hidden_size", "num_hidden_layers")]
    changed.append(facts | {"tokenizer_sha256": "0" * 64})
    assert len({target_binding(**each) for each in [facts, *changed]}) == 5


def test_canonical_json_refuses_what_json_cannot_say() -> None:
    assert canonical_json({"b": 1, "a": [True, None]}) == b'{"a":[true,null],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 63 + "\n", "\u0660" * 64])
def test_a_digest_that_is_not_64_lower_case_hex_digits_is_refused_by_field(text: str) -> None:
    with pytest.raises(ValueError, match="IDENTITY: a sha256 digest"):
        parse_digest(text, "IDENTITY")


def test_digests_read_and_show() -> None:
    assert parse_digest("0f" * 32, "x") == b"\x0f" * 32
    assert hex_or_unstated([UNSTATED, b"\x0f" * 32]) == ["unstated", "0f" * 32]


@pytest.mark.parametrize("name", ["markov_head.w1.weight", "model.markov_head.w2"])
def test_markov_tensors_are_known_by_name(name: str) -> None:
    assert is_markov_tensor(name)
    assert not is_markov_tensor("layers.0." + name)
