"""The service side of `dspark-v1`, without sockets, clocks or threads: bytes and `now` in, replies and events
out.

Theory of operation.  `DrafterService` is the one entry point.  It decodes a request, finds the session of its
connection, and lets `hello` or `step` do the work; what the peer did wrong travels as RemoteError and becomes
a refusal there, in one place.  `directory` knows which engine holds which session over which connection;
`slot` keeps one context true to what its engine said.  What happened is told as `events`, for the log.

A round, top to bottom: service.receive -> step.run_step -> slot.apply (each entry) -> drafter.draft (once)
-> service.encode.
"""

from x86_worker.session.errors import LocalError
from x86_worker.session.events import EntryFailed, Event, Refusal, SessionClosed, SessionOpened
from x86_worker.session.limits import Limits
from x86_worker.session.service import Answer, DrafterService

__all__ = [
    "Answer",
    "DrafterService",
    "EntryFailed",
    "Event",
    "Limits",
    "LocalError",
    "Refusal",
    "SessionClosed",
    "SessionOpened",
]
