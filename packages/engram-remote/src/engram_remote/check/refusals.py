"""What a server must say no to, each on a connection of its own; afterwards it must serve as before.

Speaks the contract itself, through `ofl.client` and the codec: a client that keeps the rules could not ask for these.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import ofl.client
from ofl.contract.engram_v1.codec import decode_reply, encode_request
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX, HEADER, SERVICE, VERSION, Op, Status
from ofl.contract.engram_v1.messages import (
    Envelope,
    Lookup,
    LookupPart,
    LookupReply,
    Open,
    OpenLayer,
    OpenReply,
    Refused,
    Reply,
    Request,
    pack_ids,
)
from ofl.contract.records import ContractError
from ofl.errors import TransportError

from engram_remote.tables.manifest import Manifest

DEADLINE_NS = 5_000_000_000
SMALL_BATCH = 256
FRAME_BYTES = 1 << 27
"""Holds the ids of one row more than any server may allow."""


@dataclass(frozen=True)
class RefusalReport:
    """One demand.  wanted, got: statuses by name; got may be another word where no refusal came."""

    way: str
    name: str
    wanted: str
    got: str
    detail: str

    @property
    def passed(self) -> bool:
        return self.got == self.wanted


class Refusals:
    """The demands, made of one endpoint.  batch_rows: no more than the server allows."""

    def __init__(
        self,
        endpoint: str,
        manifest: Manifest,
        rank: int,
        key_file: Path | None,
        batch_rows: int = SMALL_BATCH,
    ) -> None:
        self._endpoint, self._manifest, self._key_file = endpoint, manifest, key_file
        layers = tuple(
            OpenLayer(shard.layer, shard.row_start, shard.row_end)
            for shard in manifest.shards
            if shard.rank == rank
        )
        self._good = Open(
            bytes.fromhex(manifest.identity),
            manifest.columns,
            manifest.scales,
            rank,
            manifest.ranks,
            batch_rows,
            layers,
        )

    def run(self) -> list[RefusalReport]:
        """Make every demand, then show that the server still serves."""
        demands: list[tuple[str, Status | str, Callable[[], tuple[str, str]]]] = [
            ("another identity", Status.IDENTITY, self._other_identity),
            ("a rank that there is not", Status.NO_TABLE, self._other_rank),
            ("another number of ranks", Status.SHAPE, self._other_ranks),
            ("rows of another width", Status.SHAPE, lambda: self._open(columns=self._good.columns + 32)),
            ("other scales", Status.SHAPE, lambda: self._open(scales=self._good.scales + 1)),
            ("another range of rows", Status.SHAPE, self._other_rows),
            ("a layer that there is not", Status.NO_TABLE, self._other_layer),
            ("a batch_rows_max over the server's", Status.LIMIT, self._greedy_open),
            ("a lookup before OPEN", Status.NOT_OPEN, lambda: self._lookup([self._first], opened=False)),
            ("more rows than the server allows", Status.LIMIT, self._large_batch),
            ("an id past the shard", Status.BAD_ID, lambda: self._lookup([self._last + 1])),
            ("a layer that was not opened", Status.NO_TABLE, self._unopened_layer),
            ("a second OPEN", Status.BAD_MESSAGE, self._second_open),
            ("a frame that is none", Status.BAD_MESSAGE, self._bad_frame),
            ("another version", Status.VERSION, self._other_version),
            ("a lookup as usual", "OK", lambda: self._lookup([self._first])),
        ]
        return [self._demand(*demand) for demand in demands]

    @property
    def _first(self) -> int:
        return self._good.layers[0].row_start

    @property
    def _last(self) -> int:
        return self._good.layers[0].row_end - 1

    def _demand(self, name: str, wanted: Status | str, ask: Callable[[], tuple[str, str]]) -> RefusalReport:
        expected = wanted.name if isinstance(wanted, Status) else wanted
        try:
            got, detail = ask()
        except (TransportError, ContractError) as error:
            got, detail = type(error).__name__, str(error)
        return RefusalReport(self._endpoint, name, expected, got, detail)

    def _other_identity(self) -> tuple[str, str]:
        other = bytes(byte ^ 0xFF for byte in self._good.identity)
        status, detail = self._open(identity=other)
        both = other.hex() in detail and self._good.identity.hex() in detail
        return (status, detail) if both else (f"{status} without both digests", detail)

    def _other_rank(self) -> tuple[str, str]:
        if self._manifest.ranks < 2:
            return self._open(rank=1, ranks=2)
        others = {shard.rank for shard in self._manifest.shards} - {self._good.rank}
        status, detail = self._open(rank=min(others))
        # Another rank's table is there, with other rows; where the server does not hold it there is none.
        return ("NO_TABLE" if status == "SHAPE" and "row" in detail else status), detail

    def _other_ranks(self) -> tuple[str, str]:
        return self._open(ranks=self._good.ranks + 1)

    def _other_rows(self) -> tuple[str, str]:
        first = self._good.layers[0]
        shorter = replace(first, row_end=first.row_end - 1)
        return self._open(layers=(shorter, *self._good.layers[1:]))

    def _other_layer(self) -> tuple[str, str]:
        strange = max(layer.layer for layer in self._good.layers) + 1
        return self._open(layers=(replace(self._good.layers[0], layer=strange),))

    def _greedy_open(self) -> tuple[str, str]:
        return self._open(batch_rows_max=BATCH_ROWS_MAX)

    def _open(self, **changes: object) -> tuple[str, str]:
        opening = replace(self._good, **changes)  # type: ignore[arg-type]
        with _Connection(self._endpoint, self._key_file) as connection:
            return _said(connection.ask(Op.OPEN, opening))

    def _lookup(self, ids: list[int], *, layer: int = 0, opened: bool = True) -> tuple[str, str]:
        with _Connection(self._endpoint, self._key_file) as connection:
            if opened:
                connection.open(self._good)
            else:
                connection.opened = self._good
            return _said(connection.ask(Op.LOOKUP, Lookup((LookupPart(layer, pack_ids(ids)),))))

    def _large_batch(self) -> tuple[str, str]:
        with _Connection(self._endpoint, self._key_file) as connection:
            most = connection.open(self._good).batch_rows_max
            ids = self._first.to_bytes(4, "little") * (most + 1)
            return _said(connection.ask(Op.LOOKUP, Lookup((LookupPart(0, ids),))))

    def _unopened_layer(self) -> tuple[str, str]:
        return self._lookup([self._first], layer=len(self._good.layers))

    def _second_open(self) -> tuple[str, str]:
        with _Connection(self._endpoint, self._key_file) as connection:
            connection.open(self._good)
            return _said(connection.ask(Op.OPEN, self._good))

    def _bad_frame(self) -> tuple[str, str]:
        with _Connection(self._endpoint, self._key_file) as connection:
            connection.open(self._good)
            return _said(connection.ask(Op.OPEN, self._good, spoil=lambda sent: b"\0" * len(sent)))

    def _other_version(self) -> tuple[str, str]:
        at = HEADER.offsets["version"]
        changed = (VERSION + 1).to_bytes(2, "little")
        with _Connection(self._endpoint, self._key_file) as connection:
            return _said(
                connection.ask(Op.OPEN, self._good, spoil=lambda sent: sent[:at] + changed + sent[at + 2 :])
            )


class _Connection:
    """A connection that says what it is told to."""

    def __init__(self, endpoint: str, key_file: Path | None) -> None:
        self._client = ofl.client.connect(
            endpoint,
            service=SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=FRAME_BYTES,
            deadline_ns=time.monotonic_ns() + DEADLINE_NS,
            key_file=key_file,
        )
        self._batch = 0
        self.opened: Open | None = None

    def open(self, opening: Open) -> OpenReply:
        """What the server allows.  Raises ContractError where it is refused."""
        reply = self.ask(Op.OPEN, opening)
        if not isinstance(reply, OpenReply):
            raise ContractError("open", f"refused: {_said(reply)}")
        self.opened = opening
        return reply

    def ask(self, op: Op, request: Request, spoil: Callable[[bytes], bytes] | None = None) -> Reply:
        """The reply.  spoil: what to send instead of the message.  Raises TransportError, ContractError."""
        self._batch += 1
        envelope = Envelope(op, self._batch)
        sent = b"".join(bytes(part) for part in encode_request(envelope, request))
        sent = spoil(sent) if spoil is not None else sent
        deadline_ns = time.monotonic_ns() + DEADLINE_NS
        body = bytes(
            self._client.wait(self._client.submit([sent], deadline_ns=deadline_ns), deadline_ns=deadline_ns)
        )
        return decode_reply(body, envelope, request, self.opened)

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()


def _said(reply: Reply) -> tuple[str, str]:
    if isinstance(reply, Refused):
        return reply.status.name, reply.said
    rows = len(reply.parts[0].scales) if isinstance(reply, LookupReply) else 0
    return "OK", f"{rows} bytes of scales" if rows else ""
