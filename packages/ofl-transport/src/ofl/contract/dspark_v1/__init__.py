"""The drafter service `dspark`, version 1: HELLO, STEP, PING, STATS, GOODBYE.

`encode_request` / `decode_request` and `encode_reply` / `decode_reply` are the only ways in and out.  Any bytes decode
to a message or raise `ContractError` with the field at fault.
"""

from ofl.contract.dspark_v1.codec import decode_reply, decode_request, encode_reply, encode_request, peek
from ofl.contract.dspark_v1.layout import (
    SERVICE,
    VERSION,
    EntryFlag,
    HelloFlag,
    Kind,
    Op,
    Policy,
    RequestStatus,
    RowDtype,
    RowForm,
    Status,
)
from ofl.contract.dspark_v1.messages import (
    Envelope,
    Goodbye,
    GoodbyeReply,
    Hello,
    HelloReply,
    Ping,
    PingReply,
    Refused,
    Reply,
    Request,
    Shape,
    Stats,
    StatsReply,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
)

__all__ = [
    "SERVICE", "VERSION", "EntryFlag", "Envelope", "Goodbye", "GoodbyeReply", "Hello", "HelloFlag", "HelloReply", "Kind",
    "Op", "Ping", "PingReply", "Policy", "Refused", "Reply", "Request", "RequestStatus", "RowDtype", "RowForm", "Shape",
    "Stats", "StatsReply", "Status", "Step", "StepEntry", "StepReply", "StepReplyEntry", "decode_reply",
    "decode_request", "encode_reply", "encode_request", "peek",
]
