"""An engine that is right by construction, and the observations that hooks would have made of it.

It follows a check's `drive` and schedules like an engine in miniature; how many drafts are accepted is a fixed cycle.
Nothing of it is shared with what it tests: what a message must hold is written here a second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ofl.contract import observation_v1 as seen
from qualification.checks.model import Arm, ArmObservations, FaultOrder, Prompt
from synthetic_parts import (
    RECONNECT_STEPS,
    SLOTS,
    TRIMMED_TO,
    Platform,
    Request,
    lines_of,
    replaced,
    tag,
)
from synthetic_tables import SyntheticTables


@dataclass
class SyntheticEngine:
    """One arm.  Implements `checks.model.Engine`."""

    arm: Arm
    check: str
    platform: Platform = field(default_factory=Platform)

    def __post_init__(self) -> None:
        self.per_rank: list[list[tuple[int, seen.Record]]] = [[] for _ in range(self.arm.ranks)]
        self.harness: list[tuple[int, seen.Record]] = []
        self.step = self.round = self.turn = 0
        self.epoch, self.down_until, self.stale_rows = 7, 0, ""
        self.lives, self.generations = [0] * SLOTS, [0] * SLOTS
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.releases: dict[int, FaultOrder] = {}
        self.drafts_remotely = self.arm.speculation in ("remote", "shadow")
        self.tables: SyntheticTables | None = None
        source = self.arm.settings.get("QUALIFY_TABLES", "")
        if source and self.platform.tables:
            self.tables = SyntheticTables(source, self.arm.ranks, self._record)
        for rank in range(self.arm.ranks):
            self._record(self.facts_of(rank), rank)
        if self.tables is not None:
            self.tables.begin()

    @property
    def facts(self) -> seen.Facts:
        """Rank 0's."""
        return self.facts_of(0)

    def facts_of(self, rank: int) -> seen.Facts:
        """What a rank says of itself."""
        local = self.arm.speculation in ("local", "shadow")
        module = {"none": "", "local": "vllm.v1.spec_decode"}.get(
            self.arm.speculation, "spark_overlay.vllm_seam"
        )
        return seen.Facts(
            schema=seen.SCHEMA,
            start_id=f"start-{self.arm.name}",
            arm=self.arm.name,
            rank=rank,
            ranks=self.arm.ranks,
            engine="vllm",
            engine_version="0.32.0",
            overlay_version="0.1.0",
            device="cpu",
            device_capability="",
            driver="",
            speculator="Speculator" if module else "",
            speculator_module=module,
            policy="capacity" if self.arm.speculation == "remote" else "",
            transport="tcp" if self.drafts_remotely else "",
            draft_parameters=1000 if local else 0,
            draft_layers=2 if local else 0,
            budget_tokens=self.platform.budget,
            block_length=self.platform.block if module else 0,
            window=self.platform.window,
            capabilities=self.platform.capabilities + (("engram_tables",) if self.tables else ()),
        )

    # --- as a check drives it ---

    def submit(self, request: str, prompt: Prompt, max_tokens: int, *, at_step: int = 0) -> None:
        """See `Engine`."""
        self.waiting.append(
            Request(request, prompt.tokens, max_tokens, at_step, fault=self._plan.pop(request, None))
        )

    def cancel(self, request: str, *, after_tokens: int) -> None:
        """See `Engine`."""
        next(each for each in self.waiting if each.name == request).cancel_after = after_tokens

    def fault(self, order: FaultOrder) -> None:
        """See `Engine`."""
        if self.tables is not None:
            self.tables.arm(self.check, order)
        if self.drafts_remotely:
            self._plan[order.request] = order
            self._record(seen.Fault(0, self.check, order.request, order.action, "armed"))

    def run(self) -> Sequence[seen.Completed]:
        """See `Engine`."""
        self.harness.append((self.step, seen.Case(self.check, "", True)))
        before, first = len(self.harness), self.step
        while self.waiting or self.running:
            self._step(self.step - first)
        done = [record for _, record in self.harness[before:] if isinstance(record, seen.Completed)]
        self.harness.append((self.step, seen.Case(self.check, "", False)))
        return done

    _plan: dict[str, FaultOrder] = field(default_factory=dict)

    def observations(self) -> ArmObservations:
        """All of it, files closed."""
        ranks = [[*records, (self.step, seen.Closed(len(records), 0))] for records in self.per_rank]
        return ArmObservations(self.arm, [lines_of(records) for records in ranks], lines_of(self.harness))

    # --- a step ---

    def _step(self, of_case: int) -> None:
        self.step += 1
        self._admit(of_case)
        room, entries = self.platform.budget, []
        for request in self.running:
            if room:
                entries.append((request, self._schedule(request, room)))
                room -= entries[-1][1].q
        if self.tables is not None and entries:
            self.tables.step(self.check, self.step, entries)
        if self.arm.speculation != "none":
            self._draft(entries)
        for request, _ in entries:
            cancelled = 0 <= request.cancel_after <= request.said
            if request.said >= request.max_tokens or cancelled:
                self._end(request, cancelled)

    def _admit(self, of_case: int) -> None:
        used = {request.slot for request in self.running}
        for request in list(self.waiting):
            if (request.at_step <= of_case or not self.running) and len(self.running) < SLOTS:
                self.waiting.remove(request)
                request.slot = min(set(range(SLOTS)) - used)
                used.add(request.slot)
                self.lives[request.slot] += 1
                self.generations[request.slot] += 1
                request.life, request.generation = self.lives[request.slot], self.generations[request.slot]
                self.running.append(request)

    def _schedule(self, request: Request, room: int) -> seen.ScheduledRequest:
        """Compute one request's part of a step."""
        block = self.platform.block if self.arm.speculation != "none" else 0
        known = request.prompt + request.said
        verified = block if request.said else 0
        q = min(room, known - request.computed + verified)
        verified = max(0, request.computed + q - known)
        reads_on = request.computed + q < known
        accepted = self._accepted(request, verified) if verified else 0
        sampled = 0 if reads_on else accepted + 1
        kept = min(q, TRIMMED_TO) if self.platform.trims and not request.said else q
        first, valid = request.computed + q - kept, kept - (verified - accepted)
        request.computed = first + valid
        request.said += sampled
        if verified and request.drafts:
            source = "remote" if self.arm.speculation == "remote" else "local"
            self._record(
                seen.Verified(self.step, request.name, known, verified, accepted, source),
                after_scheduled=True,
            )
        anchor = tag("anchor", request.name, request.computed) if sampled else seen.NO_TAG
        return seen.ScheduledRequest(
            request.name, request.slot, request.life, q, kept, valid, first, sampled, verified, anchor
        )

    def _accepted(self, request: Request, verified: int) -> int:
        if not request.drafts:
            return 0
        request.rounds += 1
        return min(verified, self.platform.accepts[request.rounds % len(self.platform.accepts)])

    def _end(self, request: Request, cancelled: bool) -> None:
        self.running.remove(request)
        said = min(request.said, request.max_tokens)
        finish = "abort" if cancelled else "length"
        text = tag("text", request.name, said)
        self.harness.append((self.step, seen.Completed(request.name, request.prompt, said, finish, text)))

    # --- drafts ---

    def _draft(self, entries: Sequence[tuple[Request, seen.ScheduledRequest]]) -> None:
        scheduled = seen.Scheduled(self.step, tuple(entry for _, entry in entries))
        for rank in range(self.arm.ranks):
            # What was verified is told behind the step that it belongs to.
            self.per_rank[rank].append((self.step, scheduled))
        self.per_rank[0] += [(self.step, record) for record in self._verified]
        self._verified.clear()
        local = [tag("local", entry.anchor) if entry.sampled else seen.NO_TAG for _, entry in entries]
        published = local
        if self.drafts_remotely:
            decided = self._remote(entries)
            for rank in range(self.arm.ranks):
                self._record(decided, rank)
            if self.arm.speculation == "remote":
                published = [each.drafts for each in decided.requests]
            else:
                self._compare(decided)
        for (request, _), drafts in zip(entries, published, strict=True):
            request.drafts = self.platform.block if drafts else 0
        for rank in range(self.arm.ranks):
            self._record(seen.Published(self.step, tuple(published)), rank)

    _verified: list[seen.Record] = field(default_factory=list)

    def _compare(self, decided: seen.Decided) -> None:
        block = self.platform.block
        for each in decided.requests:
            if each.outcome == "OK":
                self._record(seen.Drafter(self.step, each.request, block, block, 0.0))

    def _remote(self, entries: Sequence[tuple[Request, seen.ScheduledRequest]]) -> seen.Decided:
        """One round: the message, what the fault seam does to it, and what every rank reads."""
        self._release()
        source = "remote" if self.arm.speculation == "remote" else "local"
        struck = next((request for request, entry in entries if self._strikes(request, entry)), None)
        action = struck.fault.action if struck is not None and struck.fault is not None else ""
        reason = "not_ready" if self.step <= self.down_until else ""
        outcomes: dict[str, tuple[str, str]] = {}
        if not reason:
            reason, outcomes = self._exchange(entries, struck, action)
        if struck is not None and reason != "not_ready":
            self._struck(struck, action)
        made = []
        for request, entry in entries:
            outcome, drafts = outcomes.get(request.name, ("NO_DRAFT", seen.NO_TAG))
            if reason:
                outcome, drafts = ("ROUND_FAILED" if entry.sampled else "NO_DRAFT"), seen.NO_TAG
            confidences = tag("confidences", drafts) if drafts else seen.NO_TAG
            made.append(seen.DecidedRequest(request.name, outcome, drafts, confidences))
        return seen.Decided(self.step, self.step, reason, source, tuple(made))

    def _strikes(self, request: Request, entry: seen.ScheduledRequest) -> bool:
        if request.fault is None or self.step <= self.down_until:
            return False
        before = request.fault.action.endswith("before_final")
        return not entry.sampled if before else entry.verified > 0

    def _struck(self, request: Request, action: str) -> None:
        order, request.fault = request.fault, None
        assert order is not None
        moment = "held" if action == "hold_reply" else "struck"
        self._record(seen.Fault(self.step, self.check, request.name, action, moment))
        if moment == "held":
            self.releases[self.step + order.hold_steps] = order
        if action.startswith("disconnect"):
            self.down_until, self.epoch = self.step + RECONNECT_STEPS, self.epoch + 1
            for each in self.running:
                each.held_end = -1

    def _release(self) -> None:
        order = self.releases.pop(self.step, None)
        if order is not None:
            self._record(seen.Fault(self.step, self.check, order.request, order.action, "released"))

    def _exchange(
        self, entries: Sequence[tuple[Request, seen.ScheduledRequest]], struck: Request | None, action: str
    ) -> tuple[str, dict[str, tuple[str, str]]]:
        self.round += 1
        lost = action.startswith(("disconnect", "drop"))
        slots, outcomes = [], {}
        for request, entry in entries:
            before = request.held_end
            slot = self._slot(request, entry)
            gap = self.stale_rows == request.name and entry.sampled > 0
            if gap:
                slot = replaced(slot, status="GAP", drafts=seen.NO_TAG, held_from=0)
                self.stale_rows, request.held_end = "", -1
            if action == "old_generation" and request is struck:
                slot = replaced(slot, generation_echoed=slot.generation - 1)
            if lost:
                slot = replaced(slot, status="", drafts=seen.NO_TAG, held_from=-1, generation_echoed=-1)
            if action == "hold_reply":
                request.held_end = before
            if entry.sampled:
                outcomes[request.name] = ("GAP", seen.NO_TAG) if gap else ("OK", slot.drafts)
            slots.append(slot)
        if action == "drop_before_final" and struck is not None:
            self.stale_rows = struck.name
        if action == "old_generation":
            for request, _ in entries:
                request.held_end = -1
        awaited = any(slot.need_draft for slot in slots)
        reply = "none" if lost else "late" if action == "hold_reply" else "in time"
        echo = (-1, -1) if lost else (self.epoch, self.round)
        self._record(seen.Exchanged(self.step, self.epoch, self.round, *echo, awaited, reply, tuple(slots)))
        reasons = {"hold_reply": "timeout", "old_generation": "bad_reply"}
        if action.startswith("disconnect"):
            return "transport_error", outcomes
        return reasons.get(action, ""), outcomes

    def _slot(self, request: Request, entry: seen.ScheduledRequest) -> seen.ExchangedSlot:
        end = entry.first_position + entry.valid
        window = self.platform.window
        needed = max(0, end - window) if window else 0
        reset = request.held_end < 0 or request.held_end < entry.first_position
        first = (
            request.held_end if not reset else max(needed, entry.first_position if self.platform.trims else 0)
        )
        first = min(first, entry.first_position) if not reset else first
        request.held_end = end
        wants = entry.sampled > 0
        return seen.ExchangedSlot(
            request=request.name,
            slot=request.slot,
            generation=request.generation,
            generation_echoed=request.generation,
            first_position=first,
            n_rows=end - first,
            rows=tag("rows", request.name, first, end),
            need_draft=wants,
            reset=reset,
            partial_window=False,
            n_out=self.platform.block if wants else 0,
            held_from=needed,
            status="OK",
            drafts=tag("remote", entry.anchor) if wants else seen.NO_TAG,
        )

    # --- records ---

    def _record(self, record: seen.Record, rank: int = 0, *, after_scheduled: bool = False) -> None:
        if after_scheduled:
            self._verified.append(record)
        else:
            self.per_rank[rank].append((self.step, record))
