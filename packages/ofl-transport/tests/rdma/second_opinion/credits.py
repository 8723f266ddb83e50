"""Receives as credits, both ways: what is left of the other end's, and what the other end may use of ours.

Pure.  Judges the other end by what this end has told it, whether that has arrived yet or not: an overdraft that this
finds is one for certain.
"""

from rdma.second_opinion.records import require

RESERVED = 2
"""That many are for segments without bytes."""


class Credits:
    """ours, theirs: receives that each end posted before it said so in its link frame."""

    def __init__(self, ours: int, theirs: int) -> None:
        self.ours, self.theirs = ours, theirs
        self.left = theirs
        """Of the other end's receives, as far as it has told."""
        self.granted = ours
        """Of our receives, what the other end may still use."""
        self.untold = 0
        self.arrived = 0
        """Segments and placed replies of the other end, ever."""

    @property
    def may_send(self) -> bool:
        """A segment with bytes, or a write with immediate."""
        return self.left > RESERVED

    @property
    def update_is_due(self) -> bool:
        return 2 * self.untold >= self.ours and self.left > 0

    def sent(self) -> None:
        self.left -= 1

    def tell(self) -> int:
        """The immediate of a SEND; from then on the other end may use as many more."""
        told, self.untold = self.untold, 0
        self.granted += told
        return told

    def received(self, nbytes: int, immediate: int) -> None:
        """A segment, after its receive was posted anew.  Raises WireFaultError."""
        self._used(RESERVED if nbytes else 0, "a segment with bytes" if nbytes else "a segment without bytes")
        self.left += immediate
        require(
            self.left <= self.theirs,
            f"the immediate returns {immediate} receives, and {self.left} of {self.theirs} would be left",
        )

    def placed(self) -> None:
        """A write with immediate, after the receive that it used up was posted anew.  Raises WireFaultError."""
        self._used(RESERVED, "a write with immediate")

    def _used(self, reserved: int, what: str) -> None:
        require(self.granted > reserved, f"{what} came with {self.granted} receives left")
        self.granted -= 1
        self.untold += 1
        self.arrived += 1
