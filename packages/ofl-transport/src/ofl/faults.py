"""Faults on purpose: a decorator around any client transport, and plans that say which call meets which fault.

Owns what each fault means at the transport's interface.  Must never invent a behaviour that a real peer or network
could not show, and never let one call's fault change another's bytes.  Standard library only.

Theory of operation.  `faulty_connect` decorates a `connect`; what it returns makes `FaultyTransport`s.  Each asks the
plan once per call.  Where a fault needs time to pass, `sleep_until` lets it pass, so a simulated clock needs no real
time.  A wait with a fault on it never outlasts its deadline.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, ConnectRefusedError, DeadlineError, PeerLostError
from ofl.interface import ClientTransport, Connect, Peer


class Fault(Enum):
    """What may happen to one call."""

    DROP = "drop"
    """The request never arrives, so no reply comes."""
    LOSE_REPLY = "lose_reply"
    """The request arrives; its reply does not."""
    DELAY = "delay"
    """The reply, and with it those behind it, come duration_ns after the request at the earliest."""
    DUPLICATE = "duplicate"
    """The request arrives twice, as after a retry; the first reply counts."""
    TRUNCATE = "truncate"
    """The reply ends early."""
    CORRUPT = "corrupt"
    """One bit of the reply is another."""
    REPLAY = "replay"
    """The reply to an earlier call comes instead; an empty one where there was none."""
    KILL = "kill"
    """The connection is lost: before the request leaves, or after it arrived."""
    FREEZE = "freeze"
    """Nothing moves in either direction for duration_ns."""
    SLOW = "slow"
    """For duration_ns from now on, every reply comes delay_ns after its request at the earliest."""


CONNECT_FAULTS = (Fault.KILL, Fault.FREEZE, Fault.DELAY)
"""What an attempt to connect may meet: it is refused, is never answered, or is answered late."""


@dataclass(frozen=True)
class Planned:
    """One fault.  draw: a number that settles its details (where a reply is cut, which bit, when a peer dies)."""

    fault: Fault
    duration_ns: int = 0
    delay_ns: int = 0
    draw: int = 0


class Plan(Protocol):
    """Which call meets which fault.  One plan serves all connections of a client, one after the other."""

    def for_connect(self) -> Planned | None:
        """Asked once per attempt to connect; one of CONNECT_FAULTS."""

    def for_call(self, parts: Sequence[Buffer]) -> Planned | None:
        """Asked once per request, before it is sent."""


class ListedPlan:
    """Faults by the number of the call and of the attempt to connect, both counted from 1."""

    def __init__(self, calls: Mapping[int, Planned], connects: Mapping[int, Planned] | None = None) -> None:
        self._listed, self._listed_connects = calls, connects or {}
        self.calls = self.connects = 0

    def for_connect(self) -> Planned | None:
        """See `Plan`."""
        self.connects += 1
        return self._listed_connects.get(self.connects)

    def for_call(self, parts: Sequence[Buffer]) -> Planned | None:
        """See `Plan`."""
        self.calls += 1
        return self._listed.get(self.calls)


class SeededPlan:
    """Faults drawn for a share of the calls: the same seed gives the same faults at the same calls.

    rate: share of calls, and of attempts to connect, with a fault.  duration_ns, delay_ns: of each, at most.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        faults: Sequence[Fault] = tuple(Fault),
        *,
        duration_ns: int,
        delay_ns: int,
    ) -> None:
        self._random = random.Random(seed)
        self._rate, self._faults = rate, tuple(faults)
        self._duration_ns, self._delay_ns = duration_ns, delay_ns

    def for_connect(self) -> Planned | None:
        """See `Plan`."""
        return self._drawn([fault for fault in self._faults if fault in CONNECT_FAULTS])

    def for_call(self, parts: Sequence[Buffer]) -> Planned | None:
        """See `Plan`."""
        return self._drawn(self._faults)

    def _drawn(self, faults: Sequence[Fault]) -> Planned | None:
        # Drawn in every case, so that what one call meets does not depend on what the others did.
        hit, fault = self._random.random() < self._rate, self._random.choice(faults or (None,))
        duration_ns, delay_ns = (
            self._random.randint(1, most) for most in (self._duration_ns, self._delay_ns)
        )
        planned = Planned(fault, duration_ns, delay_ns, self._random.getrandbits(32)) if fault else None
        return planned if hit else None


ClockNs = Callable[[], int]
SleepUntil = Callable[[int], None]


def sleep_until(time_ns: int) -> None:
    """Return at time_ns of CLOCK_MONOTONIC, at once where it has passed."""
    left_ns = time_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def faulty_connect(
    connect: Connect,
    plan: Plan,
    *,
    clock_ns: ClockNs = time.monotonic_ns,
    sleep_until: SleepUntil = sleep_until,
) -> Connect:
    """connect, with the plan's faults on its attempts and on the calls of what it returns."""

    def connect_with_faults(
        endpoint: str,
        *,
        service: str,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        deadline_ns: int,
    ) -> ClientTransport:
        planned = plan.for_connect()
        if planned is not None:
            if planned.fault is Fault.KILL:
                raise ConnectRefusedError(f"{endpoint}: nobody listens there, as planned")
            due_ns = deadline_ns if planned.fault is Fault.FREEZE else clock_ns() + planned.duration_ns
            sleep_until(min(due_ns, deadline_ns))
            if due_ns >= deadline_ns:
                raise DeadlineError(f"{endpoint}: no connection before the deadline, as planned")
        made = connect(
            endpoint,
            service=service,
            version_min=version_min,
            version_max=version_max,
            max_frame_bytes=max_frame_bytes,
            deadline_ns=deadline_ns,
        )
        return FaultyTransport(made, plan, clock_ns=clock_ns, sleep_until=sleep_until)

    return connect_with_faults


@dataclass
class _Call:
    """One open call.  due_ns: when its reply may be had.  held: its bytes, while they wait for a thaw.

    body: the reply, once it is here.
    """

    planned: Planned | None
    due_ns: int
    inner: int | None = None
    duplicate: int | None = None
    held: bytes | None = None
    body: bytearray | None = None


class FaultyTransport(Calls):
    """A client transport with faults on purpose.  Implements `ofl.interface.ClientTransport`.

    One thread uses it, `close` included: a planned sleep is not woken by another thread.
    """

    def __init__(
        self, inner: ClientTransport, plan: Plan, *, clock_ns: ClockNs, sleep_until: SleepUntil
    ) -> None:
        self._inner, self._plan = inner, plan
        self._clock_ns, self._sleep_until = clock_ns, sleep_until
        self._calls: dict[int, _Call] = {}
        self._sequence = 0
        self._killed = False
        self._frozen_until_ns = 0
        self._slow_until_ns = self._slow_ns = 0
        self._not_before_ns = 0
        self._latest = bytearray()

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._inner.peer

    @property
    def alive(self) -> bool:
        """False once the connection is lost, on purpose or not."""
        return not self._killed and self._inner.alive

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """See `ClientTransport`; meets what the plan says."""
        self._check()
        planned = self._plan.for_call(parts)
        if planned is not None:
            self._begin(planned)
        fault = planned.fault if planned else None
        call = _Call(planned, self._due_ns())
        if fault is Fault.DROP:
            pass
        elif self._clock_ns() < self._frozen_until_ns:
            call.held = b"".join(parts)
        else:
            self._send_held(deadline_ns)
            call.inner = self._inner.submit(parts, deadline_ns=deadline_ns)
            if fault is Fault.DUPLICATE:
                call.duplicate = self._inner.submit(parts, deadline_ns=deadline_ns)
        self._sequence += 1
        self._calls[self._sequence] = call
        if fault is Fault.KILL:
            self._kill()
        return self._sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """See `ClientTransport`; a reply that never comes is waited for until the deadline."""
        self._check()
        call = self._calls.get(sequence)
        if call is None:
            raise CancelledError(f"{self.peer.endpoint}: call {sequence} is not open")
        if self._clock_ns() < self._frozen_until_ns:
            self._wait_until(self._frozen_until_ns, deadline_ns, sequence)
        self._send_held(deadline_ns)
        if call.body is None:
            call.body = self._reply(sequence, call, deadline_ns)
        self._wait_until(call.due_ns, deadline_ns, sequence)
        self._end(self._calls.pop(sequence))
        self._latest = call.body
        return bytearray(call.body)

    def cancel(self, sequence: int) -> None:
        """See `ClientTransport`."""
        call = self._calls.pop(sequence, None)
        if call is not None:
            self._end(call)

    def close(self) -> None:
        """Close the connection beneath."""
        self._calls.clear()
        self._inner.close()

    # --- inside ---

    def _begin(self, planned: Planned) -> None:
        """What a fault changes for this call and those behind it.  Raises PeerLostError where it kills first."""
        now_ns = self._clock_ns()
        if planned.fault is Fault.KILL and planned.draw % 2:
            self._kill()
            self._check()
        if planned.fault is Fault.FREEZE:
            self._frozen_until_ns = max(self._frozen_until_ns, now_ns + planned.duration_ns)
        if planned.fault is Fault.SLOW:
            self._slow_until_ns, self._slow_ns = now_ns + planned.duration_ns, planned.delay_ns
        late_ns = planned.duration_ns if planned.fault is Fault.DELAY else 0
        self._not_before_ns = max(self._not_before_ns, now_ns + late_ns)

    def _due_ns(self) -> int:
        """When the reply to a request of now may be had: replies keep the order of their requests."""
        now_ns = self._clock_ns()
        if now_ns < self._slow_until_ns:
            self._not_before_ns = max(self._not_before_ns, now_ns + self._slow_ns)
        return self._not_before_ns

    def _reply(self, sequence: int, call: _Call, deadline_ns: int) -> bytearray:
        """The reply to a call, changed as planned."""
        planned = call.planned
        fault = planned.fault if planned else None
        body = bytearray()
        if call.inner is not None:
            body = self._inner.wait(call.inner, deadline_ns=deadline_ns)
            call.inner = None
        if fault in (Fault.DROP, Fault.LOSE_REPLY):
            self._wait_until(max(deadline_ns, self._clock_ns()) + 1, deadline_ns, sequence)
        return self._changed(planned, body) if planned else body

    def _changed(self, planned: Planned, body: bytearray) -> bytearray:
        if planned.fault is Fault.REPLAY:
            return self._latest
        if planned.fault is Fault.TRUNCATE and body:
            return body[: planned.draw % len(body)]
        if planned.fault is Fault.CORRUPT and body:
            bit = planned.draw % (8 * len(body))
            body[bit // 8] ^= 1 << bit % 8
        return body

    def _wait_until(self, due_ns: int, deadline_ns: int, sequence: int) -> None:
        """Let time pass until then.  Raises DeadlineError, at the deadline, where that comes first."""
        if due_ns <= self._clock_ns():
            return
        self._sleep_until(min(due_ns, deadline_ns))
        self._check()
        if due_ns > deadline_ns:
            raise DeadlineError(
                f"{self.peer.endpoint}: call {sequence} did not end before its deadline, as planned"
            )

    def _send_held(self, deadline_ns: int) -> None:
        """What was held back while nothing moved leaves in its order."""
        if self._frozen_until_ns == 0 or self._clock_ns() < self._frozen_until_ns:
            return
        for call in self._calls.values():
            if call.held is not None:
                call.inner = self._inner.submit([call.held], deadline_ns=deadline_ns)
                call.held = None
        self._frozen_until_ns = 0

    def _end(self, call: _Call) -> None:
        for sequence in (call.inner, call.duplicate):
            if sequence is not None:
                self._inner.cancel(sequence)

    def _kill(self) -> None:
        self._killed = True
        self._inner.close()

    def _check(self) -> None:
        if self._killed:
            raise PeerLostError(f"{self.peer.endpoint}: the connection is lost, as planned")
