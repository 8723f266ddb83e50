"""The messages of `dspark-v1` as frozen values, with what must hold in each of them.

Construction does not validate: `codec` checks on the way out and on the way in, so that either end refuses
the same things with the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract.dspark_v1.layout import (
    EntryFlag,
    HelloFlag,
    Op,
    Policy,
    RequestStatus,
    RowDtype,
    RowForm,
    Status,
)
from ofl.contract.records import Buffer, printable

_NEED_DRAFT = EntryFlag.NEED_DRAFT.value


@dataclass(frozen=True)
class Shape:
    """What both ends must agree on.  Digests are 32 bytes; lengths are in bytes where the name says so."""

    identity: bytes
    markov_identity: bytes
    target_binding: bytes
    vocabulary: int
    row_elements: int
    window: int
    max_positions: int
    max_frame_bytes: int
    block_length: int
    max_slots: int
    tap_count: int
    row_form: RowForm
    row_dtype: RowDtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one context row."""
        return self.row_elements * self.row_dtype.itemsize


@dataclass(frozen=True)
class Hello:
    """Opens a session: who asks, under which policy, with which shape."""

    engine_id: bytes
    policy: Policy
    shape: Shape


@dataclass(frozen=True)
class HelloReply:
    """The worker's own shape, sent with OK and also with a MISMATCH, so that both sides can log both."""

    worker_name: str
    boot_nonce: int
    flags: HelloFlag
    shape: Shape


@dataclass(frozen=True)
class StepEntry:
    """One request of a round; see the contract for what each field means."""

    slot: int
    flags: EntryFlag
    generation: int
    first_position: int
    n_rows: int
    window_start: int
    anchor: int
    n_out: int

    @property
    def anchor_position(self) -> int:
        """Absolute position of the anchor: one past the last row."""
        return self.first_position + self.n_rows

    @property
    def needs_draft(self) -> bool:
        # On plain integers: IntFlag's own operators cost a microsecond each, and this runs in every round.
        return int(self.flags) & _NEED_DRAFT != 0


@dataclass(frozen=True)
class Step:
    """One round, or an append-only part of a long prefill.  rows: one buffer per entry, in their order."""

    entries: tuple[StepEntry, ...]
    rows: tuple[Buffer, ...]


@dataclass(frozen=True)
class StepReplyEntry:
    """Drafts of one entry.  drafts: token ids; confidences: 0..1; margins: logits; each n_out long."""

    slot: int
    status: RequestStatus
    generation: int
    window_start: int
    window_end: int
    drafts: tuple[int, ...]
    confidences: tuple[float, ...]
    margins: tuple[float, ...]

    @property
    def n_out(self) -> int:
        return len(self.drafts)


@dataclass(frozen=True)
class StepReply:
    """Outcome of a STEP, entry by entry, with the worker's own times in microseconds."""

    queue_us: int
    draft_us: int
    entries: tuple[StepReplyEntry, ...]


@dataclass(frozen=True)
class Ping:
    payload: int


@dataclass(frozen=True)
class PingReply:
    payload: int
    boot_nonce: int


@dataclass(frozen=True)
class Stats:
    """Asks for the worker's counters."""


@dataclass(frozen=True)
class StatsReply:
    """text: a JSON object, UTF-8."""

    text: str


@dataclass(frozen=True)
class Goodbye:
    """Drops the session of engine_id (16 bytes)."""

    engine_id: bytes


@dataclass(frozen=True)
class GoodbyeReply:
    """The session is gone."""


@dataclass(frozen=True)
class Refused:
    """A whole message was refused.

    field: what is at fault, as the contract spells it.  detail: one clause.  hello: the worker's own, with
    the MISMATCH of a HELLO only.
    """

    op: Op
    status: Status
    field: str
    detail: str
    hello: HelloReply | None = None

    @property
    def said(self) -> str:
        """Field and clause as a log may repeat them; both are the peer's words."""
        return printable(f"{self.field}: {self.detail}")


@dataclass(frozen=True)
class Envelope:
    """What the header says of a message: operation, epoch, round, and for replies the status."""

    op: Op
    epoch: int
    round: int
    status: Status = Status.OK


Request = Hello | Step | Ping | Stats | Goodbye
Reply = HelloReply | StepReply | PingReply | StatsReply | GoodbyeReply | Refused
Parts = Sequence[Buffer]
"""A message as scatter-gather parts, in order."""
