"""A whole call ends in any case: by its reply, or by a cancel."""

from collections.abc import Sequence

import pytest
from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.errors import DeadlineError, PeerLostError
from ofl.interface import Peer


class Recorder(Calls):
    """Notes what is asked of it; raises from submit or from wait where it is given something to raise."""

    def __init__(self, submit: BaseException | None = None, wait: BaseException | None = None) -> None:
        self.peer, self.alive = Peer("tcp://echo:1", "echo", 1, 7, 1 << 20), True
        self.done: list[object] = []
        self._submit, self._wait = submit, wait

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        self.done.append(("submit", list(parts), deadline_ns))
        if self._submit is not None:
            raise self._submit
        return 3

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        self.done.append(("wait", sequence, deadline_ns))
        if self._wait is not None:
            raise self._wait
        return bytearray(b"reply")

    def cancel(self, sequence: int) -> None:
        self.done.append(("cancel", sequence))

    def close(self) -> None:
        raise AssertionError("a call closes nothing")


SENT, WAITED = ("submit", [b"a", b"b"], 50), ("wait", 3, 50)


def test_both_halves_have_the_deadline_and_a_reply_leaves_nothing_to_cancel() -> None:
    transport = Recorder()
    assert transport.call([b"a", b"b"], deadline_ns=50) == b"reply"
    assert transport.done == [SENT, WAITED]


@pytest.mark.parametrize("error", [DeadlineError, PeerLostError, KeyboardInterrupt])
def test_whatever_ends_the_wait_the_call_does_not_stay_open(error: type[BaseException]) -> None:
    transport = Recorder(wait=error("as the test asks"))
    with pytest.raises(error, match="as the test asks"):
        transport.call([b"a", b"b"], deadline_ns=50)
    assert transport.done == [SENT, WAITED, ("cancel", 3)]


def test_what_was_never_sent_is_not_cancelled() -> None:
    transport = Recorder(submit=DeadlineError("no room"))
    with pytest.raises(DeadlineError, match="no room"):
        transport.call([b"a", b"b"], deadline_ns=50)
    assert transport.done == [SENT]
