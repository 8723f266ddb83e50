"""What must hold after every round, whatever went wrong.  Shares no code with the round core that it judges.

Rules
1. Drafts that are used are exactly the model's block over the true rows of the request's present life, from the
   window that the STEP declared; a window that lacks rows is declared partial, and lacks no more than it must.
2. Every row that reaches the worker is a true row of the request that has the slot; a trimmed one never does.
3. A slot's generation rises with each life, and never falls.
4. Epochs rise.  A round is over by its deadline and is counted in exactly one class.
5. All ranks return the same drafts, and what their policy says: remote ones, local ones over the whole context, or
   none.
6. Once nothing has been wrong for a while, every wish is granted; and in the first round of a session at once, as it is
   known then that the worker holds nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from ofl.contract.dspark_v1 import EntryFlag, Shape, StepEntry, decode_request, peek
from ofl.contract.dspark_v1.layout import Kind, Op
from ofl.contract.dspark_v1.messages import Step as StepMessage
from ofl.contract.dspark_v1.rules import first_needed

from spark_overlay.round import reasons
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.simulation.model import Model
from spark_overlay.simulation.ranks import Drafts, Entry, Step

QUIET_ROUNDS = 26
"""Rounds without a fault after which every wish is granted: the longest pause between attempts to connect is 11 of
them, the breaker's cooldown 6, and a timeout may follow each."""
RESYNC_ROUNDS = 40
"""Rounds without a fault after which no window may still be on its way."""


@dataclass
class SlotTruth:
    """What the overlay was given of a slot.  life: names the request's life.  start .. end-1: without a hole.

    peak: the highest end of this stretch.  generation: the last one seen, and used_by the life that it was of.
    window_start, n_out, partial: of its wish in this round's STEP; -1, 0 and False without one.
    """

    life: tuple[str, int] = ("", 0)
    start: int = 0
    end: int = 0
    peak: int = 0
    generation: int = 0
    used_by: tuple[str, int] = ("", 0)
    window_start: int = -1
    n_out: int = 0
    partial: bool = False


@dataclass(frozen=True)
class Circumstances:
    """Of a round.  corrupted: a reply was changed and may say anything.  quiet: rounds since anything was wrong.

    first: of a session, with nothing wrong in it.  on_order: the round was paused by operators, or is between an order
    of theirs and the end of the attempt to connect that follows.
    """

    corrupted: bool
    quiet: int
    first: bool
    on_order: bool = False


@dataclass
class Sent:
    """What a STEP says to the simulation."""

    slots: frozenset[int]
    wants_drafts: bool


@dataclass
class Checker:
    """Watches one engine.  ring_rows: the overlay keeps of a slot.  whole_wishes: drafts are asked for in full.

    paused: by operators: nothing but a goodbye may be sent.  cap: on draft positions, of operators.
    drafted: requests that got remote drafts.  accepted: of those drafts, by the target.  eligible: of shadow.
    """

    model: Model
    shape: Shape
    policy: str
    uses_remote: bool
    whole_wishes: bool
    ring_rows: int
    slots: dict[int, SlotTruth] = field(default_factory=dict)
    epoch: int = 0
    paused: bool = False
    cap: int | None = None
    drafted: int = 0
    partial: int = 0
    eligible: int = 0
    disagreed: int = 0
    fallbacks: int = 0
    _step: dict[int, Entry] = field(default_factory=dict)
    _expected_local: dict[int, tuple[int, ...]] = field(default_factory=dict)

    # --- before the round ---

    def given(self, step: Step, lives: Sequence[tuple[str, int]]) -> None:
        """The rows that this step gives."""
        self._step = {entry.slot: entry for entry in step.entries}
        for entry, life in zip(step.entries, lives, strict=True):
            slot = self.slots.setdefault(entry.slot, SlotTruth())
            first = entry.first_position
            if slot.life != life or not slot.start <= first <= slot.end:
                slot.life, slot.start, slot.peak = life, first, first
            slot.end = first + entry.n_rows
            slot.peak = max(slot.peak, slot.end)
            slot.window_start, slot.n_out, slot.partial = -1, 0, False

    # --- on the wire ---

    def sent(self, parts: Sequence[bytes | bytearray | memoryview]) -> Sent | None:
        """A message leaves; None where it is no STEP."""
        body = b"".join(parts)
        head = peek(body, Kind.REQUEST)
        assert head.epoch >= self.epoch, f"epoch {head.epoch} after {self.epoch}"
        self.epoch = head.epoch
        if head.op is not Op.STEP:
            assert not self.paused or head.op is Op.GOODBYE, f"{head.op.name} while operators have paused it"
            return None
        assert not self.paused, "a STEP while operators have paused it"
        _, message = decode_request(body, self.shape)
        assert isinstance(message, StepMessage), "a STEP"
        for entry, rows in zip(message.entries, message.rows, strict=True):
            self._check_rows(entry, bytes(rows))
        return Sent(
            frozenset(entry.slot for entry in message.entries), any(entry.n_out for entry in message.entries)
        )

    def _check_rows(self, entry: StepEntry, rows: bytes) -> None:
        slot, request = self.slots[entry.slot], self._step[entry.slot].request
        end = entry.first_position + entry.n_rows
        where = f"{request.name} in slot {entry.slot}, rows {entry.first_position} .. {end - 1}"
        assert slot.start <= entry.first_position <= end <= slot.end, f"{where}: not of this life"
        right = b"".join(request.rows[entry.first_position : end])
        if rows != right:
            size = self.shape.row_bytes
            zero = any(not any(rows[at : at + size]) for at in range(0, len(rows), size))
            raise AssertionError(f"{where}: {'a trimmed row is sent' if zero else 'not its true rows'}")
        rises = entry.generation > slot.generation
        assert rises or (entry.generation == slot.generation and slot.used_by == slot.life), (
            f"{where}: generation {entry.generation} after {slot.generation} of {slot.used_by[0]}"
        )
        slot.generation, slot.used_by = entry.generation, slot.life
        if entry.n_out:
            slot.window_start, slot.n_out = entry.window_start, entry.n_out
            slot.partial = bool(entry.flags & EntryFlag.PARTIAL_WINDOW)

    # --- after the round ---

    def finished(
        self, requests: Sequence[RoundRequest], result: RoundResult, circumstances: Circumstances
    ) -> None:
        """What rank 0 got."""
        quiet = circumstances.quiet
        if result.reason == reasons.INTERNAL_ERROR:
            for slot in self.slots.values():
                slot.life = ("", 0)  # nothing of before is trusted
        if result.reason == reasons.PAUSED:
            assert circumstances.on_order, "paused where nobody paused, resumed or rearmed it"
        elif self.paused:
            assert result.reason == reasons.INTERNAL_ERROR, (
                f"a paused round ended as {result.reason or 'good'}"
            )
        for index, asked in enumerate(requests):
            assert self.cap is None or asked.n_out <= self.cap, (
                f"{asked.n_out} drafts past a cap of {self.cap}"
            )
            outcome = Outcome(int(result.outcomes[index]))
            where = f"{asked.request_id} in slot {asked.slot}: {outcome.name} {result.reason} {result.detail}"
            assert bool(result.ok[index]) == (outcome is Outcome.OK), where
            if outcome is Outcome.OK:
                assert asked.n_out, where
                self._check_drafts(asked, result, index, corrupted=circumstances.corrupted)
                continue
            assert not result.drafts[index].any(), f"{where}: drafts"
            assert outcome is Outcome.NO_DRAFT or asked.n_out, where
            if circumstances.first and result.reason != reasons.COOLDOWN:
                assert outcome in (Outcome.NO_DRAFT, Outcome.RESYNC_PENDING), f"{where}, at the first round"
            patience = RESYNC_ROUNDS if outcome is Outcome.RESYNC_PENDING else QUIET_ROUNDS
            assert outcome is Outcome.NO_DRAFT or quiet < patience, (
                f"{where}, {quiet} rounds after the last fault"
            )

    def _check_drafts(self, asked: RoundRequest, result: RoundResult, index: int, *, corrupted: bool) -> None:
        slot, request = self.slots[asked.slot], self._step[asked.slot].request
        where = f"{request.name} in slot {asked.slot}"
        anchor_position = asked.first_position + asked.n_rows
        needed = first_needed(self.model.window, anchor_position)
        assert slot.window_start >= 0, f"{where}: drafts that nobody asked for"
        start = max(slot.window_start, needed)
        reach = 0 if self.model.window else slot.peak - self.ring_rows
        assert start <= max(slot.start, needed, reach), f"{where}: the context starts at {start}"
        partial = start > needed
        assert slot.partial == bool(result.partial[index]) == partial, f"{where}: partial window"
        wished = self.model.block_length if self.whole_wishes else asked.n_out
        assert slot.n_out == wished, f"{where}: {slot.n_out} drafts asked for where {wished} are wished"
        self.drafted += 1
        self.partial += partial
        if self.policy == "shadow" and not partial and anchor_position + wished < self.model.max_positions:
            self.eligible += 1
            local = self.local_block(self._step[asked.slot])
            self.disagreed += tuple(result.drafts[index].tolist()) != local
        if corrupted:
            return
        block = self.model.block(
            request.digests[start:anchor_position],
            request.rows[anchor_position - 1],
            asked.anchor,
            anchor_position,
            wished,
        )
        got = (result.drafts[index], result.confidences[index], result.margins[index])
        for values, right in zip(got, (block.drafts, block.confidences, block.margins), strict=True):
            assert tuple(values[:wished].tolist()) == right, (
                f"{where}: drafts from other rows than the true ones"
            )
            assert not values[wished:].any(), f"{where}: more drafts than were asked for"

    def local_block(self, entry: Entry) -> tuple[int, ...]:
        """What a local drafter with a whole context drafts."""
        if (known := self._expected_local.get(entry.slot)) is not None:
            return known
        position, request = entry.anchor_position, entry.request
        digests = request.digests[first_needed(self.model.window, position) : position]
        block = self.model.block(
            digests, request.rows[position - 1], entry.anchor, position, self.model.block_length
        )
        self._expected_local[entry.slot] = block.drafts
        return block.drafts

    def proposed(self, step: Step, result: RoundResult, by_rank: Sequence[Drafts]) -> None:
        """What each rank will verify."""
        for number, drafts in enumerate(by_rank):
            assert np.array_equal(drafts, by_rank[0]), f"rank {number} drafts {drafts}, rank 0 {by_rank[0]}"
        for index, entry in enumerate(step.entries):
            got = tuple(by_rank[0][index].tolist())
            ok = bool(result.ok[index])
            remote = tuple(result.drafts[index].tolist())
            local = self.policy == "shadow" and not self.uses_remote
            if self.policy == "capacity" or (ok and not local):
                right = remote
            elif entry.n_sampled and (self.policy == "shadow" or any(map(_lacks, result.outcomes.tolist()))):
                right = self.local_block(entry)
            else:
                right = (0,) * self.model.block_length
            assert got == right, f"{entry.request.name}: {got} will be verified where {right} is right"
        if self.policy == "resilience":
            # After a round that could not be begun nobody knows who wished for drafts, so all count.
            self.fallbacks += sum(map(_lacks, result.outcomes.tolist()))
        self._expected_local.clear()

    def counted(self, counters: Counters) -> None:
        """Every round is in one class, every failed one has one reason."""
        classes = (
            counters.rounds_ok,
            counters.rounds_failed,
            counters.rounds_some_failed,
            counters.rounds_paused,
            counters.rounds_append_only,
        )
        assert counters.rounds == sum(classes), f"{counters.rounds} rounds, {classes} by class"
        values = counters.as_dict()
        reasons = sum(count for name, count in values.items() if name.startswith("fallback_"))
        assert reasons == counters.rounds_failed, (
            f"{counters.rounds_failed} failed rounds, {reasons} with a reason"
        )


def _lacks(outcome: int) -> bool:
    """Whether a request got no drafts that it may have wished for."""
    return outcome not in (Outcome.OK, Outcome.NO_DRAFT)
