"""What one worker process gives out, in one place: type, default, meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of the service; exceeding one refuses the engine that asks, never one that is served.

    max_sessions: engines (and probes) at once.
    max_slots: of one session, 1 .. 1024.
    max_frame_bytes: longest message, header included; the transport must carry it.
    context_bytes_max: memory that all sessions together may need for contexts at their longest.
    """

    max_sessions: int = 8
    max_slots: int = 1024
    max_frame_bytes: int = 64 << 20
    context_bytes_max: int = 8 << 30
