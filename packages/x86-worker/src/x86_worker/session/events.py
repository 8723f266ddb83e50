"""What happened, as frozen values: the service writes its log from them."""

from dataclasses import dataclass

from ofl.contract.dspark_v1 import Op, Policy, Status


@dataclass(frozen=True)
class SessionOpened:
    """An engine opened a session.  engine_id: 32 hex digits."""

    connection: int
    engine_id: str
    epoch: int
    policy: Policy


@dataclass(frozen=True)
class SessionClosed:
    """A session is gone with all its windows; reason is one clause."""

    connection: int
    engine_id: str
    epoch: int
    reason: str


@dataclass(frozen=True)
class Refusal:
    """A whole message was refused.  policy: of a HELLO that could be read."""

    connection: int
    op: Op
    status: Status
    field: str
    detail: str
    policy: Policy | None = None


@dataclass(frozen=True)
class EntryFailed:
    """The drafter failed for one entry; the slot needs a reset.  reason is one clause."""

    connection: int
    engine_id: str
    slot: int
    reason: str


Event = SessionOpened | SessionClosed | Refusal | EntryFailed
