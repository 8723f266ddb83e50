"""Synthetic rows: any row alone is the row of the whole, all bytes occur, and the stream is as documented."""

import numpy as np
import pytest
from engram_remote.tables.synthetic import SyntheticTables, even_heads, synthetic_rows
from hypothesis import given
from hypothesis import strategies as st

NAN_BYTES = {0x7F, 0xFF}


def by_hand(seed: int, layer: int, row: int, columns: int, scales: int) -> bytes:
    """One row as docs/engram/format.md says: Philox 4x64 at the row's counter, then two bytes of the row's number."""
    steps = -(-(columns + scales) // 32)
    words = np.random.Philox(key=seed + layer * 2**64, counter=row * steps).random_raw(steps * 4)
    data = bytearray(b"".join(int(word).to_bytes(8, "little") for word in words)[: columns + scales])
    data[0], data[columns] = (row + 127) % 256, row % 256
    return bytes(data)


@given(
    seed=st.integers(0, 2**53 - 1),
    layer=st.integers(0, 2**32 - 1),
    ids=st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 40), max_size=30),
    scales=st.integers(1, 9),
    block=st.integers(1, 40),
)
def test_any_ids_in_any_order_give_the_rows_of_the_documented_stream(
    seed: int, layer: int, ids: list[int], scales: int, block: int
) -> None:
    rows = synthetic_rows(seed, layer, ids, scales * block, scales)
    assert rows.shape == (len(ids), scales * block + scales)
    assert rows.dtype == np.uint8
    expected = {row: by_hand(seed, layer, row, scales * block, scales) for row in set(ids)}
    assert [row.tobytes() for row in rows] == [expected[row] for row in ids]


@given(start=st.integers(0, 1000), count=st.integers(1, 50))
def test_a_source_reads_what_single_rows_are(start: int, count: int) -> None:
    tables = SyntheticTables(5, even_heads({1: 2000, 9: 2000}, 64, 2), 32)
    for layer in (1, 9):
        rows = tables.read(layer, start, start + count)
        np.testing.assert_array_equal(rows, synthetic_rows(5, layer, range(start, start + count), 64, 2))


def test_any_256_rows_hold_every_byte_among_values_and_scales_with_both_nans() -> None:
    rows = synthetic_rows(0, 1, range(1000, 1256), 32, 1)
    assert set(rows[:, 0].tolist()) == set(rows[:, 32].tolist()) == set(range(256))
    assert set(rows[:, :32].reshape(-1).tolist()) >= NAN_BYTES


def test_rows_differ_by_seed_layer_and_number() -> None:
    rows = [
        synthetic_rows(seed, layer, [row], 256, 8).tobytes()
        for seed in (0, 1)
        for layer in (1, 14)
        for row in (0, 256)
    ]
    assert len(set(rows)) == 8


def test_ids_that_no_table_has_and_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="ids: "):
        synthetic_rows(0, 1, [-1], 256, 8)
    with pytest.raises(ValueError, match="ids: "):
        synthetic_rows(0, 1, [2**31], 256, 8)
    with pytest.raises(ValueError, match="rows: 3 of layer 1"):
        even_heads({1: 3}, 256, 4)
    with pytest.raises(ValueError, match="seed: "):
        SyntheticTables(-1, even_heads({1: 3}, 256, 3), 32)
    with pytest.raises(ValueError, match="columns: 250"):
        SyntheticTables(0, even_heads({1: 3}, 250, 3), 32)


def test_rows_are_split_as_evenly_as_can_be() -> None:
    layout = even_heads({14: 11, 1: 9}, 256, 3)
    assert [(layer.layer, layer.head_sizes) for layer in layout.layers] == [(1, (3, 3, 3)), (14, (4, 4, 3))]
