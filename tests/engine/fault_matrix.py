"""The faults of a worker, and what must hold through each of them whatever the policy and the number of ranks.

One engine a policy and size goes through all faults, one run each: two requests are drafted for, the fault begins at
a pause between two steps, holds for some steps, ends, and drafting resumes.  The worker is the project's own, with a
drafter that knows the texts and a transport that misbehaves on order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stages import Pair, Requests, Stage, TextsByRanks, drafting_stage, make_request

TIMEOUT_MS, TRIP, COOLDOWN = 400, 3, 8
BEGIN, END = 4, 13
"""Steps after which the fault begins and ends: it holds for END - BEGIN steps."""
ENGINE: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_seqs": 2,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 8 << 20,
}
TWO: Requests = {"long": make_request(40, 30, 90), "beside": make_request(41, 44, 90)}
FEWER_TOKENS = 60
"""Where the local drafter's drafts are verified, which the target takes less often, so that steps are as many."""
POLICIES = {
    "capacity": {"POLICY": "capacity"},
    "resilience": {"POLICY": "resilience"},
    "shadow-remote": {"POLICY": "shadow", "SHADOW_USE": "remote"},
    "shadow-local": {"POLICY": "shadow", "SHADOW_USE": "local"},
}


@dataclass(frozen=True)
class Fault:
    """A way to fail.

    begin, end: done between two steps.  must: counters that grow while it holds.  may: those that may grow too;
    every other counter of a failure stays.
    """

    name: str
    begin: Callable[[Stage], object]
    end: Callable[[Stage], object]
    must: frozenset[str]
    may: frozenset[str] = frozenset()


def ordered(fault: str) -> tuple[Callable[[Stage], object], Callable[[Stage], object]]:
    """A fault of `wire_faults`, which must have met some reply."""

    def end(stage: Stage) -> None:
        assert stage.worker.order("none")

    return lambda stage: stage.worker.order(fault), end


def killed(stage: Stage) -> None:
    stage.worker.kill()


def started(stage: Stage) -> None:
    stage.worker.start()


def restarted(stage: Stage) -> None:
    stage.worker.kill()
    stage.worker.start()


def planted(where: str) -> tuple[Callable[[Stage], object], Callable[[Stage], object]]:
    """A defect of the overlay's own, on rank 0 alone."""

    def plant(stage: Stage) -> None:
        done = stage.engine.on_ranks("plant", where)
        assert done[0] == "planted"
        assert set(done[1:]) <= {"left alone"}

    return plant, lambda stage: stage.engine.on_ranks("mend", where)


NOT_READY, LOST, LATE, COOLING = (
    "fallback_not_ready", "fallback_transport_error", "fallback_timeout", "fallback_cooldown",
)  # fmt: skip
FAULTS = [
    Fault("killed", killed, started, must=frozenset({NOT_READY}), may=frozenset({LOST})),
    Fault(
        "frozen",
        lambda stage: stage.worker.freeze(),
        lambda stage: stage.worker.thaw(),
        must=frozenset({LATE}),
        may=frozenset({COOLING, LOST, NOT_READY}),
    ),
    Fault(
        "restarted",
        restarted,
        lambda stage: None,
        must=frozenset({"disconnects", "hellos"}),
        may=frozenset({LOST, NOT_READY}),
    ),
    Fault("garbage", *ordered("garbage"), must=frozenset({"fallback_bad_reply"}), may=frozenset({COOLING})),
    Fault("slow", *ordered("slow"), must=frozenset({LATE}), may=frozenset({COOLING})),
    Fault(
        "half",
        lambda stage: stage.worker.order("half"),
        lambda stage: stage.worker.order("none"),
        must=frozenset({"rounds_some_failed", "req_status_drafter"}),
    ),
    Fault(
        "defect-in-gather",
        *planted("spark_overlay.gather:TapGather.gather"),
        must=frozenset({"fallback_internal_error"}),
        may=frozenset({COOLING, NOT_READY}),
    ),
    Fault(
        "defect-in-round",
        *planted("spark_overlay.round.core:RoundCore.frames"),
        must=frozenset({"fallback_internal_error"}),
        may=frozenset({COOLING, NOT_READY}),
    ),
]


@contextmanager
def faulty_stage(pair: Pair, plain: TextsByRanks, policy: str, ranks: int) -> Iterator[Stage]:
    """The drafting engine of one policy and size, its worker connected."""
    settings = POLICIES[policy] | {
        "TIMEOUT_MS": str(TIMEOUT_MS), "TRIP": str(TRIP), "COOLDOWN": str(COOLDOWN),
    }  # fmt: skip
    made = drafting_stage(
        pair, plain(ranks), TWO, name=f"{policy}-{ranks}", ranks=ranks, local_weights=policy != "capacity",
        settings=settings, engine=ENGINE,
    )  # fmt: skip
    with made as stage:
        stage.worker.start()
        stage.connect()
        yield stage


def go_through(stage: Stage, fault: Fault) -> None:
    """The text stays, the failure is counted for what it is, and drafting resumes."""
    start = stage.engine.stats()
    local = (start["policy"], start["shadow_use"]) == ("shadow", "local")
    requests = {name: wanted | {"max_tokens": FEWER_TOKENS} for name, wanted in TWO.items()} if local else TWO
    assert stage.engine.run(requests, pauses=[BEGIN, END]) == {"event": "paused", "step": BEGIN}
    assert not failures(stage.grown(start["counters"])), "nothing fails before the fault"
    before = stage.counters()
    fault.begin(stage)
    assert stage.engine.go() == {"event": "paused", "step": END}
    fault.end(stage)
    stage.connect()
    grown = stage.grown(before)
    assert fault.must <= set(grown)
    assert failures(grown) <= fault.must | fault.may
    fallbacks = sum(count for name, count in grown.items() if name.startswith("fallback_"))
    assert fallbacks == grown.get("rounds_failed", 0), "each failed round has one reason"
    failed = fallbacks + grown.get("rounds_some_failed", 0)
    stands_in = failed if start["policy"] == "resilience" else 0
    assert grown.get("local_fallback_rounds", 0) == stands_in

    before = stage.counters()
    stage.worker.blocks()
    done = stage.engine.go()
    assert done["event"] == "finished", done
    assert done["tokens"] == stage.right(requests)
    grown = stage.grown(before)
    # A breaker that cools down, and windows that are sent again bit by bit after a time of missed deadlines.
    assert failures(grown) <= {COOLING, "rounds_some_failed"}
    assert grown.get(COOLING, 0) <= COOLDOWN
    pending = grown.get("req_resync_pending", 0) + grown.get("req_unconfirmed", 0)
    assert grown.get("rounds_some_failed", 0) <= min(pending, 4)
    assert grown["rounds_ok"] >= 3, "drafting resumes"
    assert stage.worker.blocks()
    after = stage.engine.stats()
    assert after["breaker"]["state"] == "closed"
    assert after["counters"]["breaker_trips"] == after["counters"]["breaker_recoveries"]
    assert after["latency"]["rank0_round_us"]["max"] < 1.5 * TIMEOUT_MS * 1000


def failures(grown: dict[str, int]) -> set[str]:
    """The counters that name a failure."""
    own = {"rounds_some_failed", "req_no_context", "req_bad", "append_refused"}
    return {name for name in grown if name in own or name.startswith(("req_status_", "fallback_"))}
