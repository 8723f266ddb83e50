"""How many rows one round may send: halved by one that was too slow, raised by an eighth by one in time.

Pure arithmetic; must never know time, bytes or slots.

Theory of operation.  Rows of a round that timed out are sent again together with what came since.  Without a
bound that follows, a slowdown that has passed would leave rounds that are too long for the deadline for
ever, and so would a whole window after a reconnect.  What is over the budget goes in messages that nobody
waits for and that no deadline sends again, so a window gets across over several rounds wherever they carry
more than comes in: the least budget does, by one request's share.
"""

import sys


class RowBudget:
    """Rows of one round, at most.

    inflow: rows that one decoding request brings in a round, at most; at least 1.
    """

    def __init__(self, inflow: int) -> None:
        self._inflow = inflow
        self._limit = 0
        self._least = inflow
        self._rows = sys.maxsize

    @property
    def rows(self) -> int:
        """The budget of the last round, or what was learned since; 0 before the first session."""
        return min(self._limit, max(self._rows, self._least))

    def open(self, limit: int) -> None:
        """A session in which no round may exceed limit; what was learned of the link's pace is kept."""
        self._limit = limit

    def begin(self, requests: int) -> int:
        """The budget of a round with so many requests: more than they bring, if the limit allows it."""
        self._least = (requests + 1) * self._inflow
        return self.rows

    def too_slow(self, rows: int) -> None:
        """The deadline of a round with so many rows passed: half of those, which may be far below the budget."""
        self._rows = min(self._rows, rows // 2)

    def fall_to_least(self) -> None:
        """The next rounds carry no more than they must: they probe a worker that failed in a row."""
        self._rows = 0

    def answered(self) -> None:
        """All that was sent was answered.

        An eighth, and not the double: every other round would be too slow, and take back what the one before
        it brought.
        """
        self._rows = min(self.rows + max(self.rows // 8, self._inflow), self._limit)
