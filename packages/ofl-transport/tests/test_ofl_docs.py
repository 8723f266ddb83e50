"""docs/transport says what the code does: wire tables against the C++ structs, limits and counters against the API."""

import inspect
import re
from pathlib import Path

import pytest
from ofl.client import HEARTBEAT_NS, LOSS_NS, SPIN_NS, connect
from ofl.probe import CONNECTION_BYTES
from ofl.server import Server
from ofl.settings import HEARTBEAT, SETTINGS
from transport_harness import Harness

PACKAGE = Path(__file__).parents[1]
DOCS = PACKAGE.parents[1] / "docs" / "transport"
SIZES = {"char": 1, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8}
STRUCTS = {
    "FrameHeader": 24,
    "ConnectBody": 128,
    "ChallengeBody": 32,
    "ProofBody": 32,
    "AcceptBody": 56,
    "RefuseBody": 8,
    "PlacementRecord": 16,
    "RdmaLinkBody": 40,
    "ShmLinkBody": 16,
}


def struct_rows(name: str) -> list[tuple[int, int, str]]:
    """(offset, bytes, field) of a struct in wire.hpp, which has no padding."""
    source = (PACKAGE / "cpp" / "wire.hpp").read_text()
    block = re.search(rf"struct {name} {{(.*?)\n}};", source, re.DOTALL)
    assert block is not None
    rows, offset = [], 0
    for kind, field, array in re.findall(r"^\s+(?:std::)?(\w+) (\w+)(?:\[(\w+)\])?;", block[1], re.MULTILINE):
        named = re.search(rf"{array} = (\d+);", source) if array else None
        size = SIZES[kind] * int(named[1] if named else array or 1)
        rows.append((offset, size, field))
        offset += size
    return rows


def table_rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its own heading left out."""
    section = text.split(heading, 1)[1]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    count = next(
        (i for i, line in enumerate(section.splitlines()[2:]) if not line.startswith("|")), len(lines)
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:count]]


@pytest.mark.parametrize(("name", "size"), STRUCTS.items())
def test_the_wire_tables_match_the_structs(name: str, size: int) -> None:
    rows = table_rows((DOCS / "wire.md").read_text(), f"# {name} ({size} bytes)")
    assert [(int(offset), int(count), field) for offset, count, field, _ in rows] == struct_rows(name)
    assert sum(int(row[1]) for row in rows) == size


def test_every_struct_of_the_wire_is_among_them() -> None:
    source = (PACKAGE / "cpp" / "wire.hpp").read_text()
    declared = set(re.findall(r"^struct (\w+) {", source, re.MULTILINE))
    assert declared - set(STRUCTS) == {"Slot"}, (
        "a slot is how both ends see a sequence number, and is never sent"
    )


def test_the_frame_types_match() -> None:
    source = (PACKAGE / "cpp" / "wire.hpp").read_text()
    block = re.search(r"enum class FrameType.*?{(.*?)}", source, re.DOTALL)
    assert block is not None
    declared = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+),", block[1])}
    documented = re.findall(
        r"^\| (\d+) \| (\w+) \| (?:client|server|both)", (DOCS / "wire.md").read_text(), re.MULTILINE
    )
    assert {name: int(value) for value, name in documented} == declared


def limits() -> dict[str, tuple[str, str, str]]:
    """Where a name of the table of limits belongs, its default and its meaning."""
    text = (DOCS / "limits.md").read_text()
    return {row[0]: (row[1], row[2], row[3]) for row in table_rows(text, "# Limits, tunables and counters\n")}


def test_every_option_is_in_the_table_with_its_default() -> None:
    table = limits()
    from_environment = {"heartbeat_ns": "50 ms", "loss_ns": "250 ms", "spin_ns": "50 us"}
    assert (HEARTBEAT_NS, LOSS_NS, SPIN_NS) == (50 * 10**6, 250 * 10**6, 50 * 10**3)
    skipped = {"self", "service", "version_min", "version_max", "deadline_ns", "endpoint"}
    for where, function in (("connect", connect), ("Server", Server.__init__)):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in skipped:
                continue
            assert where in table[name][0], name
            default = parameter.default
            if name in from_environment:
                assert table[name][1] == from_environment[name]
            elif name.endswith("_ns"):
                assert table[name][1] == f"{default // 10**9} s"
            elif default not in (inspect.Parameter.empty, None, ()):
                assert table[name][1] == str(default)


def test_every_environment_variable_is_in_the_table_with_its_default_and_range() -> None:
    table = limits()
    assert SETTINGS
    for setting in SETTINGS:
        where, default, meaning = table[setting.name]
        assert (where, default) == ("environment", str(setting.default_ns // setting.unit_ns))
        assert f", {setting.lowest:,} to {setting.highest:,}" in meaning
    assert f", {HEARTBEAT.lowest} ms to {HEARTBEAT.highest // 1000} s;" in table["heartbeat_ns"][2]


def constant(place: str, name: str) -> int:
    """The value of a constant of a C++ file; of a span, in nanoseconds."""
    found = re.search(rf"\b{name} = ([^;]+);", (PACKAGE / "cpp" / place).read_text())
    assert found is not None, name
    expression = re.sub(r"\b(\d+)U\b", r"\1", found[1])
    names = {word: constant(place, word) for word in re.findall(r"\bk(?!Second)\w+", expression)}
    return int(eval(expression, {"__builtins__": {}}, names | {"kSecond": 10**9}))


def test_every_limit_of_the_library_is_the_one_of_the_code() -> None:
    kib, mib = 1 << 10, 1 << 20
    receives, slots = constant("rdma_limits.hpp", "kReceives"), constant("rdma_limits.hpp", "kSendSlots")
    segment = constant("rdma_limits.hpp", "kSegmentBytes")
    smallest, largest = (
        constant("shm_region.hpp", name) for name in ("kRingBytesChosenMin", "kRingBytesMax")
    )
    expected = {
        "parts": f"{constant('backend.hpp', 'kPartsMax')}",
        "landing slot": f"{constant('client.hpp', 'kSlotBytes')} bytes",
        "lent body": f"{constant('body.hpp', 'kLentMax')} bytes",
        "queued events": f"{constant('server.hpp', 'kEventsMax')}",
        "drain": f"{constant('connection_end.cpp', 'kDrain') / 10**9:g} s",
        "kept bodies": f"{constant('body.cpp', 'kKeptBytesMax') / mib:g} MiB",
        "receives, send slots": f"{receives} and {slots} of {segment / kib:g} KiB",
        "unseen bytes": f"{constant('rdma_limits.hpp', 'kUnseenBytesMax') / mib:g} MiB",
        "ring": f"{smallest / kib:g} KiB to {largest / mib:g} MiB",
    }
    table = limits()
    assert {name: row[1] for name, row in table.items() if row[0].startswith("library")} == expected
    assert f" of {constant('body.cpp', 'kKeptMin') / kib:g} KiB and more " in table["kept bodies"][2]
    assert (receives + slots) * segment == CONNECTION_BYTES
    assert f"{CONNECTION_BYTES / mib:g} MiB at each end" in table["receives, send slots"][2]


def test_every_counter_is_in_the_table(harness: Harness) -> None:
    rows = table_rows((DOCS / "limits.md").read_text(), "## Counters of a server")
    assert [row[0] for row in rows] == list(harness.server().counters())
