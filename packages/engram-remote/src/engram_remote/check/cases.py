"""Which ids are asked for: every corner, then as many random rows as were ordered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engram_remote.check.expected import ExpectedRows, Ids

PREFILL_ROWS = 49_152
"""A prefill chunk of 4,096 tokens with twelve hash columns."""
DECODE_ROWS = 288
"""A decode step of 24 tokens."""
RANDOM_SIZES = (DECODE_ROWS, PREFILL_ROWS, 4_096, 24, 16_384, 1_000)
ODD_TAILS = (2, 7, 63, 65, 255, 1_023, 4_097)
I32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Case:
    """One lookup.  batches: (position of the layer, ids)."""

    name: str
    batches: tuple[tuple[int, Ids], ...]

    @property
    def rows(self) -> int:
        return sum(len(ids) for _, ids in self.batches)


def corner_cases(tables: Sequence[ExpectedRows], rows_max: int, random: np.random.Generator) -> list[Case]:
    """Every corner of every layer, and lookups of several layers at once; none over rows_max."""
    cases = [
        Case(f"{name}, layer {table.layer}", ((at, ids),))
        for at, table in enumerate(tables)
        for name, ids in _of_one_layer(table, rows_max, random)
    ]
    if len(tables) > 1:
        cases += _of_several_layers(tables, rows_max, random)
    return cases


def random_cases(
    tables: Sequence[ExpectedRows], rows: int, rows_max: int, random: np.random.Generator
) -> Iterator[Case]:
    """Lookups of random rows until `rows` were asked for: layers in turn, sizes as decode and prefill have them."""
    left, turn = rows, 0
    while left > 0:
        size = min(RANDOM_SIZES[turn % len(RANDOM_SIZES)], rows_max, left)
        at = turn % len(tables)
        yield Case("random rows", ((at, _draw(tables[at], size, random)),))
        left, turn = left - size, turn + 1


def _of_one_layer(
    table: ExpectedRows, rows_max: int, random: np.random.Generator
) -> Iterator[tuple[str, Ids]]:
    first, last = table.row_start, table.row_end - 1
    outside = [id for id in (first - 1, -1, I32.min, last + 1, I32.max) if I32.min <= id <= I32.max]
    strangers = [id for id in outside if not first <= id <= last][:rows_max]
    yield "no id", _ids([])
    yield "first row", _ids([first])
    yield "last row", _ids([last])
    yield "one row", _draw(table, 1, random)
    yield "ids outside the shard", _ids(strangers)
    mixed = _draw(table, min(100, rows_max), random)
    mixed[::3] = np.resize(_ids(strangers), len(mixed[::3]))
    yield "rows and ids outside the shard", mixed
    yield "one row many times", np.full(min(1_000, rows_max), random.integers(first, last + 1), np.int32)
    few = _draw(table, min(8, rows_max), random)
    yield "few rows many times", random.choice(few, min(5_000, rows_max)).astype(np.int32)
    run = np.arange(first, min(last + 1, first + min(600, rows_max)), dtype=np.int32)
    yield "neighbouring rows", run
    yield "neighbouring rows backwards", np.ascontiguousarray(run[::-1])
    for size in ODD_TAILS:
        if size <= rows_max:
            yield f"{size} rows", _draw(table, size, random)
    yield "a prefill chunk", _draw(table, min(PREFILL_ROWS, rows_max), random)


def _of_several_layers(
    tables: Sequence[ExpectedRows], rows_max: int, random: np.random.Generator
) -> Iterator[Case]:
    each = rows_max // len(tables)
    for name, sizes in (
        ("all layers", [min(DECODE_ROWS, each)] * len(tables)),
        ("all layers, odd sizes", [min(1 + 61 * at, each) for at in range(len(tables))]),
        ("all layers, some empty", [min(33, each) * (at % 2) for at in range(len(tables))]),
        ("all layers empty", [0] * len(tables)),
        ("all layers, as many as fit", [each] * len(tables)),
    ):
        drawn = [(at, _draw(tables[at], size, random)) for at, size in enumerate(sizes)]
        yield Case(name, tuple(drawn))
        yield Case(f"{name}, last first", tuple(reversed(drawn)))


def _draw(table: ExpectedRows, size: int, random: np.random.Generator) -> Ids:
    return random.integers(table.row_start, table.row_end, size).astype(np.int32)


def _ids(ids: list[int]) -> Ids:
    return np.array(ids, np.int32)
