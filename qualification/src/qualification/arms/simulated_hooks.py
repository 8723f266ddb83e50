"""The overlay's hooks on a simulated engine, as its seam puts them on a real one: an observer a rank, on the objects.

Owns the facts of a simulated engine.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import spark_overlay
from ofl.contract import observation_v1 as seen
from ofl.observation_file import Writer
from spark_overlay.decision import Decision
from spark_overlay.observe.observer import Observer, draw_start_id
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.simulated import step_request
from spark_overlay.observe.watch import Use
from spark_overlay.simulation.ranks import Drafts, Step

from qualification.arms.config import ArmConfig
from qualification.arms.fault_plan import write_plan
from qualification.arms.protocol import FaultOrder
from qualification.arms.simulated import LOAD, MODEL, SimulatedEngine

LOCAL_PARAMETERS, LOCAL_LAYERS = 1, 1
"""Of a simulated local drafter, so that one which is there shows."""


class Hooks:
    """Those of one engine.  facts: of rank 0."""

    def __init__(self, engine: SimulatedEngine, settings: ObserveSettings, config: ArmConfig) -> None:
        self._plan = settings.fault_plan
        start_id = draw_start_id()
        self.facts = facts_of(engine, config, start_id, 0)
        use = Use() if engine.settings is None else Use(engine.settings.policy, engine.settings.shadow_use)
        self._observers = [
            Observer(settings, facts_of(engine, config, start_id, rank), use, engine.states)
            for rank in range(engine.n_ranks)
        ]
        for observer, rank in zip(self._observers, engine.ranks, strict=False):
            _watch(observer, rank)
        if engine.drafter is not None:
            self._observers[0].attach(engine.drafter, MODEL.max_positions)

    @property
    def writers(self) -> list[Writer]:
        """The file of each rank."""
        return [observer.writer for observer in self._observers]

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """Put the case's faults where the seam reads them."""
        if self._plan is not None:
            write_plan(self._plan, case, faults)

    def close(self) -> None:
        """The engine is closed."""
        for observer in self._observers:
            observer.close()


def hook(engine: SimulatedEngine, config: ArmConfig, environ: Mapping[str, str]) -> Hooks:
    """Put the hooks on an engine that has not connected yet.  Raises SettingsError."""
    settings = ObserveSettings.from_environ(environ)
    assert settings is not None, "an arm is observed"
    return Hooks(engine, settings, config)


def facts_of(engine: SimulatedEngine, config: ArmConfig, start_id: str, rank: int) -> seen.Facts:
    """What a simulated engine says of itself."""
    local = engine.locals[rank] is not None
    rank_object: Any = engine.ranks[rank] if engine.ranks else None
    shown = {
        "row_reduction": True,
        "two_ranks": engine.n_ranks > 1,
        "engram_tables": engine.tables is not None,
    }
    return seen.Facts(
        schema=seen.SCHEMA,
        start_id=start_id,
        arm=config.arm,
        rank=rank,
        ranks=engine.n_ranks,
        engine="simulator",
        engine_version=spark_overlay.__version__,
        overlay_version=spark_overlay.__version__,
        device="simulated",
        device_capability="",
        driver="",
        speculator="" if rank_object is None else type(rank_object).__name__,
        speculator_module="" if rank_object is None else type(rank_object).__module__,
        policy="" if engine.settings is None else engine.settings.policy,
        transport="" if engine.drafter is None else "simulated",
        draft_parameters=LOCAL_PARAMETERS if local else 0,
        draft_layers=LOCAL_LAYERS if local else 0,
        budget_tokens=LOAD.batched_tokens,
        block_length=MODEL.block_length if engine.ranks else 0,
        window=MODEL.window if engine.ranks else 0,
        capabilities=tuple(sorted(name for name, there in shown.items() if there)),
    )


def _watch(observer: Observer, rank: Any) -> None:
    """Put an observer around one rank's step, on the object."""
    propose = rank.propose
    run_round = getattr(rank, "run_round", None)

    def observed_propose(step: Step) -> Drafts:
        observer.begin(lambda: [step_request(entry, trims=True) for entry in step.entries])
        drafts: Drafts = propose(step)
        observer.end(drafts.tolist)
        return drafts

    def observed_round(step: Step) -> Decision:
        assert run_round is not None, "only ranks that have rounds"
        decision: Decision = run_round(step)
        observer.decided(partial(_itself, decision))
        return decision

    rank.propose = observed_propose
    if run_round is not None:
        rank.run_round = observed_round


def _itself(decision: Decision) -> Decision:
    return decision
