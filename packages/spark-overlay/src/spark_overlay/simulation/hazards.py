"""What goes wrong in a run, when, and what was happening then: drawn from one seed, counted for coverage.

Owns the faults and the phases in which they are to be met.  Must never look at what the overlay makes of them.
"""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ofl.contract.dspark_v1 import Status
from ofl.faults import CONNECT_FAULTS, Fault, Planned

from spark_overlay.simulation.clock import MS, SimulatedClock
from spark_overlay.simulation.network import Network

TRANSPORT_FAULTS = tuple(fault.value for fault in Fault)
SLOT_FAULTS = ("forgets_slot", "newer_generation")
WORKER_FAULTS = (
    "worker_restart",
    "worker_freeze",
    "worker_refuses",
    "drafter_fails",
    "forgets_session",
    *SLOT_FAULTS,
)
FAULTS = (*TRANSPORT_FAULTS, *WORKER_FAULTS, "seam_error")
PHASES = (
    "first_round",
    "prefill",
    "decode",
    "resync",
    "slot_reuse",
    "replay",
    "prefix_hit",
    "rollback",
    "reconnect",
)
"""first_round: of a session.  resync: a request's rows of before may be missing at the worker.  slot_reuse: a slot has
another request than before.  replay: a preempted request is back.  prefix_hit: a request's first rows never come.
rollback: rows are computed again.  reconnect: no round, but an attempt to connect."""

IMPOSSIBLE = {
    **{(fault, "first_round"): "the worker holds no slot yet" for fault in SLOT_FAULTS},
    **{
        (fault, "reconnect"): "there is no session and no round yet"
        for fault in (*SLOT_FAULTS, "drafter_fails", "forgets_session", "seam_error")
    },
}
"""Pairs that cannot be met, and why."""
IMPOSSIBLE_POLICIES = {("raise", "resync"): "a round that leaves rows missing ends the engine"}
"""Policies and phases that cannot be met, and why."""

REFUSALS = (Status.BUSY, Status.DRAINING, Status.DRAFTER)
RARE_PHASES = frozenset(("first_round", "resync", "replay", "prefix_hit", "rollback"))


class Disturbed(Protocol):
    """A worker that can be disturbed.  refuse_with: status for every STEP and HELLO while it is set."""

    refuse_with: Status | None

    def holds(self, slot: int) -> bool:
        """Whether it holds rows of the slot."""

    def fail_drafts(self, wishes: int) -> None:
        """The drafter fails for so many of the next wishes."""

    def forget_slot(self, slot: int) -> None:
        """Answer NEEDS_RESET for it."""

    def newer_generation(self, slot: int) -> None:
        """Answer STALE_GENERATION for it."""

    def forget_session(self, connection: int) -> None:
        """Answer NO_SESSION on this connection."""

    def recover(self) -> None:
        """Undo what lasts: refusals, a failing drafter."""


@dataclass(frozen=True)
class Rates:
    """Shares of rounds, and of attempts to connect, with a fault; rare: of rounds in which something rare happens.

    awaited: share of transport faults that meet the message that is waited for; the others meet a round's first one.
    faults: which there are.
    """

    common: float = 0.1
    rare: float = 0.6
    connect: float = 0.5
    awaited: float = 0.7
    faults: Sequence[str] = FAULTS


class Hazards:
    """One run's.  Transport faults are armed for a round and taken by `for_message`; the others happen at once.

    coverage: how often each fault was met, by phase.  disturbances: faults so far, and those that showed later, as that
    of a slot does which is not used at once.  noisy_until_ns: when the effects of the last fault are over.
    corrupted: a reply of this round was changed, perhaps where no rule can notice it.
    seam_error: rank 0's seam is to fail in this round.
    """

    def __init__(
        self,
        seed: int,
        clock: SimulatedClock,
        network: Network,
        worker: Disturbed,
        rates: Rates,
        timeout_ns: int,
    ) -> None:
        self._random = random.Random(f"hazards {seed}")
        self._clock, self._network, self._worker = clock, network, worker
        self._rates, self._timeout_ns = rates, timeout_ns
        self._armed: Planned | None = None
        self._armed_for_drafts = False
        self._phases: frozenset[str] = frozenset()
        self.coverage: Counter[tuple[str, str]] = Counter()
        self._latent: set[int] = set()
        self.disturbances = 0
        self.noisy_until_ns = 0
        self.corrupted = self.seam_error = False

    @property
    def noisy(self) -> bool:
        """Whether some fault still has effects of its own."""
        return self._clock() < self.noisy_until_ns

    # --- rounds ---

    def before_round(self, phases: frozenset[str], slots: Sequence[int]) -> None:
        """Maybe a fault for this round, in which there is a session."""
        self._phases = phases
        rate = self._rates.rare if phases & RARE_PHASES else self._rates.common
        if self._random.random() >= rate:
            return
        fault = self._choose(self._rates.faults)
        if fault in TRANSPORT_FAULTS:
            self._armed = self._planned(Fault(fault))
            self._armed_for_drafts = self._random.random() < self._rates.awaited
        elif self._disturb(fault, slots):
            self._met(fault)

    def after_round(self) -> None:
        """The round is over, and so is what was only for it."""
        self._armed = None
        self.corrupted = self.seam_error = False
        self._worker.recover()

    def for_message(self, slots: frozenset[int], *, wants_drafts: bool) -> Planned | None:
        """What a STEP about these slots meets."""
        self.disturbances += len(self._latent & slots)
        self._latent -= slots
        if self._armed is None or (self._armed_for_drafts and not wants_drafts):
            return None
        return self._take()

    # --- attempts to connect ---

    def before_attempt(self, *, quiet: bool) -> None:
        """Maybe a fault for the next attempt to connect."""
        self._phases = frozenset({"reconnect"})
        possible = [fault for fault in self._rates.faults if (fault, "reconnect") not in IMPOSSIBLE]
        if quiet or not possible or self._random.random() >= self._rates.connect:
            return
        fault = self._choose(possible)
        if fault in TRANSPORT_FAULTS:
            self._armed = self._planned(Fault(fault))
        elif self._disturb(fault, ()):
            self._met(fault)

    def after_attempt(self) -> None:
        """The attempt is over."""
        self.after_round()

    def for_connect(self) -> Planned | None:
        """What opening the connection meets; the rest waits for the HELLO."""
        if self._armed is None or self._armed.fault not in CONNECT_FAULTS or self._random.random() < 0.5:
            return None
        return self._take()

    def for_hello(self) -> Planned | None:
        """What the HELLO meets."""
        return self._take() if self._armed is not None else None

    # --- inside ---

    def _take(self) -> Planned:
        assert self._armed is not None, "it was armed"
        planned, self._armed = self._armed, None
        self._met(planned.fault.value)
        if planned.fault in (Fault.FREEZE, Fault.SLOW, Fault.DELAY):
            # What is asked for at the end of a slow while is late by that much after it.
            lasts_ns = planned.duration_ns + (planned.delay_ns if planned.fault is Fault.SLOW else 0)
            self.noisy_until_ns = max(self.noisy_until_ns, self._clock() + lasts_ns)
        self.corrupted |= planned.fault is Fault.CORRUPT
        return planned

    def _choose(self, faults: Sequence[str]) -> str:
        """The fault that was met least in one of the phases at hand, so that rare pairs come about too."""
        pairs = itertools.product(faults, sorted(self._phases))
        possible = [pair for pair in pairs if pair not in IMPOSSIBLE]
        return min(possible, key=lambda pair: (self.coverage[pair], self._random.random()))[0]

    def _met(self, fault: str) -> None:
        self.disturbances += 1
        for phase in self._phases:
            if (fault, phase) not in IMPOSSIBLE:
                self.coverage[fault, phase] += 1

    def _planned(self, fault: Fault) -> Planned:
        draw, timeout_ns = self._random, self._timeout_ns
        duration_ns = {
            Fault.DELAY: draw.choice((timeout_ns // 2, draw.randint(timeout_ns, 5 * timeout_ns))),
            Fault.FREEZE: draw.randint(timeout_ns // 2, 16 * timeout_ns),
            Fault.SLOW: draw.randint(2 * timeout_ns, 10 * timeout_ns),
        }.get(fault, 0)
        return Planned(
            fault, duration_ns, draw.randint(timeout_ns // 4, 2 * timeout_ns), draw.getrandbits(32)
        )

    def _disturb(self, fault: str, slots: Sequence[int]) -> bool:
        """Let it happen; False where it cannot now."""
        worker, draw = self._worker, self._random
        held = [slot for slot in slots if worker.holds(slot)]
        if fault in SLOT_FAULTS:
            if held:
                slot = draw.choice(held)
                worker.forget_slot(slot) if fault == "forgets_slot" else worker.newer_generation(slot)
                self._latent.add(slot)
            return bool(held)
        if fault == "worker_restart":
            self._lasts(draw.randint(0, 40) * MS, self._network.kill_worker)
        elif fault == "worker_freeze":
            self._lasts(draw.randint(1, 90) * MS, self._network.freeze_worker)
        elif fault == "worker_refuses":
            worker.refuse_with = draw.choice(REFUSALS)
        elif fault == "drafter_fails":
            worker.fail_drafts(draw.randint(1, 3))
        elif fault == "forgets_session":
            for connection in self._network.connections:
                worker.forget_session(connection)
        else:
            self.seam_error = True
        return True

    def _lasts(self, for_ns: int, happen: "Happen") -> None:
        happen(for_ns)
        self.noisy_until_ns = max(self.noisy_until_ns, self._clock() + for_ns)


class Happen(Protocol):
    """Something at the worker's host that lasts."""

    def __call__(self, for_ns: int, /) -> None: ...
