"""How golden vectors are made from samples: plain values, and mutations of one field each.  Of no contract."""

import dataclasses
import json
import struct
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from ofl.contract.records import Record

FOLDER = Path(__file__).parent / "vectors"


class Sample(Protocol):
    """A message with all that is needed to encode it; of a reply where `reply` is set."""

    @property
    def name(self) -> str: ...
    @property
    def envelope(self) -> Any: ...
    @property
    def request(self) -> Any: ...
    @property
    def reply(self) -> Any: ...
    @property
    def encoded(self) -> bytes: ...


def plain(value: object) -> object:
    """A message as JSON values: bytes as hex, enumerations by name."""
    if isinstance(value, Enum):
        return value.name if value.name is not None else int(value.value)
    if isinstance(value, bytes | memoryview):
        return value.hex()
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def vector(sample: Sample) -> dict[str, object]:
    message = sample.request if sample.reply is None else sample.reply
    return {
        "name": sample.name,
        "kind": "request" if sample.reply is None else "reply",
        "type": type(message).__name__,
        "hex": sample.encoded.hex(),
        "envelope": plain(sample.envelope),
        "message": plain(message),
    }


def mutant(
    samples: Mapping[str, Sample],
    header: Record,
    name: str,
    sample: str,
    record: Record | None = None,
    record_field: str = "",
    value: object = 0,
    *,
    at: int | None = None,
    data: bytes = b"",
    cut: int | None = None,
    append: bytes = b"",
    resize: bool = False,
    field: str = "",
) -> dict[str, object]:
    """A sample's bytes with one record field set to value, or data put at an offset, or cut, or longer.

    resize: make the header's length true again.  field: what the refusal names, else the record field.
    """
    message = bytearray(samples[sample].encoded)
    if record is not None:
        start = 0 if record is header else header.size
        code = next(f.code for f in record.fields if f.name == record_field)
        struct.pack_into("<" + code, message, start + record.offsets[record_field], value)
        field = field or f"{record.name}.{record_field}"
    elif at is not None:
        message[at : at + len(data)] = data
    if cut is not None:
        del message[cut:]
    message += append
    if resize:
        struct.pack_into("<I", message, header.offsets["body_bytes"], len(message) - header.size)
    kind = "request" if samples[sample].reply is None else "reply"
    return {"name": name, "of": sample, "kind": kind, "hex": message.hex(), "field": field}


def as_text(document: dict[str, object]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=False) + "\n"


def write(documents: Mapping[str, dict[str, object]]) -> None:
    """Documents by file name, into `FOLDER`."""
    FOLDER.mkdir(exist_ok=True)
    for name, document in documents.items():
        (FOLDER / name).write_text(as_text(document), encoding="utf-8")


def read(name: str) -> Any:
    """A document as it is committed."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def comparable(value: object) -> Any:
    """A message as it stands in a document that was read."""
    return json.loads(json.dumps(plain(value)))


def vectors(samples: Iterable[Sample]) -> list[dict[str, object]]:
    """The samples, each with its bytes and what they decode to."""
    return [vector(sample) for sample in samples]
