"""Notices that rounds keep missing their deadline, and says so once in a while.  Pure.

An engine whose every round waits for its deadline in vain is slower than one without a drafter, and nothing else about
it looks wrong.
"""

WINDOW_ROUNDS = 100
QUIET_WINDOWS = 10
"""Windows after a sentence in which nothing more is said."""


class MissWatch:
    """Counts rounds that wanted drafts, WINDOW_ROUNDS at a time."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._rounds = self._missed = self._quiet = 0

    def note(self, missed: bool) -> str | None:
        """One round; a sentence where at least half of a window missed the deadline."""
        self._rounds += 1
        self._missed += missed
        if self._rounds < WINDOW_ROUNDS:
            return None
        missed_rounds, self._rounds, self._missed = self._missed, 0, 0
        if self._quiet:
            self._quiet -= 1
            return None
        if 2 * missed_rounds < WINDOW_ROUNDS:
            return None
        self._quiet = QUIET_WINDOWS
        return (
            f"{missed_rounds} of the last {WINDOW_ROUNDS} rounds missed their deadline of {self._timeout_ms:g} ms, and "
            "each made its step that much longer: compare worker_us and wire_us in the stats, and "
            "`x86-worker status`, with VLLM_DSPARK_REMOTE_TIMEOUT_MS"
        )
