"""What a whole call is, for every client transport: `Calls`.

Owns the order of submit, wait and cancel.  Must never know how a transport does one of them.  Standard library only.
"""

from collections.abc import Sequence

from ofl.contract.records import Buffer
from ofl.interface import ClientTransport


class Calls:
    """Gives a client transport its `call`."""

    def call(self: ClientTransport, parts: Sequence[Buffer], *, deadline_ns: int) -> bytearray:
        """submit and wait; cancels where the wait ends without a reply, by DeadlineError or anything else.

        Raises what `submit` and `wait` raise.
        """
        sequence = self.submit(parts, deadline_ns=deadline_ns)
        try:
            return self.wait(sequence, deadline_ns=deadline_ns)
        except BaseException:
            # Also an interrupt: a call that nobody ends keeps its place among those that may be open.
            self.cancel(sequence)
            raise
