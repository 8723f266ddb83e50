"""What hooks saw of an engine: one record schema, written by `spark_overlay.observe` and
`engram_remote.observe`, read by `qualification`.

A file of observations is JSON lines: one `Facts` record first, one `Closed` record last, each line an `Observation`
whose `index` counts from 0 without a gap.  A file without its `Closed` is of a process that did not end by itself.
Records hold metadata and equality.  No token id, draft, tap, row, KV or text has a field here, and none may get one:
what must be compared later stands as a blind tag (`BlindTag`).
"""

from ofl.contract.observation_v1.blind import Blind, parse_key
from ofl.contract.observation_v1.lines import ObservationError, read_line, write_line
from ofl.contract.observation_v1.records import (
    CAPABILITIES,
    KINDS,
    NO_TAG,
    SCHEMA,
    Case,
    Closed,
    Completed,
    Decided,
    DecidedRequest,
    Drafter,
    Exchanged,
    ExchangedSlot,
    Facts,
    Fault,
    Observation,
    Published,
    Record,
    Scheduled,
    ScheduledRequest,
    TableOpened,
    TableRead,
    Verified,
)

__all__ = [
    "CAPABILITIES",
    "KINDS",
    "NO_TAG",
    "SCHEMA",
    "Blind",
    "Case",
    "Closed",
    "Completed",
    "Decided",
    "DecidedRequest",
    "Drafter",
    "Exchanged",
    "ExchangedSlot",
    "Facts",
    "Fault",
    "Observation",
    "ObservationError",
    "Published",
    "Record",
    "Scheduled",
    "ScheduledRequest",
    "TableOpened",
    "TableRead",
    "Verified",
    "parse_key",
    "read_line",
    "write_line",
]
