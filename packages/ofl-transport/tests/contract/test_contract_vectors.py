"""The golden vectors pin every message: the code writes these bytes, reads these values, refuses these
fields.
"""

import json
from typing import Any

import pytest
import write_vectors
from contract_samples import BY_NAME, SAMPLES, SHAPE, sent_envelope
from contract_vectors import as_text, comparable, read
from ofl.contract.dspark_v1 import Reply, Request, decode_reply, decode_request
from ofl.contract.dspark_v1.layout import RECORDS
from ofl.contract.records import ContractError

ACCEPTED = read("accepted.json")
REFUSED = read("refused.json")


def decode(kind: str, sample_name: str, wire: bytes) -> Request | Reply:
    sample = BY_NAME[sample_name]
    if kind == "request":
        return decode_request(wire, SHAPE)[1]
    return decode_reply(wire, sent_envelope(sample), sample.request, SHAPE)


def test_the_committed_vectors_are_what_the_generator_writes() -> None:
    assert json.loads(as_text(write_vectors.accepted())) == ACCEPTED
    assert json.loads(as_text(write_vectors.refused())) == REFUSED


def test_every_message_type_and_record_has_a_vector() -> None:
    types = {vector["type"] for vector in ACCEPTED["vectors"]}
    assert types == {member.__name__ for member in (*Request.__args__, *Reply.__args__)}
    assert {
        name.partition(".")[0].partition("[")[0] for name in (v["field"] for v in REFUSED["vectors"])
    } >= {record.name for record in RECORDS} - {"step_reply", "hello_reply"}


@pytest.mark.parametrize("vector", ACCEPTED["vectors"], ids=lambda v: v["name"])
def test_accepted_bytes_decode_to_the_written_values(vector: dict[str, Any]) -> None:
    message = decode(vector["kind"], vector["name"], bytes.fromhex(vector["hex"]))
    assert comparable(message) == vector["message"]


@pytest.mark.parametrize("vector", REFUSED["vectors"], ids=lambda v: v["name"])
def test_refused_bytes_name_their_field(vector: dict[str, Any]) -> None:
    with pytest.raises(ContractError) as caught:
        decode(vector["kind"], vector["of"], bytes.fromhex(vector["hex"]))
    assert caught.value.field == vector["field"]


# The bytes below were put together by hand from the tables in docs/contract/dspark-v1.md.


def test_ping_bytes_by_hand() -> None:
    assert BY_NAME["ping"].encoded.hex(" ") == (
        "44 53 50 4b 01 00 03 00 00 00 00 00 00 00 00 00 "  # 'DSPK', version 1, op 3, epoch 0
        "09 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 "  # round 9, 8 bytes follow
        "01 02 03 04 05 06 07 08"  # payload 0x0807060504030201
    )


def test_step_bytes_by_hand() -> None:
    assert BY_NAME["step"].encoded[:100].hex(" ") == (
        "44 53 50 4b 01 00 02 00 00 00 00 00 03 00 00 00 "  # op 2, epoch 3
        "88 77 66 55 44 33 22 11 8c 00 00 00 00 00 00 00 "  # round, 8 + 3 x 32 + 6 x 6 = 140 bytes
        "03 00 00 00 06 00 00 00 "  # 3 entries, 6 rows
        "02 00 07 00 07 00 00 00 0a 00 00 00 03 00 00 00 "  # slot 2, flags 7, generation 7, rows 10 .. 12
        "0a 00 00 00 85 03 00 00 02 00 00 00 00 00 00 00 "  # window from 10, anchor 901, n_out 2
        "04 00 02 00 01 00 00 00 09 00 00 00 01 00 00 00 "  # slot 4, NEED_DRAFT, generation 1, row 9
        "06 00 00 00 05 00 00 00 01 00 00 00"  # window from 6 = 10 - 4: whole; anchor 5
    )


def test_step_reply_block_by_hand() -> None:
    assert BY_NAME["step_reply"].encoded[32:104].hex(" ") == (
        "03 00 00 00 15 00 00 00 c2 01 00 00 00 00 00 00 "  # 3 entries, 21 us queued, 450 us drafted
        "02 00 00 00 07 00 00 00 0a 00 00 00 0d 00 00 00 02 00 00 00 00 00 00 00 "  # OK, 7, 10 .. 13
        "11 00 00 00 e7 03 00 00 "  # drafts 17, 999
        "00 00 00 3f 00 00 80 3e "  # confidences 0.5, 0.25
        "00 00 c0 3f 00 00 00 00 "  # margins 1.5, 0
        "04 00 03 00 01 00 00 00"  # slot 4, GAP, generation 1
    )


def test_names_of_samples_are_unique() -> None:
    assert len(BY_NAME) == len(SAMPLES)
