"""Observation of the simulated engine: the same hooks, with the same records, on its two ranks.

A simulated engine holds no parameters; `draft_parameters` and `draft_layers` are 1 where a rank keeps a local drafter.
"""

from collections.abc import Callable
from typing import Literal

from ofl.contract.observation_v1 import SCHEMA, Facts

import spark_overlay
from spark_overlay.decision import Decision
from spark_overlay.observe.observer import Observer, draw_start_id
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.watch import StepRequest, Use
from spark_overlay.simulation.engine_life import EngineLife
from spark_overlay.simulation.hazards import Hazards
from spark_overlay.simulation.ranks import Drafts, Entry, Rank, Step

Speculation = Literal["none", "local", "remote"]
"""What an engine is observed as.  "local": as one that drafts by itself, so its policy must verify local drafts alone
("shadow_local"); "none": as one that never drafts, so none may come.  "remote": under its own policy, whatever it is.
"""


def observing(
    settings: ObserveSettings, speculation: Speculation = "remote"
) -> Callable[[EngineLife, Hazards], None]:
    """For `Simulation`'s on_engine: each engine of the run is one start."""

    def on_engine(engine: EngineLife, hazards: Hazards) -> None:
        def on_strike() -> None:
            hazards.disturbances += 1

        observe_engine(engine, settings, speculation, on_strike)

    return on_engine


def observe_engine(
    engine: EngineLife,
    settings: ObserveSettings,
    speculation: Speculation = "remote",
    on_strike: Callable[[], None] = lambda: None,
) -> tuple[Observer, ...]:
    """Hooks on an engine that has not connected yet; its `close` closes their files.  One observer a rank.

    on_strike: called when the fault seam strikes.  Raises OSError where a file cannot be made.
    """
    options = engine.options
    use = Use(options.setting, "remote" if options.uses_remote else "local")
    start_id = draw_start_id()
    observers = tuple(
        Observer(
            settings,
            _facts(engine, rank, settings.arm, start_id, speculation),
            use if speculation == "remote" else Use(),
            engine.states,
            on_strike,
        )
        for rank in engine.ranks
    )
    if speculation == "remote":
        observers[0].attach(engine.drafter, engine.model.max_positions)
    if speculation != "none":
        for rank, observer in zip(engine.ranks, observers, strict=True):
            _hook(rank, observer, trims=options.trims, remote=speculation == "remote")
    close = engine.close

    def observed_close() -> None:
        close()
        for observer in observers:
            observer.close()

    engine.close = observed_close  # type: ignore[method-assign]
    return observers


def _hook(rank: Rank, observer: Observer, *, trims: bool, remote: bool) -> None:
    propose, run_round = rank.propose, rank.run_round

    def observed_propose(step: Step) -> Drafts:
        observer.begin(lambda: [step_request(entry, trims=trims) for entry in step.entries])
        drafts = propose(step)
        observer.end(drafts.tolist)
        return drafts

    rank.propose = observed_propose  # type: ignore[method-assign]
    if not remote:
        return

    def observed_round(step: Step) -> Decision:
        decision = run_round(step)
        observer.decided(lambda: decision)
        return decision

    rank.run_round = observed_round  # type: ignore[method-assign]


def step_request(entry: Entry, *, trims: bool) -> StepRequest:
    """One request of a step.  trims: rows before the given ones are zeros, so that they do not count as kept."""
    rejected = entry.n_drafts - (entry.n_sampled - 1) if entry.n_sampled else 0
    given = entry.n_rows + rejected
    q = entry.first_position - entry.start + given
    return StepRequest(
        name=entry.request.name,
        slot=entry.slot,
        start=entry.start,
        q=q,
        kept=given if trims else q,
        sampled=entry.n_sampled,
        rejected=rejected,
        verified=entry.n_drafts,
        anchor=entry.anchor,
        remaining=0 if entry.n_sampled else len(entry.request.tokens) - entry.anchor_position,
    )


def _facts(engine: EngineLife, rank: Rank, arm: str, start_id: str, speculation: Speculation) -> Facts:
    options, model = engine.options, engine.model
    local = speculation != "none" and rank.local is not None
    found = {"two_ranks": len(engine.ranks) == 2, "row_reduction": options.trims}
    drafts = {"none": None, "local": type(rank.local), "remote": type(engine.drafter)}[speculation]
    return Facts(
        schema=SCHEMA,
        start_id=start_id,
        arm=arm,
        rank=rank.number,
        ranks=len(engine.ranks),
        engine="simulator",
        engine_version=spark_overlay.__version__,
        overlay_version=spark_overlay.__version__,
        device="simulated",
        device_capability="",
        driver="",
        speculator="" if drafts is None else drafts.__qualname__,
        speculator_module="" if drafts is None else drafts.__module__,
        policy=options.setting if speculation == "remote" else "",
        transport="simulated" if speculation == "remote" else "",
        draft_parameters=int(local),
        draft_layers=int(local),
        budget_tokens=options.load.batched_tokens,
        block_length=0 if speculation == "none" else model.block_length,
        window=0 if speculation == "none" else model.window,
        capabilities=tuple(sorted(name for name, shown in found.items() if shown)),
    )
