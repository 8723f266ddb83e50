"""The small readers and writers that the codecs of all contracts share.

Each raises ContractError naming the field, and nothing else.
"""

from enum import Enum
from typing import TypeVar

from ofl.contract.records import Buffer, ContractError, Record

Code = TypeVar("Code", bound=Enum)


def whole(record: Record, body: memoryview) -> dict[str, object]:
    """The values of a body that is exactly one record."""
    values = record.unpack(body)
    ends(body, record.size, record.name)
    return values


def ends(body: memoryview, size: int, field: str) -> None:
    """Raises ContractError naming field unless body is exactly size bytes long."""
    if len(body) != size:
        raise ContractError(field, f"{len(body)} bytes where {size} are needed")


def code(kind: type[Code], value: object, field: str) -> Code:
    """The member of an enumeration.  Raises ContractError with all that is allowed."""
    member: Code | None = kind._value2member_map_.get(value)  # type: ignore[assignment]  # mypy: Enum's map
    if member is None:
        allowed = ", ".join(f"{m.value} {m.name}" for m in kind)
        raise ContractError(field, f"{value} is none of {allowed}")
    return member


def text(data: Buffer, field: str, encoding: str = "utf-8") -> str:
    """Bytes as text.  Raises ContractError where they are not."""
    try:
        return bytes(data).decode(encoding)
    except UnicodeDecodeError as error:
        raise ContractError(field, f"not {encoding}: {error.reason} at byte {error.start}") from None


def encoded(value: str, field: str, encoding: str = "utf-8") -> bytes:
    """Text as bytes.  Raises ContractError where the encoding cannot hold it."""
    try:
        return value.encode(encoding)
    except UnicodeEncodeError as error:
        raise ContractError(field, f"{value!r} is not {encoding}: {error.reason}") from None
