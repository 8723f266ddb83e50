"""The binding is the header, the C++ is the contract's layout, and table memory is what it says."""

import ctypes
import re
from enum import IntEnum
from pathlib import Path

import pytest
from engram_remote import abi, native
from engram_remote.server.memory import TableMemory
from engram_remote.server.metrics import GAUGES, HELP, REFUSED
from engram_remote.server.preflight import PreflightError, check_locked, check_memory, rooms
from ofl.contract.engram_v1 import layout
from ofl.contract.records import Record

CPP = Path(__file__).parents[1] / "cpp"
HEADER = (CPP / "include" / "engram.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
WIRE = re.sub(r"//[^\n]*", "", (CPP / "wire.hpp").read_text())
GIB = 1 << 30

MIRRORS = {
    "engram_server_options": abi.ServerOptions,
    "engram_table": abi.TableRecord,
    "engram_layer": abi.LayerRecord,
    "engram_client_options": abi.ClientOptions,
    "engram_batch": abi.BatchRecord,
    "engram_result": abi.ResultRecord,
    "engram_handover": abi.HandoverRecord,
    "engram_latency": abi.LatencyRecord,
}


def structs() -> dict[str, list[str]]:
    """Fields of every struct of the header that has a body, in order."""
    found = re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", CODE, re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?;", body) for name, body in found}


def test_every_struct_of_the_header_has_its_mirror() -> None:
    assert structs().keys() == MIRRORS.keys()


@pytest.mark.parametrize("name", MIRRORS)
def test_a_mirror_has_the_fields_of_its_struct_without_holes(name: str) -> None:
    mirror = MIRRORS[name]
    assert [field[0] for field in mirror._fields_] == structs()[name]
    assert sum(getattr(mirror, field[0]).size for field in mirror._fields_) == ctypes.sizeof(mirror)


def test_every_function_of_the_header_is_declared_with_as_many_arguments() -> None:
    found = re.findall(r"ENGRAM_EXPORT [\w *]+?\b(engram_\w+)\(([^)]*)\)", CODE)
    counts = {
        name: 0 if arguments.strip() == "void" else arguments.count(",") + 1 for name, arguments in found
    }
    assert counts.pop("engram_abi_version") == 0
    declared = abi.LIBRARY | abi.SERVER | abi.CLIENT
    assert {name: len(arguments) for name, (_, arguments) in declared.items()} == counts


def test_the_constants_of_the_header_are_ours() -> None:
    assert f"#define ENGRAM_ABI_VERSION {abi.ABI_VERSION}u" in CODE
    for name in ("SERVER_COUNTERS", "CLIENT_COUNTERS", "LATENCY_BUCKETS"):
        assert f"ENGRAM_{name} = {getattr(abi, name)}" in CODE
    block = re.search(r"typedef enum engram_status \{(.*?)\} engram_status;", CODE, re.DOTALL)
    assert block is not None
    statuses = {name: int(value) for name, value in re.findall(r"ENGRAM_(\w+) = (\d+)", block[1])}
    assert statuses == {status.name: status.value for status in abi.Status}
    for kind in (abi.ClientFlag, abi.Outcome):
        for member in kind:
            assert re.search(rf"ENGRAM_{member.name} = {member.value}\b", CODE), member
    assert f"ENGRAM_MEMORY_HUGE = {abi.MemoryFlag.HUGE.value}" in CODE
    assert ctypes.sizeof(abi.HandoverRecord) == abi.HANDOVER_IDS_AT


# --- the C++ wire is the contract's ---

CPP_TYPES = {"std::uint8_t": "u8", "std::uint16_t": "u16", "std::uint32_t": "u32", "std::uint64_t": "u64"}
CPP_TYPES["std::array<std::uint8_t, kIdentityBytes>"] = "bytes32"
CPP_CONSTANTS = {
    "kVersion": layout.VERSION,
    "kMagic": layout.MAGIC,
    "kLayersMax": layout.LAYERS_MAX,
    "kRanksMax": layout.RANKS_MAX,
    "kColumnsMax": layout.COLUMNS_MAX,
    "kBatchRowsMax": layout.BATCH_ROWS_MAX,
    "kNoRow": layout.NO_ROW,
    "kFieldBytesMax": layout.FIELD_BYTES_MAX,
    "kDetailBytesMax": layout.DETAIL_BYTES_MAX,
    "kStatsBytesMax": layout.STATS_BYTES_MAX,
    "kPlaneAlignment": layout.PLANE_ALIGNMENT,
    "kChecksum": layout.LookupFlag.CHECKSUM,
}


@pytest.mark.parametrize("record", layout.RECORDS, ids=lambda record: record.name)
def test_a_record_of_the_contract_is_a_struct_of_cpp(record: Record) -> None:
    name = "".join(word.capitalize() for word in record.name.split("_"))
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", WIRE, re.DOTALL)
    assert body is not None
    fields = re.findall(r"^  (std::[\w:<>, ]+?) (\w+);", body[1], re.MULTILINE)
    assert [(field.name, field.kind) for field in record.fields] == [
        (field, CPP_TYPES[kind]) for kind, field in fields
    ]
    assert f"sizeof({name}) == {record.size}" in WIRE


@pytest.mark.parametrize("name", CPP_CONSTANTS)
def test_a_constant_of_the_contract_is_one_of_cpp(name: str) -> None:
    found = re.search(rf"\b{name} = ([^;]+);", WIRE)
    assert found is not None
    expression = re.sub(r"(?<=[0-9A-Fa-f])U\b", "", found[1])
    left, _, shift = expression.partition("<<")
    assert int(left, 0) << int(shift or "0", 0) == CPP_CONSTANTS[name]


@pytest.mark.parametrize(
    ("kind", "name"), [(layout.Op, "Op"), (layout.Kind, "Kind"), (layout.Status, "Code")]
)
def test_an_enumeration_of_the_contract_is_one_of_cpp(kind: type[IntEnum], name: str) -> None:
    body = re.search(rf"enum class {name} : [\w:]+ \{{(.*?)\}};", WIRE, re.DOTALL)
    assert body is not None
    found = {word: int(value) for word, value in re.findall(r"(\w+) = (\d+)", body[1])}
    assert found == {member.name.lower(): member.value for member in kind}


def test_every_counter_has_its_words_for_prometheus() -> None:
    library, names = native.loaded(), []
    for index in range(abi.SERVER_COUNTERS):
        name = library.engram_server_counter_name(index)
        names += [name.decode()] if name is not None else []
    refused = {f"{REFUSED}{status.name.lower()}" for status in layout.Status if status}
    assert set(names) == refused | HELP.keys() | GAUGES.keys()


# --- memory and what it is checked against ---


def test_table_memory_is_zeroed_aligned_and_given_back() -> None:
    with TableMemory(5000) as memory:
        assert memory.text
        assert memory.address % 4096 == 0
        with memory.view() as view:
            assert len(view) == 5000
            assert not any(view)
            view[4999] = 7
            assert ctypes.string_at(memory.address + 4999, 1) == b"\x07"
        memory.seal()
        assert ctypes.string_at(memory.address + 4999, 1) == b"\x07"
    with pytest.raises(ValueError, match="given back"):
        memory.view()


def test_a_feature_is_there_or_said_to_be_missing() -> None:
    for feature in native.FEATURES:
        assert native.missing(feature) == "" or len(native.missing(feature)) > 10
    assert "is not one of" in native.missing("magic")


def host(
    root: Path, *, available: int = 8 * GIB, cgroup: str = "0::/a/b", files: dict[str, str] | None = None
) -> Path:
    """A tree that looks like /proc and /sys."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup + "\n")
    for name, text in (files or {}).items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_free_memory_limits_tables_and_buffers_together(tmp_path: Path) -> None:
    root = host(tmp_path)
    check_memory(7 * GIB, GIB, root=root)
    with pytest.raises(PreflightError, match=r"7\.00 GiB and reply buffers of 1\.50 GiB .* leaves 8\.00 GiB"):
        check_memory(7 * GIB, 3 * GIB // 2, root=root)


@pytest.mark.parametrize(
    ("cgroup", "files", "have"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/b/memory.current": "5"}, None),
        ("0::/a/b", {"a/b/memory.max": str(4 * GIB), "a/b/memory.current": str(GIB)}, 3 * GIB),
        ("0::/a/b", {"a/memory.max": str(4 * GIB), "a/memory.current": str(GIB)}, 3 * GIB),
        ("0::/", {"memory.max": str(4 * GIB), "memory.current": str(5 * GIB)}, 0),
        (
            "0::/a",
            {
                "a/memory.max": str(4 * GIB),
                "a/memory.current": str(4 * GIB),
                "a/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
            },
            2 * GIB,
        ),
        (
            "7:memory,cpu:/x",
            {"memory/x/memory.limit_in_bytes": str(2 * GIB), "memory/x/memory.usage_in_bytes": "0"},
            2 * GIB,
        ),
        (
            "7:memory:/x",
            {"memory/x/memory.limit_in_bytes": str(2**63 - 4096), "memory/x/memory.usage_in_bytes": "0"},
            None,
        ),
        ("7:cpu:/x", {"memory/x/memory.limit_in_bytes": "1", "memory/x/memory.usage_in_bytes": "0"}, None),
    ],
)
def test_the_cgroups_limit_counts_where_it_leaves_less(
    tmp_path: Path, cgroup: str, files: dict[str, str], have: int | None
) -> None:
    root = host(tmp_path, cgroup=cgroup, files=files)
    assert [room.have for room in rooms(root)] == [8 * GIB, *([] if have is None else [have])]
    check_memory(have or 0, 0, root=root)
    if have is not None:
        with pytest.raises(PreflightError, match="the cgroup's limit"):
            check_memory(have + 1, 0, root=root)


def test_explicit_huge_pages_are_counted_before_they_are_asked_for(tmp_path: Path) -> None:
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
    pages.parent.mkdir(parents=True)
    pages.write_text("10\n")
    root = host(tmp_path)
    check_memory(20 << 20, 0, huge=True, root=root)
    with pytest.raises(PreflightError, match="need 11 pages of 2 MiB, and 10 are free"):
        check_memory((20 << 20) + 1, 0, huge=True, root=root)


def test_locked_memory_must_hold_the_reply_buffers() -> None:
    check_locked(1 << 20, 1 << 20)
    check_locked(1 << 40, -1)
    with pytest.raises(PreflightError, match=r"0\.50 GiB, and the limit of locked memory is 0\.25 GiB"):
        check_locked(GIB // 2, GIB // 4)
