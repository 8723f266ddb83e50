"""Why a whole round brought no drafts: the names in counters, logs and `RoundResult.reason`."""

from ofl.contract.dspark_v1 import Status

NOT_READY = "not_ready"
DISABLED = "disabled"
PAUSED = "paused"
"""Not a failure, and counted apart from those: operators asked for it."""
RECONNECTED = "reconnected"
COOLDOWN = "cooldown"
TIMEOUT = "timeout"
TRANSPORT_ERROR = "transport_error"
BAD_REPLY = "bad_reply"
INTERNAL_ERROR = "internal_error"


def frame_reason(status: Status) -> str:
    """The reason for a message that the worker refused as a whole."""
    return f"frame_{status.name.lower()}"


ALL = (
    NOT_READY,
    DISABLED,
    PAUSED,
    RECONNECTED,
    COOLDOWN,
    TIMEOUT,
    TRANSPORT_ERROR,
    BAD_REPLY,
    INTERNAL_ERROR,
    *(frame_reason(status) for status in Status if status is not Status.OK),
)
