"""The bytes of a shard: header there and back, golden bytes, and rows packed as the format says."""

import struct
from pathlib import Path

import numpy as np
import pytest
from engram_remote.tables.errors import ShardError
from engram_remote.tables.layout import (
    HEADER,
    HEADER_BYTES,
    ShardHeader,
    pack_header,
    pack_rows,
    scales_of,
    unpack_header,
    unpack_rows,
)
from engram_tables import make_table
from hypothesis import given
from hypothesis import strategies as st

FILE = Path("layer-1.rank-1.engram")
SAMPLE = ShardHeader(
    layer=14,
    rank=1,
    ranks=2,
    columns=256,
    scale_block=32,
    row_start=70,
    row_end=130,
    source_sha256=bytes(range(32)),
)


def test_the_header_is_the_golden_bytes() -> None:
    golden = (
        b"ENGRAMSH"
        + struct.pack("<9I2H2Q", 1, 4096, 14, 1, 2, 256, 8, 32, 264, 1, 1, 70, 130)
        + bytes(range(32))
        + bytes(4000)
    )
    assert pack_header(SAMPLE) == golden
    assert len(golden) == HEADER_BYTES


HEADERS = st.builds(
    lambda layer, rank, more, block, scales, start, rows, sha: ShardHeader(
        layer, rank, rank + more, block * scales, block, start, start + rows, sha
    ),
    st.integers(0, 2**32 - 1),
    st.integers(0, 500),
    st.integers(1, 500),
    st.integers(1, 256),
    st.integers(1, 256),
    st.integers(0, 2**30),
    st.integers(1, 2**30),
    st.binary(min_size=32, max_size=32),
)


@given(HEADERS)
def test_a_header_comes_back_as_it_was_packed(header: ShardHeader) -> None:
    assert unpack_header(FILE, pack_header(header)) == header
    assert header.file_bytes == 4096 + (header.row_end - header.row_start) * (header.columns + header.scales)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", b"engramsh"),
        ("format_version", struct.pack("<I", 2)),
        ("header_bytes", struct.pack("<I", 8192)),
        ("rank", struct.pack("<I", 2)),
        ("columns", struct.pack("<I", 0)),
        ("columns", struct.pack("<I", 250)),
        ("scales", struct.pack("<I", 9)),
        ("row_bytes", struct.pack("<I", 265)),
        ("value_dtype", struct.pack("<H", 2)),
        ("scale_dtype", struct.pack("<H", 2)),
        ("row_end", struct.pack("<Q", 70)),
        ("row_end", struct.pack("<Q", 2**31 + 1)),
        ("reserved0", b"\1"),
    ],
)
def test_a_header_that_says_something_else_is_refused_by_file_and_field(field: str, value: bytes) -> None:
    data = bytearray(pack_header(SAMPLE))
    at = HEADER.offsets[field]
    data[at : at + len(value)] = value
    with pytest.raises(ShardError) as caught:
        unpack_header(FILE, data)
    assert caught.value.file == FILE
    assert caught.value.field.split(".")[-1] == field


def test_every_bit_of_the_header_is_either_a_stated_value_or_refused() -> None:
    packed = pack_header(SAMPLE)
    stated = 8 * HEADER.offsets["reserved0"]
    for bit in [*range(stated), *range(stated, 8 * HEADER_BYTES, 997)]:
        data = bytearray(packed)
        data[bit // 8] ^= 1 << bit % 8
        try:
            header = unpack_header(FILE, data)
        except ShardError:
            continue
        assert header != SAMPLE


def test_a_header_cut_short_is_refused() -> None:
    with pytest.raises(ShardError, match="4095 bytes where the record needs 4096"):
        unpack_header(FILE, pack_header(SAMPLE)[:-1])


@given(rows=st.integers(0, 9), scales=st.integers(1, 5), block=st.integers(1, 40), seed=st.integers(0, 99))
def test_rows_are_values_then_scales_and_come_apart_again(
    rows: int, scales: int, block: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, (rows, scales * block), np.uint8)
    exponents = random.integers(0, 256, (rows, scales), np.uint8)
    packed = pack_rows(values, exponents)
    assert packed.tobytes() == b"".join(
        values[row].tobytes() + exponents[row].tobytes() for row in range(rows)
    )
    for part, expected in zip(unpack_rows(packed, scales * block), (values, exponents), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_all_bytes_are_carried_and_none_is_changed() -> None:
    values, scales = make_table(64)
    assert set(values.reshape(-1)) == set(scales.reshape(-1)) == set(range(256))
    packed = pack_rows(values, scales)
    np.testing.assert_array_equal(packed[:, :256], values)
    np.testing.assert_array_equal(packed[:, 256:], scales)


def test_arrays_that_are_no_rows_are_refused() -> None:
    values, scales = make_table(64)
    with pytest.raises(ValueError, match="64 of values and 63 of scales"):
        pack_rows(values, scales[:63])
    with pytest.raises(ValueError, match="7 a row do not divide 256"):
        pack_rows(values, scales[:, :7])
    with pytest.raises(ValueError, match="arrays of bytes"):
        pack_rows(values.astype(np.int16), scales)
    with pytest.raises(ValueError, match="arrays of bytes"):
        pack_rows(values[0], scales[0])


def test_widths_other_than_256_are_supported_and_uneven_ones_refused() -> None:
    assert [scales_of(256, 32), scales_of(128, 32), scales_of(96, 16), scales_of(5, 5)] == [8, 4, 6, 1]
    for columns, block in ((0, 32), (65537, 1), (250, 32), (256, 0)):
        with pytest.raises(ValueError, match=f"columns: {columns} is"):
            scales_of(columns, block)
