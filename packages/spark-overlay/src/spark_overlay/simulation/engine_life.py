"""One engine from its start to its end: scheduler, two ranks, and the real remote drafter behind rank 0.

Owns what an engine loses when it ends.  The world around it (`world`) outlives it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ofl.contract.dspark_v1 import RowDtype
from ofl.interface import Connect

from spark_overlay.control.reader import Source
from spark_overlay.decision import DecisionLayout
from spark_overlay.interface import EngineFacts
from spark_overlay.link import Link
from spark_overlay.round.messages import Outcome
from spark_overlay.round.session import PENDING_MAX
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.simulation.checker import Checker, Circumstances
from spark_overlay.simulation.clock import MS, SimulatedClock
from spark_overlay.simulation.figures import FiguresCheck
from spark_overlay.simulation.local import LocalDrafter
from spark_overlay.simulation.model import Model
from spark_overlay.simulation.ranks import Group, Leader, PolicyTwin, Rank, RoundRaisedError, Step
from spark_overlay.simulation.scheduler import Load, PrefixCache, RequestStates, Scheduler
from spark_overlay.simulation.target import SimulatedTarget
from spark_overlay.vllm_seam.additions import Additions

Policy = Literal["capacity", "shadow_local", "shadow_remote", "resilience", "raise"]
POLICIES: tuple[Policy, ...] = ("capacity", "shadow_local", "shadow_remote", "resilience", "raise")
"""raise: capacity with ON_FAIL=raise; a failed round ends the engine, and another one starts."""


@dataclass(frozen=True)
class EngineOptions:
    """policy: see POLICIES.  schedule: drafts to verify, at most, by number of running requests; empty: always all.

    tells_additions: the engine can tell a request that was added again.  trims: rows of a long prefill are zeros but
    for the last ones, which a windowed drafter needs.
    """

    policy: Policy = "capacity"
    load: Load = field(default_factory=Load)
    schedule: tuple[int, ...] = ()
    tells_additions: bool = True
    trims: bool = False
    ring_rows: int = 64
    frame_bytes: int = 4096
    round_bytes: int = 1 << 20
    timeout_ms: int = 5
    identity: bytes = bytes(32)
    markov_identity: bytes = bytes(32)

    @property
    def raises(self) -> bool:
        """ON_FAIL=raise."""
        return self.policy == "raise"

    @property
    def setting(self) -> str:
        """The setting POLICY."""
        return {"raise": "capacity"}.get(self.policy, self.policy.partition("_")[0])

    @property
    def uses_remote(self) -> bool:
        """Whether remote drafts are verified where there are any."""
        return self.policy != "shadow_local"

    def settings(self) -> Settings:
        """As the operator would say it; times are short, since simulated rounds are."""
        values = {
            "": "tcp://worker:18620",
            "_POLICY": self.setting,
            "_SHADOW_USE": "remote" if self.uses_remote else "local",
            "_ON_FAIL": "raise" if self.raises else "draft-nothing",
            "_IDENTITY": self.identity.hex(),
            "_MARKOV_IDENTITY": self.markov_identity.hex(),
            "_TIMEOUT_MS": str(self.timeout_ms),
            "_CONNECT_TIMEOUT_MS": "20",
            "_RETRY_MS": "10",
            "_RETRY_MAX_MS": "80",
            "_TRIP": "3",
            "_COOLDOWN": "6",
            "_RING_ROWS": str(self.ring_rows),
            "_FRAME_BYTES": str(self.frame_bytes),
            "_ROUND_BYTES": str(self.round_bytes),
            "_LOG_EVERY": "0",
        }
        made = Settings.from_environ({PREFIX + name: value for name, value in values.items()})
        assert made is not None, "the endpoint is set"
        return made

    def facts(self, model: Model) -> EngineFacts:
        """What the engine states about itself."""
        return EngineFacts(
            vocabulary=model.vocabulary,
            row_elements=model.row_bytes // RowDtype.BFLOAT16.itemsize,
            row_dtype=RowDtype.BFLOAT16,
            tap_count=2,
            window=model.window,
            max_positions=model.max_positions,
            block_length=model.block_length,
            max_slots=self.load.max_requests,
            draft_schedule=self.schedule,
        )


class EngineLife:
    """One engine.  orders: of operators.  Raises AssertionError where something does not hold."""

    def __init__(
        self,
        options: EngineOptions,
        model: Model,
        connect: Connect,
        clock: SimulatedClock,
        seed: int,
        orders: Source,
    ) -> None:
        self.options, self.model, self._clock = options, model, clock
        settings, facts = options.settings(), options.facts(model)
        draw = random.Random(f"jitter {seed}").random
        self.drafter = RemoteDrafter(
            settings, facts, connect=connect, clock_ns=clock, draw=draw, orders=orders
        )
        self.states = RequestStates(options.load.max_requests)
        self._additions = Additions(self.states)
        self.scheduler = Scheduler(
            options.load, self.states, PrefixCache(options.load, model.window), model.max_positions
        )
        self.group = Group()
        self.ranks = self._ranks()
        self.checker = Checker(
            model,
            session_shape(settings, facts),
            policy=options.setting,
            uses_remote=options.uses_remote,
            whole_wishes=options.setting == "shadow",
            ring_rows=self.drafter.core.ring.ring_rows,
        )
        self._figures = FiguresCheck(self.checker, uses_remote=options.uses_remote)
        self._used_by: dict[int, str] = {}
        self._ends: dict[int, int] = {}
        self._lacking: set[int] = set()
        self._epoch = 0

    @property
    def link(self) -> Link:
        """The drafter's connection."""
        return self.drafter.link

    def look_at_orders(self) -> None:
        """What the control thread does many times a second."""
        assert self.drafter.control is not None, "a simulated engine always has a control file"
        self.drafter.control.turn()

    def next_step(self, target: SimulatedTarget) -> Step:
        """Schedule, and let the target run."""
        scheduled = self.scheduler.schedule()
        for entry in scheduled:
            request = entry.request
            if request.computed == request.hit and request.rounds == 0:
                for rank in self.ranks:
                    if rank.local is not None:
                        rank.local.adopt(request)
        wanted = self.model.block_length
        if self.options.schedule:
            wanted = self.options.schedule[len(self.scheduler.running)]
        return target.run(scheduled, wanted)

    def phases(self, step: Step) -> frozenset[str]:
        """What this step is about; see `hazards.PHASES`."""
        session, found = self.link.session, set()
        new_session = session is not None and session.epoch != self._epoch
        for entry in step.entries:
            request = entry.request
            before, self._used_by[entry.slot] = self._used_by.get(entry.slot), request.name
            found.add("decode" if entry.n_sampled else "prefill")
            if request.rounds > 1:
                found |= {"rollback"} if entry.start < self._ends.get(entry.slot, 0) else set()
                found |= {"resync"} if new_session or entry.slot in self._lacking else set()
                continue
            found |= {"replay"} if request.resumed else set()
            found |= {"prefix_hit"} if request.hit else set()
            found |= {"slot_reuse"} if before not in (None, request.name) else set()
        self._ends.update((entry.slot, entry.anchor_position) for entry in step.entries)
        if new_session:
            found.add("first_round")
        self._epoch = session.epoch if session is not None else self._epoch
        return frozenset(found)

    def round(self, step: Step, circumstances: Callable[[], Circumstances]) -> None:
        """The drafting half of a step on both ranks, checked.  Raises RoundRaisedError.

        circumstances: asked once the round is over.
        """
        started_ns = self._clock()
        lives = [
            (entry.request.name, self._additions[entry.slot] if self.options.tells_additions else 0)
            for entry in step.entries
        ]
        self.checker.given(step, lives)
        self.group.begin()
        raised: list[Exception] = []
        by_rank = []
        for rank in self.ranks:
            try:
                by_rank.append(rank.propose(step))
            except RoundRaisedError as error:
                raised.append(error)
        took_ns = self._clock() - started_ns
        assert took_ns <= self.options.timeout_ms * MS, f"the round took {took_ns / MS} ms"
        self.group.check()
        assert len(raised) in (0, len(self.ranks)), "one rank ends and another goes on"
        requests, result = self.ranks[0].led
        self.checker.finished(requests, result, circumstances())
        self.checker.counted(self.drafter.core.counters)
        self._figures.round(step, lives, requests, result)
        self._lacking = {
            asked.slot
            for asked, outcome in zip(requests, result.outcomes.tolist(), strict=False)
            if outcome not in (Outcome.OK, Outcome.NO_DRAFT)
        }
        if raised:
            raise raised[0]
        self.checker.proposed(step, result, by_rank)
        for entry, drafts in zip(step.entries, by_rank[0], strict=True):
            entry.request.drafts = drafts[: entry.wanted].tolist() if entry.n_sampled else []

    def check_figures(self) -> None:
        """Compare what the drafter counted with what was seen; between rounds."""
        self._figures.check(self.drafter.stats())
        assert len(self.drafter.core.session.outstanding) <= PENDING_MAX + 1, (
            "unacknowledged messages pile up"
        )

    def close(self) -> None:
        """End it."""
        self.drafter.close()

    def _ranks(self) -> tuple[Leader, Rank]:
        options, model = self.options, self.model
        layout = DecisionLayout(options.load.max_requests, model.block_length)
        keeps_local = options.setting != "capacity"
        local = [LocalDrafter(model) if keeps_local else None for _ in range(2)]
        policy = PolicyTwin(options.setting, options.uses_remote, options.raises, options.tells_additions)
        leader = Leader(
            self.group, layout, local[0], policy, self.drafter, self._additions, model.max_positions
        )
        return leader, Rank(1, self.group, layout, local[1], policy)
