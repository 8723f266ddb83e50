"""Hypothesis strategies for messages that `engram-v1` allows."""

from hypothesis import strategies as st
from ofl.contract.engram_v1 import (
    Lookup,
    LookupFlag,
    LookupPart,
    LookupReply,
    Open,
    OpenLayer,
    OpenReply,
    Planes,
    pack_ids,
)
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
DIGEST = st.binary(min_size=32, max_size=32)


@st.composite
def opens(draw: st.DrawFn) -> Open:
    """Connections with rows small enough for thousands of examples."""
    columns = draw(st.integers(1, 70))
    ranks = draw(st.integers(1, 1024))
    layers = draw(st.lists(U32, min_size=1, max_size=6, unique=True))
    ranges = [sorted(draw(st.lists(U32, min_size=2, max_size=2))) for _ in layers]
    return Open(
        draw(DIGEST),
        columns,
        draw(st.integers(1, columns)),
        draw(st.integers(0, ranks - 1)),
        ranks,
        draw(st.integers(1, BATCH_ROWS_MAX)),
        tuple(OpenLayer(layer, *rows) for layer, rows in zip(layers, ranges, strict=True)),
    )


@st.composite
def open_replies(draw: st.DrawFn, request: Open) -> OpenReply:
    most = draw(st.integers(request.batch_rows_max, BATCH_ROWS_MAX))
    return OpenReply(request.identity, draw(U64), most, draw(st.integers(1, 2**32 - 1)))


@st.composite
def lookups(draw: st.DrawFn) -> Lookup:
    layers = draw(st.lists(st.integers(0, 63), min_size=1, max_size=5, unique=True))
    parts = tuple(LookupPart(layer, pack_ids(draw(st.lists(U32, max_size=9)))) for layer in layers)
    return Lookup(parts, draw(st.sampled_from(LookupFlag)))


@st.composite
def lookup_replies(draw: st.DrawFn, request: Lookup, opened: Open) -> LookupReply:
    def plane(size: int) -> bytes:
        return draw(st.binary(min_size=size, max_size=size))

    parts = tuple(
        Planes(plane(part.rows * opened.columns), plane(part.rows * opened.scales)) for part in request.parts
    )
    checksum = draw(U64) if request.flags else 0
    return LookupReply(parts, request.flags, checksum, draw(U64))
