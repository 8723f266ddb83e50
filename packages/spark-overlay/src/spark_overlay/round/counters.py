"""What is counted, one name each.  Plain integers, written by the engine's thread alone; must never do I/O.

The names are the ones operators read in the stats file; docs/operations/stats.md lists them from here.
"""

from dataclasses import dataclass, field, fields


def _count(meaning: str) -> int:
    """A counter from zero; meaning goes to the documentation."""
    value: int = field(default=0, metadata={"meaning": meaning})
    return value


@dataclass
class Counters:
    """Counts since the engine started."""

    rounds: int = _count("rounds begun")
    rounds_ok: int = _count("rounds in which every request that wanted drafts got them")
    rounds_failed: int = _count("rounds in which no request got drafts because the whole round failed")
    rounds_some_failed: int = _count("rounds in which some requests (or all, one by one) got no drafts")
    rounds_append_only: int = _count(
        "rounds that wanted no drafts: context alone was kept, and sent where it could be"
    )
    rounds_n_out_cut: int = _count("rounds that asked for fewer than all draft positions")

    fallback_not_ready: int = _count("failed rounds: no session with the worker yet")
    fallback_disabled: int = _count("failed rounds: the remote is disabled for this engine run")
    fallback_reconnected: int = _count(
        "failed rounds: the connection changed after the entries were built; nothing sent"
    )
    fallback_cooldown: int = _count("failed rounds: kept off the network by the open circuit breaker")
    fallback_timeout: int = _count("failed rounds: the round's deadline passed")
    fallback_transport_error: int = _count("failed rounds: the connection was lost")
    fallback_bad_reply: int = _count("failed rounds: a reply that the contract forbids (a worker's defect)")
    fallback_internal_error: int = _count("failed rounds: a defect of the overlay; see last_internal_error")
    fallback_frame_bad_message: int = _count("failed rounds: the worker could not read the message")
    fallback_frame_version: int = _count("failed rounds: the worker refused the contract version")
    fallback_frame_mismatch: int = _count("failed rounds: the worker refused the shape")
    fallback_frame_no_session: int = _count("failed rounds: the worker had no session for this connection")
    fallback_frame_stale_epoch: int = _count("failed rounds: the worker knew a later connection of ours")
    fallback_frame_policy: int = _count("failed rounds: the worker refused the policy")
    fallback_frame_busy: int = _count("failed rounds: the worker was full")
    fallback_frame_draining: int = _count("failed rounds: the worker was draining")
    fallback_frame_drafter: int = _count("failed rounds: the worker's drafter failed")

    local_fallback_rounds: int = _count(
        "rounds in which local drafts stood in for remote ones that were missing"
    )
    local_fallback_requests: int = _count("requests: local drafts stood in for remote ones that were missing")
    breaker_trips: int = _count("times that the circuit breaker left its closed state")
    breaker_recoveries: int = _count("times that a probe round closed the circuit breaker again")
    acceptance_alarms: int = _count("times that no draft had been accepted for ALARM_ROUNDS verified rounds")

    req_status_stale_generation: int = _count("requests: the worker knew a newer generation of the slot")
    req_status_needs_reset: int = _count("requests: the worker did not know the slot's generation")
    req_status_gap: int = _count("requests: the worker's window did not reach the new rows")
    req_status_drafter: int = _count("requests: the drafter failed for this one")
    req_no_context: int = _count("requests: no row was known yet")
    req_resync_pending: int = _count("requests: the window goes over several rounds; drafts follow")
    req_unconfirmed: int = _count("requests: drafts not used, earlier rows were not acknowledged as good")
    req_bad: int = _count("requests: described wrongly by the engine and left out")

    stale_generation_new_sessions: int = _count("sessions restarted for a newer generation on the worker")
    generation_bumps: int = _count("slots given to another request, or to one that started anew")
    partial_starts: int = _count("requests that began with less than a whole window (a prefix-cache hit)")
    partial_rounds: int = _count("rounds in which some request drafted from a partial window")
    rollbacks: int = _count("requests that went back to an earlier position within the ring")
    resync_rounds: int = _count("rounds that resent rows from the ring")
    resync_rows: int = _count("rows resent from the ring")
    append_refused: int = _count("append-only messages whose acknowledgement said no")

    frames_sent: int = _count("messages sent, append-only ones included")
    rows_sent: int = _count("context rows sent")
    bytes_sent: int = _count("bytes of messages sent")
    bytes_received: int = _count("bytes of replies received")
    draft_tokens: int = _count("draft tokens received")

    def add(self, name: str, amount: int = 1) -> None:
        """Raise one counter by name; AttributeError on a name that does not exist."""
        setattr(self, name, getattr(self, name) + amount)

    def as_dict(self) -> dict[str, int]:
        """Every counter by name, in the order of the documentation."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Meaning of each counter, for the documentation."""
        return {entry.name: str(entry.metadata["meaning"]) for entry in fields(cls)}
