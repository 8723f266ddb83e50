"""What the seam asks of whoever reads rows, and the client that does."""

from pathlib import Path
from typing import Protocol

from engram_remote.client import Client, ClientOptions
from engram_remote.settings import MS, Settings
from engram_remote.tables.manifest import Manifest
from engram_remote.vllm_seam.place import Place


class Reader(Protocol):
    """Rows by their ids, exact or an error: `engram_remote.client.Client`, or what a test puts in its place.

    Addresses are of this process; layers count in the manifest's order.
    """

    def add_staging(self, address: int, size: int) -> int:
        """Memory that rows are written to, for as long as the reader lives; returns its number."""

    def attach(self, block: int, rows_max: int, layer: int, staging: int) -> None:
        """Serve a hand-over block (engram.h, engram_handover) from now on."""

    def read(self, ids: int, count: int, layer: int, staging: int) -> object:
        """Read `count` i32 ids and return when their planes lie in the staging."""

    def connected(self) -> tuple[bool, str]:
        """Whether a server answers, and over which wire, or why not."""

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name."""

    def statistics_line(self) -> str:
        """The counters as one line for a log."""

    def close(self) -> None:
        """End open lookups and connections."""


class OpenReader(Protocol):
    """Makes a reader of all layers of a manifest, for one rank.  Raises TableError, TransportError, SettingsError."""

    def __call__(
        self, settings: Settings, place: Place, folder: Path, manifest: Manifest, rows_max: int
    ) -> Reader: ...


def open_client(settings: Settings, place: Place, folder: Path, manifest: Manifest, rows_max: int) -> Reader:
    """The client that the settings ask for.  rows_max: most rows of one lookup."""
    options = ClientOptions(
        tables=folder,
        rank=place.rank,
        endpoint=str(settings.endpoint(place.rank, place.ranks)),
        key_file=settings.key_file,
        batch_rows_max=rows_max,
        required=settings.required,
        checksum=settings.checksum,
        bounce=settings.bounce,
        buffered=settings.buffered,
        pread=settings.pread,
        read_threads=settings.read_threads,
        timeout_ns=round(settings.timeout_ms * MS),
        connect_timeout_ns=round(settings.connect_timeout_ms * MS),
        retry_ns=round(settings.retry_ms * MS),
        retry_max_ns=round(settings.retry_max_ms * MS),
        spin_ns=round(settings.spin_ms * MS),
    )
    return Client(options, manifest)
