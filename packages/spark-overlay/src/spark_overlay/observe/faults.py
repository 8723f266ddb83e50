"""The fault seam: a transport decorator that lets one request's traffic meet what its plan says.

Owns what each action does, to which message, and says so in `Fault` records.  Must never act on a message in which the
fault's owner is not, and never wait for a time: what passes is counted in engine steps.  It stands beneath the
observer, which so sees what the drafter sees.  One thread uses a connection, except `close`.

The *final* message of a request is the first one of its slot's generation that asks for drafts (NEED_DRAFT).

    drop_before_final        What the step before the one with the final message says of the owner never arrives.  Which
                             step that is follows from the prompt tokens that are left and from the engine's budget of
                             tokens, so no other request's prefill may compete, and the prompt must take two steps.
    disconnect_before_final  The connection is lost, and the final message has not left.
    disconnect_after_final   The final message was answered; the connection is lost before its reply is handed over.
    hold_reply               To a message that asks for drafts: its deadline passes at once, and its reply is there
                             hold_steps engine steps later, for whoever still asks.
    old_generation           To a message that asks for drafts: the reply names an older generation of the owner's slot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ofl.calls import Calls
from ofl.contract.dspark_v1 import StepEntry
from ofl.contract.dspark_v1.layout import STEP_REPLY_ENTRY
from ofl.contract.observation_v1 import Fault
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, DeadlineError, PeerLostError, TransportError
from ofl.interface import ClientTransport, Connect, Peer

from spark_overlay.observe.fault_plan import (
    DISCONNECT_AFTER_FINAL,
    DISCONNECT_BEFORE_FINAL,
    DROP_BEFORE_FINAL,
    HOLD_REPLY,
    OLD_GENERATION,
    FaultOrder,
    PlanFile,
)
from spark_overlay.observe.messages import Message, Reader, entry_offset
from spark_overlay.observe.watch import Watch


@dataclass
class FaultSeam:
    """All connections of one drafter.  budget_tokens: scheduled tokens of a step, at most.

    on_strike: called when something is about to go wrong, for whoever keeps count.
    """

    watch: Watch
    plan: PlanFile
    budget_tokens: int
    on_strike: Callable[[], None] = lambda: None
    _armed: dict[FaultOrder, None] = field(default_factory=dict)
    _known: set[FaultOrder] = field(default_factory=set)
    _dropping: dict[FaultOrder, None] = field(default_factory=dict)
    _final: dict[int, int] = field(default_factory=dict)
    """By slot, the last generation that asked for drafts."""

    def begin_step(self) -> None:
        """Read the plan where it changed; the engine's thread, before its step."""
        for order in self._dropping:
            self._armed.pop(order, None)
        self._dropping.clear()
        try:
            orders = self.plan.changed()
        except (OSError, ValueError) as error:
            self.watch.sink.defect(error)
            return
        if orders is None:
            return
        self._armed = {order: None for order in orders if order in self._armed or order not in self._known}
        for order in orders:
            if order not in self._known:
                self.say(order, "armed")
        self._known = set(orders)

    def faulty(self, connect: Connect) -> Connect:
        """connect, with the plan's faults on what it returns."""

        def faulty_connect(
            endpoint: str,
            *,
            service: str,
            version_min: int,
            version_max: int,
            max_frame_bytes: int,
            deadline_ns: int,
        ) -> ClientTransport:
            made = connect(
                endpoint,
                service=service,
                version_min=version_min,
                version_max=version_max,
                max_frame_bytes=max_frame_bytes,
                deadline_ns=deadline_ns,
            )
            return FaultyTransport(made, self)

        return faulty_connect

    def say(self, order: FaultOrder, moment: str) -> None:
        """Record what happens."""
        self.watch.sink.write(Fault(self.watch.step, order.case, order.request, order.action, moment))

    def strike(self, order: FaultOrder, moment: str = "struck") -> None:
        """It happens, and will not again."""
        self._armed.pop(order, None)
        self.say(order, moment)
        self.on_strike()

    def armed(self, message: Message) -> list[tuple[FaultOrder, int]]:
        """Armed faults whose owner is in a message, each with its entry's place."""
        owners = {self.watch.name(entry.slot): at for at, entry in enumerate(message.step.entries)}
        return [(order, owners[order.request]) for order in self._armed if order.request in owners]

    def awaits_final(self, entry: StepEntry) -> bool:
        """Whether the final message of an entry's request is still to come, or is this one."""
        return self._final.get(entry.slot) != entry.generation

    def before_final(self, entry: StepEntry) -> bool:
        """Whether the next step takes all that is left of an entry's prompt."""
        others = (len(self.watch.requests) - 1) * (self.watch.tags.n_drafts + 1)
        left = next((asked.remaining for asked in self.watch.requests if asked.slot == entry.slot), -1)
        return self.awaits_final(entry) and 0 < left <= self.budget_tokens - others

    def drop(self, order: FaultOrder) -> None:
        """A message of its last step before the final one is dropped; so are others of that step."""
        if order not in self._dropping:
            self._dropping[order] = None
            self.say(order, "struck")
            self.on_strike()

    def left(self, message: Message) -> None:
        """A message is on its way, whatever it meets there."""
        self._final.update(
            (entry.slot, entry.generation) for entry in message.step.entries if entry.needs_draft
        )


@dataclass
class _Call:
    """An open call.  inner: beneath; None where it was dropped.  message: of a STEP.  order, at: of the
    fault that it meets.  release: the step from which on a held reply is there, 0 where none is held.
    """

    inner: int | None
    message: Message | None = None
    order: FaultOrder | None = None
    at: int = 0
    release: int = 0


class FaultyTransport(Calls):
    """One connection."""

    def __init__(self, inner: ClientTransport, seam: FaultSeam) -> None:
        self._inner, self._seam = inner, seam
        self._reader = Reader()
        self._calls: dict[int, _Call] = {}
        self._sequence = 0
        self._lost = False

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._inner.peer

    @property
    def alive(self) -> bool:
        """False once the connection is lost, on purpose or not."""
        return not self._lost and self._inner.alive

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """See `ClientTransport`."""
        self._check()
        message = self._read(parts)
        call = _Call(None) if message is None else self._meet(message)
        if call.order is None or call.order.action != DROP_BEFORE_FINAL:
            call.inner = self._inner.submit(parts, deadline_ns=deadline_ns)
        if message is not None:
            self._seam.left(message)
        self._sequence += 1
        self._calls[self._sequence] = call
        return self._sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """See `ClientTransport`."""
        self._check()
        call = self._calls.get(sequence)
        if call is None:
            raise CancelledError(f"{self.peer.endpoint}: call {sequence} is not open")
        if call.inner is None:
            raise DeadlineError(f"{self.peer.endpoint}: call {sequence} never arrived, as planned")
        action = call.order.action if call.order is not None else ""
        if action == HOLD_REPLY:
            self._hold(sequence, call)
        if action == DISCONNECT_AFTER_FINAL:
            self._lose_after(call, deadline_ns)
        body = self._inner.wait(call.inner, deadline_ns=deadline_ns)
        del self._calls[sequence]
        if call.release and call.order is not None:
            self._seam.say(call.order, "released")
        return self._aged(call, body) if action == OLD_GENERATION else body

    def cancel(self, sequence: int) -> bool | None:
        """See `ClientTransport`."""
        call = self._calls.pop(sequence, None)
        if call is None or call.inner is None:
            return None
        return self._inner.cancel(call.inner)

    def close(self) -> None:
        """Close the connection beneath."""
        self._inner.close()

    # --- inside ---

    def _read(self, parts: Sequence[Buffer]) -> Message | None:
        try:
            return self._reader.read(parts)
        except ValueError as error:
            self._seam.watch.sink.defect(error)
            return None

    def _meet(self, message: Message) -> _Call:
        """The call of a message and the fault that it meets.  Raises PeerLostError where it must not leave."""
        seam = self._seam
        call = _Call(None, Message(message.envelope, message.step, message.shape, ()))
        for order, at in seam.armed(message):
            entry = message.step.entries[at]
            final = entry.needs_draft and seam.awaits_final(entry)
            if order.action == DROP_BEFORE_FINAL and not message.awaited and seam.before_final(entry):
                seam.drop(order)
                call.order = order
            elif order.action == DISCONNECT_BEFORE_FINAL and final:
                seam.strike(order)
                self._lose()
                self._check()
            elif (order.action == DISCONNECT_AFTER_FINAL and final) or (
                order.action in (HOLD_REPLY, OLD_GENERATION) and entry.needs_draft
            ):
                call.order, call.at = order, at
        return call

    def _hold(self, sequence: int, call: _Call) -> None:
        """Raises DeadlineError until the reply is to be had."""
        assert call.order is not None, "it meets a fault"
        step = self._seam.watch.step
        if not call.release:
            call.release = step + call.order.hold_steps
            self._seam.strike(call.order, "held")
        if step < call.release:
            raise DeadlineError(f"{self.peer.endpoint}: the reply to call {sequence} is held, as planned")

    def _lose_after(self, call: _Call, deadline_ns: int) -> None:
        """Raises PeerLostError once the reply, which proves that the message arrived, is here; or DeadlineError."""
        assert call.order is not None, "it meets a fault"
        assert call.inner is not None, "it left"
        try:
            self._inner.wait(call.inner, deadline_ns=deadline_ns)
        except DeadlineError:
            raise
        except TransportError:
            pass  # lost by itself, which comes to the same
        self._seam.strike(call.order)
        self._lose()
        self._check()

    def _aged(self, call: _Call, body: bytearray) -> bytearray:
        """The reply with an older generation of the owner's slot; as it is where it has no such entry."""
        assert call.order is not None, "it meets a fault"
        assert call.message is not None, "only a STEP meets one"
        place = entry_offset(call.message.shape, call.at) + STEP_REPLY_ENTRY.offsets["generation"]
        if len(body) < place + 4:
            return body
        older = max(0, call.message.step.entries[call.at].generation - 1)
        body[place : place + 4] = older.to_bytes(4, "little")
        self._seam.strike(call.order)
        return body

    def _lose(self) -> None:
        self._lost = True
        self._inner.close()

    def _check(self) -> None:
        if self._lost:
            raise PeerLostError(f"{self.peer.endpoint}: the connection is lost, as planned")
