"""What is counted, one name each.  Plain integers, written by the engine's thread alone; must never do I/O.

The names are the ones operators read in the stats file; docs/operations/stats.md lists them from here.
"""

from dataclasses import dataclass, field, fields
from typing import Any


def counter(meaning: str) -> int:
    """A counter from zero; meaning goes to the documentation."""
    value: int = field(default=0, metadata={"meaning": meaning})
    return value


def meanings(counters: type[Any]) -> dict[str, str]:
    """Meaning of each counter of such a class, for the documentation."""
    return {entry.name: str(entry.metadata["meaning"]) for entry in fields(counters)}


@dataclass
class Counters:
    """Counts since the engine started."""

    rounds: int = counter("rounds begun")
    rounds_ok: int = counter("rounds in which every request that wanted drafts got them")
    rounds_failed: int = counter("rounds in which no request got drafts because the whole round failed")
    rounds_some_failed: int = counter("rounds in which some requests (or all, one by one) got no drafts")
    rounds_paused: int = counter(
        "rounds that wanted drafts while operators had paused remote drafting, or had just resumed or rearmed it; not "
        "among the failed ones"
    )
    rounds_append_only: int = counter(
        "rounds that wanted no drafts: context alone was kept, and sent where it could be"
    )
    rounds_n_out_cut: int = counter("rounds that asked for fewer than all draft positions")

    fallback_not_ready: int = counter("failed rounds: no session with the worker yet")
    fallback_disabled: int = counter("failed rounds: the remote is disabled for this engine run")
    fallback_reconnected: int = counter(
        "failed rounds: the connection changed after the entries were built; nothing sent"
    )
    fallback_cooldown: int = counter("failed rounds: kept off the network by the open circuit breaker")
    fallback_timeout: int = counter("failed rounds: the round's deadline passed")
    fallback_transport_error: int = counter("failed rounds: the connection was lost")
    fallback_bad_reply: int = counter("failed rounds: a reply that the contract forbids (a worker's defect)")
    fallback_internal_error: int = counter("failed rounds: a defect of the overlay; see last_internal_error")
    fallback_frame_bad_message: int = counter("failed rounds: the worker could not read the message")
    fallback_frame_version: int = counter("failed rounds: the worker refused the contract version")
    fallback_frame_mismatch: int = counter("failed rounds: the worker refused the shape")
    fallback_frame_no_session: int = counter("failed rounds: the worker had no session for this connection")
    fallback_frame_stale_epoch: int = counter("failed rounds: the worker knew a later connection of ours")
    fallback_frame_policy: int = counter("failed rounds: the worker refused the policy")
    fallback_frame_busy: int = counter("failed rounds: the worker was full")
    fallback_frame_draining: int = counter("failed rounds: the worker was draining")
    fallback_frame_drafter: int = counter("failed rounds: the worker's drafter failed")

    local_fallback_rounds: int = counter(
        "rounds in which local drafts stood in for remote ones that were missing"
    )
    local_fallback_requests: int = counter(
        "requests: local drafts stood in for remote ones that were missing"
    )
    breaker_trips: int = counter("times that the circuit breaker left its closed state")
    breaker_recoveries: int = counter("times that a probe round closed the circuit breaker again")
    acceptance_alarms: int = counter("times that no draft had been accepted for ALARM_ROUNDS verified rounds")

    req_status_stale_generation: int = counter("requests: the worker knew a newer generation of the slot")
    req_status_needs_reset: int = counter("requests: the worker did not know the slot's generation")
    req_status_gap: int = counter("requests: the worker's window did not reach the new rows")
    req_status_drafter: int = counter("requests: the drafter failed for this one")
    req_no_context: int = counter("requests: no row was known yet")
    req_resync_pending: int = counter("requests: the window goes over several rounds; drafts follow")
    req_unconfirmed: int = counter("requests: drafts not used, earlier rows were not acknowledged as good")
    req_bad: int = counter("requests: described wrongly by the engine and left out")

    stale_generation_new_sessions: int = counter("sessions restarted for a newer generation on the worker")
    generation_bumps: int = counter("slots given to another request, or to one that started anew")
    partial_starts: int = counter("requests that began with less than a whole window (a prefix-cache hit)")
    partial_rounds: int = counter("rounds in which some request drafted from a partial window")
    rollbacks: int = counter("requests that went back to an earlier position within the ring")
    resync_rounds: int = counter("rounds that resent rows from the ring")
    resync_rows: int = counter("rows resent from the ring")
    append_refused: int = counter("append-only messages whose acknowledgement said no")

    frames_sent: int = counter("messages sent, append-only ones included")
    rows_sent: int = counter("context rows sent")
    bytes_sent: int = counter("bytes of messages sent")
    bytes_received: int = counter("bytes of replies received")
    draft_tokens: int = counter("draft tokens received")

    def add(self, name: str, amount: int = 1) -> None:
        """Raise one counter by name; AttributeError on a name that does not exist."""
        setattr(self, name, getattr(self, name) + amount)

    def as_dict(self) -> dict[str, int]:
        """Every counter by name, in the order of the documentation."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Meaning of each counter, for the documentation."""
        return meanings(cls)
