"""The table service `engram`, version 1: OPEN, LOOKUP, STATS.

`encode_request` / `decode_request` and `encode_reply` / `decode_reply` are the only ways in and out.  Any bytes decode
to a message or raise `ContractError` with the field at fault.
"""

from ofl.contract.engram_v1.codec import decode_reply, decode_request, encode_reply, encode_request
from ofl.contract.engram_v1.framing import peek, salvage
from ofl.contract.engram_v1.layout import NO_ROW, SERVICE, VERSION, Kind, LookupFlag, Op, Status
from ofl.contract.engram_v1.messages import (
    Envelope,
    Lookup,
    LookupPart,
    LookupReply,
    Open,
    OpenLayer,
    OpenReply,
    Planes,
    Refused,
    Reply,
    Request,
    Stats,
    StatsReply,
    pack_ids,
)

__all__ = [
    "NO_ROW",
    "SERVICE",
    "VERSION",
    "Envelope",
    "Kind",
    "Lookup",
    "LookupFlag",
    "LookupPart",
    "LookupReply",
    "Op",
    "Open",
    "OpenLayer",
    "OpenReply",
    "Planes",
    "Refused",
    "Reply",
    "Request",
    "Stats",
    "StatsReply",
    "Status",
    "decode_reply",
    "decode_request",
    "encode_reply",
    "encode_request",
    "pack_ids",
    "peek",
    "salvage",
]
