"""What a client is asked for, and its translation for the library."""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import ofl.settings
from numpy.typing import ArrayLike, NDArray
from ofl.abi import Transport
from ofl.arguments import key_path, span_ns, unsigned
from ofl.endpoint import parse_endpoint
from ofl.errors import EndpointError

from engram_remote import abi
from engram_remote.abi import ClientFlag
from engram_remote.tables.manifest import Manifest

MS = 1_000_000
PATIENT_HEARTBEAT_NS, PATIENT_LOSS_NS = 1_000 * MS, 20_000 * MS
"""For tools that compare or time rows, maybe on busy hosts: how soon a dead server is noticed is not their matter."""


@dataclass(frozen=True)
class ClientOptions:
    """How rows are read.  Spans in nanoseconds, of any length up to 600 s.

    tables: folder with manifest.json and the shards of this rank.  endpoint: of the server, as `ofl` writes them;
    None: every lookup is local.  layers: of the model, in the order in which lookups count them; None: all of the
    manifest's. batch_rows_max: most rows of one lookup, over its layers.  required: fail at once unless a server
    was opened.  checksum: each reply carries one, which is compared.  bounce: replies land in a twin of the
    staging and are copied.  buffered: read shards through the page cache.  pread: read them with threads even
    where io_uring could.  read_threads: of those. timeout_ns: of a remote lookup, from when the proxy takes it up.
     retry_ns: first pause between attempts to connect, doubled up to retry_max_ns.  heartbeat_ns, loss_ns,
     spin_ns: as for `ofl.client.connect`; None: its settings.
    """

    tables: Path
    rank: int = 0
    endpoint: str | None = None
    layers: tuple[int, ...] | None = None
    key_file: Path | None = None
    batch_rows_max: int = 49_152
    required: bool = False
    checksum: bool = False
    bounce: bool = False
    buffered: bool = False
    pread: bool = False
    read_threads: int = 64
    timeout_ns: int = 100 * MS
    connect_timeout_ns: int = 5_000 * MS
    retry_ns: int = 1_000 * MS
    retry_max_ns: int = 60_000 * MS
    heartbeat_ns: int | None = None
    loss_ns: int | None = None
    spin_ns: int | None = None

    @property
    def flags(self) -> ClientFlag:
        """As the library takes them."""
        chosen = {
            ClientFlag.BOUNCE: self.bounce,
            ClientFlag.CHECKSUM: self.checksum,
            ClientFlag.REQUIRED: self.required,
            ClientFlag.BUFFERED: self.buffered,
            ClientFlag.PREAD: self.pread,
        }
        flags = ClientFlag(0)
        for flag, on in chosen.items():
            flags |= flag if on else ClientFlag(0)
        return flags

    def chosen_layers(self, manifest: Manifest) -> tuple[int, ...]:
        """The model's layers that are read.  Raises ValueError naming one that the manifest lacks."""
        there = tuple(entry.layer for entry in manifest.layers)
        for layer in self.layers or ():
            if layer not in there:
                raise ValueError(f"layers: {layer} is not one of the manifest's {list(there)}")
        return there if self.layers is None else self.layers


def abi_options(options: ClientOptions, manifest: Manifest) -> abi.ClientOptions:
    """For `engram_client_create`.

    Raises ValueError naming the option, EndpointError, SettingError (an environment variable of the transport).
    """
    if not 0 <= options.rank < manifest.ranks:
        raise ValueError(f"rank: {options.rank} is not one of the manifest's {manifest.ranks}")
    layers = options.chosen_layers(manifest)
    heartbeat_ns, loss_ns = ofl.settings.liveness_ns(options.heartbeat_ns, options.loss_ns)
    record = abi.ClientOptions(
        key_file=key_path(options.key_file),
        layers=(abi.LayerRecord * len(layers))(*(_layer(options, manifest, layer) for layer in layers)),
        layer_count=len(layers),
        identity=(ctypes.c_uint8 * 32)(*bytes.fromhex(manifest.identity)),
        rank=options.rank,
        ranks=manifest.ranks,
        columns=manifest.columns,
        scales=manifest.scales,
        batch_rows_max=unsigned("batch_rows_max", options.batch_rows_max, 32),
        flags=options.flags,
        read_threads=unsigned("read_threads", options.read_threads, 32),
        timeout_ns=span_ns("timeout_ns", options.timeout_ns),
        connect_timeout_ns=span_ns("connect_timeout_ns", options.connect_timeout_ns),
        retry_ns=span_ns("retry_ns", options.retry_ns),
        retry_max_ns=span_ns("retry_max_ns", options.retry_max_ns),
        heartbeat_ns=span_ns("heartbeat_ns", heartbeat_ns),
        loss_ns=span_ns("loss_ns", loss_ns),
        spin_ns=span_ns("spin_ns", ofl.settings.spin_ns(options.spin_ns)),
    )
    if options.endpoint is not None:
        _address(record, options.endpoint)
    return record


def _layer(options: ClientOptions, manifest: Manifest, layer: int) -> abi.LayerRecord:
    shard = manifest.shard(layer, options.rank)
    return abi.LayerRecord(
        shard=os.fsencode(options.tables / shard.file),
        row_start=shard.row_start,
        row_end=shard.row_end,
        layer=layer,
        source_sha256=(ctypes.c_uint8 * 32)(*bytes.fromhex(manifest.layer(layer).source_sha256)),
    )


def _address(record: abi.ClientOptions, endpoint: str) -> None:
    target = parse_endpoint(endpoint)
    if not target.connectable:
        raise EndpointError(f"endpoint {endpoint!r}: port 0 can be listened on but not connected to")
    record.host = target.host.encode()
    record.bind = target.bind.encode() if target.bind else None
    record.port = target.port
    record.transport = Transport.of(target.scheme)


def as_ids(ids: ArrayLike) -> NDArray[np.int32]:
    """As the library reads them.  Raises OverflowError, TypeError, ValueError."""
    wide = np.asarray(ids)
    if wide.size and wide.dtype.kind not in "iu":
        raise TypeError(f"ids: whole numbers are needed, not {wide.dtype}")
    if wide.ndim != 1:
        raise ValueError(f"ids: one dimension is needed, not {wide.ndim}")
    if wide.dtype == np.int32:
        return np.ascontiguousarray(wide)
    limits = np.iinfo(np.int32)
    if wide.size and not (limits.min <= int(wide.min()) and int(wide.max()) <= limits.max):
        raise OverflowError("ids: they must fit 32 bits with a sign")
    return wide.astype(np.int32)
