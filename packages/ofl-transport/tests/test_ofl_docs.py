"""docs/transport says what the code does: wire tables against the C++ structs, limits and counters against the API."""

import inspect
import re
from pathlib import Path

import pytest
from ofl.client import HEARTBEAT_NS, LOSS_NS, SPIN_NS, connect
from ofl.server import Server
from ofl.settings import SETTINGS
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


def limits() -> dict[str, tuple[str, str]]:
    """Where a name of the table of limits belongs, and its default."""
    text = (DOCS / "limits.md").read_text()
    return {row[0]: (row[1], row[2]) for row in table_rows(text, "# Limits, tunables and counters\n")}


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


def test_every_environment_variable_is_in_the_table() -> None:
    table = limits()
    for setting in SETTINGS:
        assert table[setting.name][0] == "environment"


def test_every_counter_is_in_the_table(harness: Harness) -> None:
    rows = table_rows((DOCS / "limits.md").read_text(), "## Counters of a server")
    assert [row[0] for row in rows] == list(harness.server().counters())
