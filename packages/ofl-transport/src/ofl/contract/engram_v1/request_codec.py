"""Bodies of requests: OPEN and LOOKUP.  Checks the same rules on the way out and on the way in."""

from collections.abc import Sequence

from ofl.contract.engram_v1.layout import (
    BATCH_ROWS_MAX,
    COLUMNS_MAX,
    LAYERS_MAX,
    LOOKUP,
    LOOKUP_FLAGS_ALL,
    LOOKUP_PART,
    NO_ROW,
    OPEN,
    OPEN_LAYER,
    RANKS_MAX,
    LookupFlag,
)
from ofl.contract.engram_v1.messages import ID_BYTES, Lookup, LookupPart, Open, OpenLayer
from ofl.contract.fields import ends
from ofl.contract.records import Buffer, ContractError


def pack_open(message: Open) -> list[Buffer]:
    """Raises ContractError naming the first field that breaks a rule."""
    _check_open(message, len(message.layers))
    _check_layers(message.layers)
    head = OPEN.pack_row(
        message.identity,
        message.columns,
        message.scales,
        message.rank,
        message.ranks,
        len(message.layers),
        message.batch_rows_max,
    )
    records = (OPEN_LAYER.pack_row(one.row_start, one.row_end, one.layer) for one in message.layers)
    return [head, *records]


def unpack_open(body: memoryview) -> Open:
    """Raises ContractError naming the first field that breaks a rule."""
    identity, columns, scales, rank, ranks, count, batch_rows_max = OPEN.row(body)
    head = Open(identity, columns, scales, rank, ranks, batch_rows_max, ())
    _check_open(head, count)
    ends(body, OPEN.size + count * OPEN_LAYER.size, "open.layers")
    layers = []
    for index in range(count):
        row_start, row_end, layer = OPEN_LAYER.row(body, OPEN.size + index * OPEN_LAYER.size)
        layers.append(OpenLayer(layer, row_start, row_end))
    _check_layers(layers)
    return Open(identity, columns, scales, rank, ranks, batch_rows_max, tuple(layers))


def pack_lookup(message: Lookup) -> list[Buffer]:
    """Raises ContractError naming the first field that breaks a rule; ids are passed on without a copy."""
    _check_flags(message.flags)
    _check_parts(len(message.parts))
    for index, part in enumerate(message.parts):
        if len(part.ids) % ID_BYTES:
            raise ContractError(f"lookup_part[{index}].ids", f"{len(part.ids)} bytes are no whole ids")
    _check_part_layers([part.layer for part in message.parts])
    _check_rows(message.rows)
    records = b"".join(LOOKUP_PART.pack_row(part.layer, part.rows) for part in message.parts)
    return [LOOKUP.pack_row(message.flags, len(message.parts)), records, *(one.ids for one in message.parts)]


def unpack_lookup(body: memoryview) -> Lookup:
    """Ids are views into body.  Raises ContractError naming the first field that breaks a rule."""
    flags, count = LOOKUP.row(body)
    _check_flags(flags)
    _check_parts(count)
    ids_at = LOOKUP.size + count * LOOKUP_PART.size
    if len(body) < ids_at:
        raise ContractError("lookup.parts", f"{len(body)} bytes where the parts need {ids_at}")
    heads = [LOOKUP_PART.row(body, LOOKUP.size + index * LOOKUP_PART.size) for index in range(count)]
    _check_part_layers([layer for layer, _ in heads])
    rows = sum(ids for _, ids in heads)
    ends(body, ids_at + rows * ID_BYTES, "lookup_part.ids")
    _check_rows(rows)
    parts = []
    for layer, ids in heads:
        parts.append(LookupPart(layer, body[ids_at : ids_at + ids * ID_BYTES]))
        ids_at += ids * ID_BYTES
    return Lookup(tuple(parts), LookupFlag(flags))


def _check_open(message: Open, layers: int) -> None:
    _check_range("open.columns", message.columns, 1, COLUMNS_MAX)
    _check_range("open.scales", message.scales, 1, message.columns)
    _check_range("open.ranks", message.ranks, 1, RANKS_MAX)
    _check_range("open.rank", message.rank, 0, message.ranks - 1)
    _check_range("open.layers", layers, 1, LAYERS_MAX)
    _check_range("open.batch_rows_max", message.batch_rows_max, 1, BATCH_ROWS_MAX)


def _check_layers(layers: Sequence[OpenLayer]) -> None:
    seen = set()
    for index, one in enumerate(layers):
        where = f"open_layer[{index}]"
        _check_range(f"{where}.row_end", one.row_end, 0, NO_ROW)
        if one.row_start > one.row_end:
            raise ContractError(f"{where}.row_start", f"{one.row_start} is past the end at {one.row_end}")
        if one.layer in seen:
            raise ContractError(f"{where}.layer", f"layer {one.layer} stands there before")
        seen.add(one.layer)


def _check_flags(flags: int) -> None:
    # As a number: an IntFlag inverts within its own members, and would let every other bit pass.
    if flags & ~int(LOOKUP_FLAGS_ALL):
        raise ContractError("lookup.flags", f"{int(flags)} has bits that are not defined")


def _check_parts(count: int) -> None:
    _check_range("lookup.parts", count, 1, LAYERS_MAX)


def _check_part_layers(layers: Sequence[int]) -> None:
    seen = set()
    for index, layer in enumerate(layers):
        _check_range(f"lookup_part[{index}].layer", layer, 0, LAYERS_MAX - 1)
        if layer in seen:
            raise ContractError(f"lookup_part[{index}].layer", f"layer {layer} stands there before")
        seen.add(layer)


def _check_rows(rows: int) -> None:
    _check_range("lookup_part.ids", rows, 0, BATCH_ROWS_MAX)


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ContractError(field, f"{value} is not {least} .. {most}")
