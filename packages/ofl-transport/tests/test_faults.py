"""Each fault does at the transport's interface what its name says, and no wait outlasts its deadline."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import pytest
from ofl import faults
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, ConnectRefusedError, DeadlineError, PeerLostError
from ofl.faults import CONNECT_FAULTS, Fault, FaultyTransport, ListedPlan, Planned, SeededPlan, faulty_connect
from ofl.interface import ClientTransport, Peer

RTT_NS = 10
SOON_NS = 1000


class Clock:
    """Simulated time; nothing but `sleep_until` moves it."""

    def __init__(self) -> None:
        self.now_ns = 100

    def __call__(self) -> int:
        return self.now_ns

    def sleep_until(self, time_ns: int) -> None:
        self.now_ns = max(self.now_ns, time_ns)


class EchoTwin:
    """Answers every request with itself, RTT_NS later; keeps what arrived and what was cancelled."""

    def __init__(self, clock: Clock) -> None:
        self.peer = Peer("tcp://echo:1", "echo", 1, 7, 1 << 20)
        self.alive = True
        self.arrived: list[bytes] = []
        self.cancelled: list[int] = []
        self._clock = clock
        self._numbers = itertools.count(1)
        self._replies: dict[int, tuple[int, bytes]] = {}

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        number = next(self._numbers)
        self.arrived.append(b"".join(parts))
        self._replies[number] = (self._clock() + RTT_NS, self.arrived[-1])
        return number

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        if not self.alive:
            raise PeerLostError("lost")
        due_ns, body = self._replies[sequence]
        self._clock.sleep_until(min(due_ns, deadline_ns))
        if due_ns > max(deadline_ns, self._clock()):
            raise DeadlineError("late")
        del self._replies[sequence]
        return bytearray(body)

    def cancel(self, sequence: int) -> None:
        self.cancelled.append(sequence)

    def call(self, parts: Sequence[Buffer], *, deadline_ns: int) -> bytearray:
        raise NotImplementedError

    def close(self) -> None:
        self.alive = False


class Rig:
    """A faulty transport over an echo, with faults by number of the call."""

    def __init__(self, **calls: Planned) -> None:
        self.clock = Clock()
        self.inner = EchoTwin(self.clock)
        plan = ListedPlan({int(name.removeprefix("call")): planned for name, planned in calls.items()})
        self.transport = FaultyTransport(
            self.inner, plan, clock_ns=self.clock, sleep_until=self.clock.sleep_until
        )

    def submit(self, body: bytes) -> int:
        return self.transport.submit([body[:1], body[1:]], deadline_ns=self.clock() + SOON_NS)

    def wait(self, sequence: int, patience_ns: int = SOON_NS) -> bytes:
        return bytes(self.transport.wait(sequence, deadline_ns=self.clock() + patience_ns))

    def times_out(self, sequence: int, patience_ns: int = SOON_NS) -> None:
        deadline_ns = self.clock() + patience_ns
        with pytest.raises(DeadlineError):
            self.transport.wait(sequence, deadline_ns=deadline_ns)
        assert self.clock() == deadline_ns, "neither before the deadline nor after it"


def test_without_a_plan_for_a_call_nothing_changes() -> None:
    rig = Rig()
    first, second = rig.submit(b"one"), rig.submit(b"two")
    assert (rig.wait(second), rig.wait(first)) == (b"two", b"one")
    assert rig.clock() == 100 + RTT_NS
    with pytest.raises(CancelledError):
        rig.wait(first)
    assert rig.transport.call([b"three"], deadline_ns=SOON_NS) == b"three"


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.LOSE_REPLY])
def test_a_lost_message_times_out_and_the_next_call_goes_on(fault: Fault) -> None:
    rig = Rig(call1=Planned(fault))
    lost = rig.submit(b"lost")
    rig.times_out(lost)
    rig.times_out(lost, patience_ns=0)
    assert rig.inner.arrived == ([] if fault is Fault.DROP else [b"lost"])
    rig.transport.cancel(lost)
    assert rig.wait(rig.submit(b"next")) == b"next"


def test_a_delayed_reply_holds_up_those_behind_it_and_comes_to_a_later_wait() -> None:
    rig = Rig(call1=Planned(Fault.DELAY, duration_ns=500))
    late, behind = rig.submit(b"late"), rig.submit(b"behind")
    rig.times_out(behind, patience_ns=300)
    rig.times_out(late, patience_ns=100)
    assert rig.wait(late) == b"late"
    assert rig.clock() == 100 + 500
    assert rig.wait(behind) == b"behind"
    assert rig.clock() == 100 + 500


def test_a_duplicate_arrives_twice_and_its_second_reply_is_let_go() -> None:
    rig = Rig(call1=Planned(Fault.DUPLICATE))
    assert rig.wait(rig.submit(b"twice")) == b"twice"
    assert rig.inner.arrived == [b"twice", b"twice"]
    assert rig.inner.cancelled == [2]


@pytest.mark.parametrize("draw", [0, 3, 7, 12])
def test_a_truncated_reply_is_a_true_beginning_of_it(draw: int) -> None:
    rig = Rig(call1=Planned(Fault.TRUNCATE, draw=draw))
    assert rig.wait(rig.submit(b"message")) == b"message"[: draw % 7]


@pytest.mark.parametrize("draw", [0, 9, 55, 56])
def test_a_corrupt_reply_differs_in_one_bit(draw: int) -> None:
    rig = Rig(call1=Planned(Fault.CORRUPT, draw=draw))
    got = int.from_bytes(rig.wait(rig.submit(b"message")), "little")
    assert got ^ int.from_bytes(b"message", "little") == 1 << draw % 56


def test_a_replayed_reply_is_the_latest_one_that_was_had() -> None:
    rig = Rig(call1=Planned(Fault.REPLAY), call3=Planned(Fault.REPLAY))
    assert rig.wait(rig.submit(b"one")) == b"", "there was none before"
    assert rig.wait(rig.submit(b"two")) == b"two"
    assert rig.wait(rig.submit(b"three")) == b"two"


@pytest.mark.parametrize("draw", [0, 1])
def test_a_killed_connection_is_lost_before_the_request_or_after_it(draw: int) -> None:
    rig = Rig(call2=Planned(Fault.KILL, draw=draw))
    first = rig.submit(b"one")
    if draw:
        with pytest.raises(PeerLostError):
            rig.submit(b"two")
    else:
        rig.submit(b"two")
    assert rig.inner.arrived == [b"one", b"two"][: 2 - draw]
    assert not rig.transport.alive
    assert not rig.inner.alive
    for again in (lambda: rig.wait(first), lambda: rig.submit(b"three")):
        with pytest.raises(PeerLostError):
            again()


def test_a_freeze_holds_everything_back_and_lets_it_go_in_order() -> None:
    rig = Rig(call2=Planned(Fault.FREEZE, duration_ns=400))
    before = rig.submit(b"before")
    frozen = rig.submit(b"frozen")
    behind = rig.submit(b"behind")
    rig.times_out(before, patience_ns=50)
    rig.times_out(behind, patience_ns=300)
    assert rig.inner.arrived == [b"before"]
    assert rig.wait(behind) == b"behind"
    assert rig.inner.arrived == [b"before", b"frozen", b"behind"]
    assert rig.clock() == 100 + 400 + RTT_NS
    assert (rig.wait(before), rig.wait(frozen)) == (b"before", b"frozen")


def test_a_slow_peer_is_late_for_a_while() -> None:
    rig = Rig(call1=Planned(Fault.SLOW, duration_ns=300, delay_ns=200))
    for started_ns in (100, 300):
        assert rig.clock() == started_ns
        assert rig.wait(rig.submit(b"slow")) == b"slow"
    assert rig.clock() == 500
    assert rig.wait(rig.submit(b"fast")) == b"fast"
    assert rig.clock() == 500 + RTT_NS


@pytest.mark.parametrize(
    ("planned", "error", "at_ns"),
    [
        (Planned(Fault.KILL), ConnectRefusedError, 100),
        (Planned(Fault.FREEZE), DeadlineError, 900),
        (Planned(Fault.DELAY, duration_ns=800), DeadlineError, 900),
        (Planned(Fault.DELAY, duration_ns=200), None, 300),
    ],
)
def test_an_attempt_to_connect_meets_its_own_faults(
    planned: Planned, error: type[Exception] | None, at_ns: int
) -> None:
    clock = Clock()
    made: list[EchoTwin] = []

    def connect(endpoint: str, **limits: Any) -> ClientTransport:
        made.append(EchoTwin(clock))
        return made[-1]

    plan = ListedPlan({}, {1: planned})
    faulty = faulty_connect(connect, plan, clock_ns=clock, sleep_until=clock.sleep_until)

    def attempt() -> ClientTransport:
        return faulty(
            "tcp://echo:1",
            service="echo",
            version_min=1,
            version_max=1,
            max_frame_bytes=1024,
            deadline_ns=900,
        )

    if error is None:
        assert attempt().peer.service == "echo"
    else:
        with pytest.raises(error):
            attempt()
        assert not made
    assert clock() == at_ns
    assert attempt().alive, "the second attempt has no fault"


def test_a_seed_gives_the_same_faults_at_the_same_calls() -> None:
    def drawn(seed: int, rate: float = 0.5) -> list[Planned | None]:
        plan = SeededPlan(seed, rate, duration_ns=1000, delay_ns=100)
        return [plan.for_call([b"x"]) for _ in range(200)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    met = [planned for planned in drawn(3) if planned]
    assert 60 < len(met) < 140, "half of 200, more or less"
    assert {planned.fault for planned in met} == set(Fault)
    rare = drawn(3, 0.1)
    assert all(planned is None or planned == often for planned, often in zip(rare, drawn(3), strict=True))


def test_attempts_to_connect_meet_only_what_can_happen_to_them() -> None:
    plan = SeededPlan(5, 1.0, duration_ns=1000, delay_ns=100)
    met = {planned.fault for _ in range(100) if (planned := plan.for_connect())}
    assert met == set(CONNECT_FAULTS)
    assert SeededPlan(5, 1.0, [Fault.DROP], duration_ns=1, delay_ns=1).for_connect() is None


def test_a_real_sleep_ends_at_its_time_and_never_begins_where_it_has_passed() -> None:
    until_ns = time.monotonic_ns() + 2_000_000
    faults.sleep_until(until_ns)
    assert time.monotonic_ns() >= until_ns
    faults.sleep_until(0)
