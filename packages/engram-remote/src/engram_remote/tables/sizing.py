"""What a table will cost: memory, time to load and verify, time of a lookup.  Pure; every figure carries its formula.

A model, not a measurement: it adds up what must happen one after another and takes the slower of what happens
at once.  What it leaves out (page faults at load, other traffic on the link, a busy host) makes the real
figures larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract.engram_v1 import layout

from engram_remote.tables.layout import HEADER_BYTES

GATHER_PIECE_ROWS = 1024
"""The server splits a batch into pieces of so many rows, one thread each (kPieceRows of gather_pool.cpp)."""
ENTRY_BYTES = 8
"""One entry of a page table, on x86-64 and aarch64."""
LOOKUP_ROWS = (288, 49_152)
"""A decode step of 24 tokens and a prefill chunk of 4,096, at 12 hash columns a rank."""


@dataclass(frozen=True)
class Table:
    """rows: of each layer, over all ranks.  columns, scales: bytes of a row.  ranks: shards of each layer."""

    rows: Sequence[int]
    columns: int
    scales: int
    ranks: int

    @property
    def row_bytes(self) -> int:
        return self.columns + self.scales


@dataclass(frozen=True)
class Host:
    """The table server.

    memory_gb_per_s: of one thread's copy, bytes copied.  row_ns: what finding one row at random costs beside
    copying it. read_gb_per_s: of the shards' disk.  hash_gb_per_s: sha256 by one thread.  load_threads,
    gather_threads: how many there are. page_bytes: of table memory.  reply_buffer_bytes: all of them.  GB are
    10**9 bytes.
    """

    memory_gb_per_s: float
    row_ns: float
    read_gb_per_s: float
    hash_gb_per_s: float
    load_threads: int
    gather_threads: int
    page_bytes: int
    reply_buffer_bytes: int


@dataclass(frozen=True)
class Link:
    """gbps: 10**9 bits a second of payload.  round_trip_us: of the smallest request, the peers' software included."""

    gbps: float
    round_trip_us: float


@dataclass(frozen=True)
class Figure:
    """One predicted figure.  name: stable, for programs.  formula: how it comes about, in the names of the inputs."""

    name: str
    title: str
    value: float
    unit: str
    formula: str


def memory_figures(table: Table, host: Host) -> list[Figure]:
    """Memory of the server, and what an engine's rank no longer holds; bytes."""
    tables = sum(table.rows) * table.row_bytes
    shards = len(table.rows) * table.ranks
    # A load reads whole files, so that chunks can be digested in place: headers are in memory too.
    resident = tables + shards * HEADER_BYTES
    entries = -(-(resident + host.reply_buffer_bytes) // host.page_bytes) * ENTRY_BYTES
    shares = [-(-rows // table.ranks) for rows in table.rows]
    figures = [
        ("table_bytes", "tables in memory", resident, "sum(rows) * (columns + scales) + layers * ranks * 4096"),
        ("reply_buffer_bytes", "reply buffers", host.reply_buffer_bytes,
         "reply_buffers * (64 + batch_rows * (columns + scales) + 128 * layers)"),
        ("page_table_bytes", "page tables", entries, "(tables + reply buffers) / page_bytes * 8"),
        ("server_bytes", "server in all", resident + host.reply_buffer_bytes + entries,
         "tables + reply buffers + page tables"),
        ("engine_bytes_saved", "not held by each rank of the engine", sum(shares) * table.row_bytes,
         "sum(rows / ranks) * (columns + scales)"),
    ]  # fmt: skip
    return [Figure(name, title, float(value), "bytes", formula) for name, title, value, formula in figures]


def load_figures(table: Table, host: Host) -> list[Figure]:
    """Time from an empty server to a ready one, seconds: digests run beside the reads, so the slower decides."""
    data = sum(table.rows) * table.row_bytes + len(table.rows) * table.ranks * HEADER_BYTES
    read = data / (host.read_gb_per_s * 1e9)
    digest = data / (host.hash_gb_per_s * 1e9 * host.load_threads)
    return [
        Figure("read_s", "read", read, "s", "tables / read_gb_per_s"),
        Figure("digest_s", "digest", digest, "s", "tables / (hash_gb_per_s * load_threads)"),
        Figure("load_s", "load and verify", max(read, digest), "s", "max(read, digest)"),
    ]


def lookup_figures(table: Table, host: Host, link: Link, rows: int) -> list[Figure]:
    """Time of one lookup of `rows` rows of one layer, microseconds: round trip, then gather, then wire."""
    threads = min(host.gather_threads, -(-rows // GATHER_PIECE_ROWS))
    gather = rows * (host.row_ns + table.row_bytes / host.memory_gb_per_s) / threads / 1e3
    wire = (request_bytes(rows) + reply_bytes(rows, table)) * 8 / link.gbps / 1e3
    total = link.round_trip_us + gather + wire
    return [
        Figure(f"gather_{rows}_us", f"gather of {rows} rows", gather, "us",
               "rows * (row_ns + (columns + scales) / memory_gb_per_s) / min(gather_threads, rows / 1024 rounded up)"),
        Figure(f"wire_{rows}_us", f"wire of {rows} rows", wire, "us",
               "(request + reply) * 8 / link_gbps; request 48 + 4 * rows, reply 64 + rows * (columns + scales)"),
        Figure(f"lookup_{rows}_us", f"lookup of {rows} rows", total, "us", "round_trip + gather + wire"),
    ]  # fmt: skip


def request_bytes(rows: int) -> int:
    """A LOOKUP of one layer, without the transport's own bytes."""
    return layout.HEADER.size + layout.LOOKUP.size + layout.LOOKUP_PART.size + 4 * rows


def reply_bytes(rows: int, table: Table) -> int:
    """What a LOOKUP of one layer places in staging."""
    return layout.reply_bytes(rows, table.columns, table.scales)
