"""What is measured, what is said of it, and how it is laid out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofl.bench import MAX_BYTES
from ofl.bench.figures import KINDS, SIZES, Case, Latency, Mode, Result, cases, parse_size
from ofl.bench.report import result_json, results_table, table


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("75000", 75_000), ("4K", 4096), ("1M", 1 << 20), ("13M", 13 << 20)]
)
def test_sizes_are_bytes_with_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "-1", "1k", "1G", "M", "1.5M", " 1", "0x10", "64M", "9" * 11, "1\n", "\u0663"]
)
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number of bytes"):
        parse_size(text)


def test_the_largest_size_leaves_room_for_the_header_of_a_request() -> None:
    assert parse_size(str(MAX_BYTES)) == MAX_BYTES == (64 << 20) - 16


def test_every_size_is_echoed_and_all_but_nothing_goes_each_way() -> None:
    made = cases([0, 64])
    assert [case.kind for case in made[1:]] == list(KINDS)
    assert [(case.name, case.nbytes) for case in made] == [
        ("echo", 0),
        ("echo", 64),
        ("to server", 64),
        ("to server, lent", 64),
        ("to client", 64),
        ("to client, placed", 64),
    ]


@given(st.integers(0, MAX_BYTES))
def test_a_window_keeps_the_wire_busy_and_the_memory_bounded(size: int) -> None:
    assert Case(Mode.ECHO, size).window == 1
    window = Case(Mode.TO_CLIENT, size, placed=True).window
    assert 2 <= window <= 8
    assert window == 2 or window * size <= 16 << 20


def test_percentiles_are_nearest_rank() -> None:
    latency = Latency.of(range(1, 10_001))
    assert latency == Latency(10_000, 1, 5_000, 9_000, 9_900, 9_990, 10_000, 5_000.5)
    assert Latency.of([7]) == Latency(1, 7, 7, 7, 7, 7, 7, 7.0)
    # Of ten samples, half are at most the fifth; p99.9 is the largest.
    assert (Latency.of([10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).p50_ns, Latency.of(range(10)).p999_ns) == (5, 9)


RESULT = Result(
    Case(Mode.TO_CLIENT, 1_000_000, placed=True), 50, Latency.of([2_000_000] * 10), 10_000_000, 0.5, 0.25
)


def test_bandwidth_is_the_bodies_over_the_whole_time() -> None:
    # 10 transfers of 1,000,000 bytes in 10 ms.
    assert RESULT.bytes_per_s == 1e9


def test_a_table_is_aligned_and_names_its_units() -> None:
    heading, row = results_table([RESULT]).splitlines()
    assert len(heading) == len(row)
    for unit in ("bytes", "spin us", "p99.9 us", "MB/s", "client CPU s", "server CPU s"):
        assert unit in heading
    assert row.split("  ")[0] == "to client, placed"
    assert row.split()[3:] == ["1000000", "50", "10", *["2000.0"] * 6, "1000.0", "0.500", "0.250"]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(["", "long heading"], [["name", "1"], ["longer name", "22222222222222"]]).splitlines() == [
        "               long heading",
        "name                      1",
        "longer name  22222222222222",
    ]


def test_json_has_the_same_figures_with_more_digits() -> None:
    shown = result_json(RESULT)
    assert shown["us"]["p999"] == 2000.0
    assert (shown["case"], shown["bytes"], shown["window"], shown["count"]) == (
        "to client, placed",
        1_000_000,
        RESULT.case.window,
        10,
    )
    assert (shown["elapsed_s"], shown["client_cpu_s"], shown["server_cpu_s"]) == (0.01, 0.5, 0.25)


def test_the_default_sizes_are_sizes() -> None:
    assert [parse_size(text) for text in SIZES] == [0, 8, 64, 512, 4096, 75_000, 1 << 20, 13 << 20]
