"""A simulated engine that is driven request by request: the overlay's own drafter between a target and a worker in
miniature, in simulated time.

Owns what a step does.  Product code here: the remote drafter with all that is behind it, the words, the worker's
session core.  Unlike `spark_overlay.simulation.world` nothing is drawn, nothing goes wrong by itself and nothing is
checked: who observes it decides.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ofl.contract.dspark_v1 import RowDtype
from spark_overlay.decision import DecisionLayout
from spark_overlay.interface import EngineFacts
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.simulation.clock import MS, SimulatedClock
from spark_overlay.simulation.local import LocalDrafter
from spark_overlay.simulation.network import Network
from spark_overlay.simulation.ranks import Drafts, Group, Leader, PolicyTwin, Rank, Step
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.simulation.scheduler import Load, PrefixCache, RequestStates, Scheduled, Scheduler
from spark_overlay.simulation.target import SimulatedTarget
from spark_overlay.vllm_seam.additions import Additions
from x86_worker.simulation import ChainModel, SimulatedWorker

from qualification.arms.serve import ArmFailedError, Progress
from qualification.arms.table_ids import StepTokens

MODEL = ChainModel(max_positions=1024)
LOAD = Load(max_requests=4, batched_tokens=256, block_tokens=16, kv_blocks=256, cached_blocks=64)
FRAME_BYTES = 16 << 20
STEP_NS = 8 * MS
ENDPOINT = "tcp://worker:18620"
CONNECT_TURNS = 50
POLICIES = {"remote": "capacity", "shadow": "shadow"}
"""Policy by kind of speculation."""


def engine_facts() -> EngineFacts:
    """What the engine states about itself."""
    return EngineFacts(
        vocabulary=MODEL.vocabulary,
        row_elements=MODEL.row_bytes // RowDtype.BFLOAT16.itemsize,
        row_dtype=RowDtype.BFLOAT16,
        tap_count=2,
        window=MODEL.window,
        max_positions=MODEL.max_positions,
        block_length=MODEL.block_length,
        max_slots=LOAD.max_requests,
    )


def remote_settings(speculation: str, environment: Mapping[str, str]) -> Settings:
    """The overlay's settings of an arm: the operator's, with what a simulation must say itself."""
    facts = MODEL.facts()
    own = {
        PREFIX: ENDPOINT,
        f"{PREFIX}_POLICY": POLICIES[speculation],
        f"{PREFIX}_IDENTITY": facts.identity.hex(),
        f"{PREFIX}_MARKOV_IDENTITY": facts.markov_identity.hex(),
        f"{PREFIX}_LOG_EVERY": "0",
    }
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    made = Settings.from_environ(given | own)
    assert made is not None, "the endpoint is set"
    return made


class TableRows(Protocol):
    """Whoever reads the rows of a step's tokens: `tables.Tables`."""

    def read(self, step: Sequence[StepTokens]) -> None:
        """Those of a step, before it runs."""


class SimulatedEngine:
    """One engine.  speculation: of the arm.  environment: where the overlay's settings are.

    drafter: rank 0's remote drafter, None without.  ranks: by number; empty without speculation.  tables: None without.
    """

    tables: TableRows | None = None

    def __init__(self, speculation: str, ranks: int, environment: Mapping[str, str]) -> None:
        self.speculation, self.n_ranks = speculation, ranks
        self.clock = SimulatedClock()
        self.worker = SimulatedWorker(MODEL, max_slots=LOAD.max_requests, max_frame_bytes=FRAME_BYTES)
        self.network = Network(self.clock, self.worker, max_frame_bytes=FRAME_BYTES)
        self.target = SimulatedTarget(MODEL, trims=True)
        self.states = RequestStates(LOAD.max_requests)
        self.additions = Additions(self.states)
        cache = PrefixCache(LOAD, MODEL.window)
        self.scheduler = Scheduler(LOAD, self.states, cache, MODEL.max_positions)
        self.drafter: RemoteDrafter | None = None
        self.group = Group()
        self.settings: Settings | None = None
        if speculation in POLICIES:
            self.settings = remote_settings(speculation, environment)
            self.drafter = RemoteDrafter(
                self.settings,
                engine_facts(),
                connect=self.network.connect,
                clock_ns=self.clock,
                draw=random.Random("jitter").random,
            )
        self.locals = [
            LocalDrafter(MODEL) if speculation in ("local", "shadow") else None for _ in range(ranks)
        ]
        self.layout = DecisionLayout(LOAD.max_requests, MODEL.block_length)
        self.ranks = self._ranks()
        self._link_due_ns = 0
        self._requests: dict[str, SimulatedRequest] = {}

    def connect(self) -> None:
        """Have a session, where this engine drafts remotely.  Raises ArmFailedError."""
        if self.drafter is None:
            return
        for _ in range(CONNECT_TURNS):
            self._turn()
            if self.drafter.link.session is not None:
                return
            self.clock.run_until(self._link_due_ns)
        reason = self.drafter.link.disabled or self.drafter.link.last_failure
        raise ArmFailedError(f"the simulated engine has no session with its worker: {reason}")

    @property
    def busy(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._requests)

    def add(self, name: str, prompt: list[int], max_tokens: int) -> None:
        """Begin a request."""
        if len(prompt) + max_tokens > MODEL.max_positions:
            raise ArmFailedError(
                f"{name}: {len(prompt)} + {max_tokens} tokens, {MODEL.max_positions} is the limit"
            )
        request = SimulatedRequest(name, list(prompt), len(prompt) + max_tokens)
        request.begin(MODEL)
        self._requests[name] = request
        self.scheduler.waiting.append(request)

    def abort(self, name: str) -> None:
        """End a request early."""
        self.scheduler.remove(self._requests.pop(name))

    def step(self) -> list[Progress]:
        """One engine step with its round."""
        self._turn()
        scheduled = self.scheduler.schedule()
        for entry in scheduled:
            if entry.request.computed == entry.request.hit and entry.request.rounds == 0:
                for local in self.locals:
                    if local is not None:
                        local.adopt(entry.request)
        if self.tables is not None and scheduled:
            self.tables.read([_tokens(entry) for entry in scheduled])
        before = {entry.request.name: len(entry.request.tokens) for entry in scheduled}
        wanted = MODEL.block_length if self.speculation != "none" else 0
        step = self.target.run(scheduled, wanted)
        if step.entries and self.ranks:
            self._propose(step)
        progress = [self._progress(entry.request, before[entry.request.name]) for entry in scheduled]
        self.clock.run_until(self.clock() + STEP_NS)
        return [each for each in progress if each.tokens]

    def close(self) -> None:
        """End it."""
        if self.drafter is not None:
            self.drafter.close()

    # --- inside ---

    def _propose(self, step: Step) -> None:
        self.group.begin()
        drafts, *_ = [rank.propose(step) for rank in self.ranks]
        for entry, row in zip(step.entries, drafts, strict=True):
            entry.request.drafts = row[: entry.wanted].tolist() if entry.n_sampled else []

    def _progress(self, request: SimulatedRequest, before: int) -> Progress:
        """New tokens, cut at the length that was asked for; an ended request leaves the engine."""
        tokens = request.tokens[before : request.length_max]
        if not request.finished:
            return Progress(request.name, tokens)
        self.scheduler.remove(self._requests.pop(request.name))
        return Progress(request.name, tokens, "length")

    def _ranks(self) -> list[Any]:
        if self.speculation == "none":
            return []
        if self.drafter is None:
            return [LocalRank(number, local) for number, local in enumerate(self.locals)]
        shadow = self.speculation == "shadow"
        assert self.settings is not None, "as the drafter is there"
        uses_remote = not shadow or self.settings.shadow_use == "remote"
        policy = PolicyTwin("shadow" if shadow else "capacity", uses_remote, raises=False)
        leader = Leader(
            self.group,
            self.layout,
            self.locals[0],
            policy,
            self.drafter,
            self.additions,
            MODEL.max_positions,
        )
        others = [
            Rank(number, self.group, self.layout, self.locals[number], policy)
            for number in range(1, self.n_ranks)
        ]
        return [leader, *others]

    def _turn(self) -> None:
        """The connecting thread's turn, where it is due."""
        if self.drafter is None or self.drafter.link.disabled:
            return
        link = self.drafter.link
        if link.session is None and self.clock() < self._link_due_ns:
            return
        self._link_due_ns = self.clock() + link.turn()


def _tokens(entry: Scheduled) -> StepTokens:
    request = entry.request
    decoding = request.computed >= request.prompt_length
    return StepTokens(request.name, request.tokens, request.computed, entry.n_tokens, decoding)


class LocalRank:
    """One rank whose engine drafts by itself: no round, no words."""

    def __init__(self, number: int, local: LocalDrafter | None) -> None:
        assert local is not None, "a local arm has local drafters"
        self.number, self.local = number, local

    def propose(self, step: Step) -> Drafts:
        """The step's drafts."""
        self.local.keep(step.entries)
        return self.local.draft(step.entries)
