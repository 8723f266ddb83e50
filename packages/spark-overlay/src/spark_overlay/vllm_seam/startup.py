"""What happens once an engine is about to serve: connect, prove the ranks' broadcast, say what is freed and
kept, write the readiness record.

Runs on every rank, and ends alike on every rank: with one that fails, all fail.  The record comes last, from rank 0,
so that it speaks for all ranks; of every other host its first rank writes one, which says so much of all ranks and
nothing of the worker.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ofl.contract.dspark_v1 import SERVICE, VERSION
from ofl.contract.records import printable

import spark_overlay
from spark_overlay.readiness import ReadinessRecord, write_record
from spark_overlay.refusal import forget_refusal
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.depth import check_worker, price_drafts
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.memory import Memory, lines, measure
from spark_overlay.vllm_seam.verified_depth import cap_verification

if TYPE_CHECKING:
    from spark_overlay.vllm_seam.policies import RemoteRounds

CONNECT_WAIT_S = 2.0
"""A worker that is up answers well within; without one the engine serves all the same, as its policy says."""
ASKED_ELSEWHERE = "asked by rank 0 alone, on another host"
"""What a host without rank 0 says of the worker."""
SAID_MAX = 500
"""Characters of one rank's reason that the others repeat."""
STATE_MAX = 1000
"""Characters of the worker's state in the readiness record; a worker's own words may be part of it."""

log = logging.getLogger(__name__)


def on_up(settings: Settings, rounds: "RemoteRounds", version: str) -> Callable[[Any], None]:
    """What to call with the model runner, on every rank, when the engine is up."""

    def up(model_runner: Any) -> None:
        problem = _prepared(settings, rounds, model_runner)
        agree(rounds, problem)
        if rounds.lead is None:
            if rounds.ranks.first_here and settings.ready_file is not None:
                # A launcher of this host, which rank 0's file does not reach.
                write_record(settings.ready_file, record(settings, version, ASKED_ELSEWHERE))
                forget_refusal(settings.ready_file)
            return
        cap_verification(model_runner, rounds.lead.drafter)
        stats = rounds.lead.drafter.stats()
        memory = measure(model_runner, rounds, _buffers(stats))
        # The drafter's figures carry it from here on.
        rounds.lead.drafter.memory = memory
        for line in report(settings, rounds.ranks.size, memory, stats):
            log.info(line)
        if settings.ready_file is not None:
            write_record(settings.ready_file, record(settings, version, worker_state(stats)))
            forget_refusal(settings.ready_file)

    return up


def agree(rounds: "RemoteRounds", problem: Exception | None) -> None:
    """One word from each rank, then one broadcast; raises on every rank where one has a problem.

    On the rank that has it, its own exception.  The words come first, as nothing bounds the wait of a broadcast for a
    rank that never takes part.
    """
    text = "" if problem is None else f"{problem}" or type(problem).__name__
    said = rounds.ranks.gather(text[:SAID_MAX])
    if problem is not None:
        raise problem
    _all_well(said)
    _all_well(
        rounds.ranks.gather("" if rounds.prove() else "it does not read what rank 0 sends to all ranks")
    )


def _all_well(said: Sequence[str]) -> None:
    """Raises SeamError with the first rank's reason; no reason is none."""
    for rank, reason in enumerate(said):
        if reason:
            raise SeamError(f"tensor-parallel rank {rank} cannot draft remotely: {reason}")


def worker_state(stats: Mapping[str, object]) -> str:
    """What the worker is, for the readiness record.  stats: the drafter's."""
    if stats["disabled"]:
        return f"not used in this run: {stats['disabled']}"[:STATE_MAX]
    if stats["connected"]:
        return "connected"
    if is_paused(stats):
        return f"not used while paused: {_control(stats).get('reason') or 'no reason given'}"[:STATE_MAX]
    return f"not there yet: {stats['last_failure'] or 'it has not answered so far'}"[:STATE_MAX]


def record(settings: Settings, version: str, worker: str) -> ReadinessRecord:
    """This process's readiness record.  version: vLLM's.  worker: what `worker_state` says."""
    return ReadinessRecord(
        pid=os.getpid(),
        start_id=settings.start_id,
        policy=settings.policy,
        endpoint=settings.endpoint,
        identity=settings.identity,
        versions={
            "spark-overlay": spark_overlay.__version__,
            "contract": f"{SERVICE}-v{VERSION}",
            "vllm": version,
        }
        | _transport_version(),
        worker=printable(worker),
    )


def report(settings: Settings, ranks: int, memory: Memory, stats: Mapping[str, object]) -> list[str]:
    """Lines for the log: what drafts here, what is freed and what is kept.  Only what was looked at."""
    otherwise = "no drafts" if settings.policy == "capacity" else "local drafts"
    state = "is connected" if stats["connected"] else f"is not there yet; until then, {otherwise}"
    if is_paused(stats):
        state = f"is not used while remote drafting is paused, {otherwise}"
    if stats["disabled"]:
        state = f"is not used in this run, {otherwise}: {stats['disabled']}"
    verified = f" (verified: {settings.shadow_use} drafts)" if settings.policy == "shadow" else ""
    return [
        f"drafting remotely through {settings.endpoint}, policy {settings.policy}{verified}, for {ranks} "
        f"{'rank' if ranks == 1 else 'ranks'}; the worker {state}",
        *lines(memory, settings.policy),
    ]


def _prepared(settings: Settings, rounds: "RemoteRounds", model_runner: Any) -> Exception | None:
    """Price drafts, and on rank 0 begin; what went wrong instead of raising it, since the other ranks wait for a
    word.
    """
    try:
        price_drafts(model_runner, settings)
        if rounds.lead is not None:
            rounds.lead.attach(model_runner.req_states)
            rounds.lead.drafter.start(CONNECT_WAIT_S)
            check_worker(model_runner, settings, rounds.lead.drafter.stats())
    except Exception as error:
        return error
    return None


def is_paused(stats: Mapping[str, object]) -> bool:
    """Whether operators have paused remote drafting.  stats: the drafter's."""
    return _control(stats).get("state") == "paused"


def _control(stats: Mapping[str, Any]) -> Mapping[str, Any]:
    return stats.get("control") or {}


def _buffers(stats: Mapping[str, Any]) -> Mapping[str, int]:
    found: Mapping[str, int] = stats.get("rank0_buffers", {})
    return found


def _transport_version() -> dict[str, str]:
    import ofl
    from ofl.native import ABI_VERSION

    return {"ofl-transport": str(ofl.__version__), "ofl-abi": str(ABI_VERSION)}
