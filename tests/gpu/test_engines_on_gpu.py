"""Real vLLM engines on a GPU draft through the project's own worker on the same GPU, in every policy, on one rank
and on two: the text is that of the same engine without speculation, also while the worker dies or stands still.

What the runs print is for docs/performance.md; nothing here is judged by the time it takes, beyond bounds that tell a
hang.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import pytest
import torch
from engines import EAGER, GRAPHED, SERVED, Done, Maker, Mode, Requests, Stage, means, requests, timed_run
from fleet import Fleet, Setup
from spark_overlay.agreement import EXAMPLES_MAX, NEAR_TIE_MARGIN

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("vllm") is None, reason="the Python of this run has no vLLM"),
]

TIMEOUT_MS, TRIP, COOLDOWN = 500, 3, 6
BEGIN, END = 8, 18
"""Steps after which a fault begins and ends."""
SPIN_CYCLES = 100_000_000
"""A twentieth of a second on a GPU of 2 GHz: far longer than a proposal takes to be enqueued."""
TIE_MARGIN_MAX = {"float32": NEAR_TIE_MARGIN, "bfloat16": 2**-4}
"""Of logits between 8 and 16, which is how large this pair's are, bfloat16 holds multiples of 2**-4."""
POLICIES = ("capacity", "resilience", "shadow-local", "shadow-remote")
ON_CPU: list[Setup] = [("capacity", EAGER), ("shadow-remote", EAGER)]
SETUPS: list[Setup] = [
    *((policy, GRAPHED) for policy in POLICIES),
    *((policy, EAGER) for policy in POLICIES),
    *((policy, SERVED) for policy in POLICIES[:3]),
]
Case = tuple[Fleet, str, Mode]


@pytest.fixture(scope="module")
def texts() -> dict[str, Requests]:
    """Requests by name: one alone, four at once, and a mixture that comes and goes."""
    mixed = requests(150)
    whole = mixed["whole"]["prompt"]
    return {
        "one": {"one": {"prompt": whole, "max_tokens": 240}},
        "four": {
            name: {"prompt": wanted["prompt"][-64:], "max_tokens": 240} for name, wanted in mixed.items()
        },
        "mixed": mixed,
    }


@pytest.fixture(scope="module", params=[1, 2], ids=["one-rank", "two-ranks"])
def fleet(
    request: pytest.FixtureRequest, device: torch.device, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    ranks = request.param
    if device.type == "cuda" and (found := torch.cuda.device_count()) < ranks:
        pytest.skip(f"needs {ranks} GPUs, and there is {found}")
    maker = Maker(device.type, ranks, tmp_path_factory.mktemp(f"ranks-{ranks}"))
    with maker.stack:
        yield Fleet(
            maker,
            ON_CPU if device.type == "cpu" else SETUPS,
            _TIMEOUT_MS=str(TIMEOUT_MS),
            _TRIP=str(TRIP),
            _COOLDOWN=str(COOLDOWN),
        )


@pytest.fixture(params=SETUPS, ids=lambda setup: f"{setup[0]}-{setup[1].name}")
def case(request: pytest.FixtureRequest, fleet: Fleet) -> Case:
    policy, mode = request.param
    if fleet.maker.device == "cpu" and (policy, mode) not in ON_CPU:
        pytest.skip("a rehearsal on the CPU is of two setups alone")
    return fleet, policy, mode


def check_text(case: Case, name: str, wanted: Requests, tokens: dict[str, list[int]]) -> None:
    """In bfloat16 logits tie, and who wins depends on how many rows a step computes at once.  The judge is then vLLM's
    own drafting, which verifies as many as ours does.
    """
    fleet, _, mode = case
    for kind in ("plain", "stock") if mode.dtype == "float32" else ("stock",):
        assert tokens == fleet.judged(kind, mode, name, wanted).tokens, kind


def test_the_text_is_that_of_the_engine_without_speculation(case: Case, texts: dict[str, Requests]) -> None:
    fleet, policy, mode = case
    stage = fleet.stage(policy, mode)
    timed_run(stage.engine, texts["one"])  # kernels are made at their first use
    figures: dict[str, Any] = {}
    for name, wanted in texts.items():
        before = stage.engine.stats()
        done = timed_run(stage.engine, wanted)
        check_text(case, name, wanted, done.tokens)
        stock, plain = (fleet.judged(kind, mode, name, wanted) for kind in ("stock", "plain"))
        assert abs(done.steps - stock.steps) <= 3, "remote drafts are as good as local ones"
        figures = stage.engine.stats()
        tell_times(f"TP {fleet.maker.ranks}, {policy}, {mode.name}, {name}", done, stock, plain)
        print("  mean us:", means(before["latency"], figures["latency"]))
    print("  p50 us:", {name: value["p50"] for name, value in figures["latency"].items() if value["count"]})
    print("  memory:", figures["memory"], "shadow:", figures["shadow"])
    counters = figures["counters"]
    assert counters["rounds"] == counters["rounds_ok"] > 100
    assert counters["local_fallback_rounds"] == 0
    memory = figures["memory"]
    for kept in ("drafter_parameter_bytes", "kv_draft_layers"):
        assert (memory[kept] > 0) == (policy != "capacity")
    # Only remote drafts that were verified count as accepted ones.
    assert (figures["acceptance"]["accepted"] > 100) == (policy != "shadow-local")
    if policy.startswith("shadow"):
        assert figures["latency"]["local_propose_us"]["count"] == counters["rounds"]
        check_agreement(figures["shadow"], mode)


def check_agreement(shadow: dict[str, Any], mode: Mode) -> None:
    """Both drafters have the same weights and read the same taps, so they differ where two logits tie and nowhere
    else.
    """
    assert shadow["eligible"] > 100
    assert shadow["full_block_agree_rate"] > 0.95
    assert len(shadow["examples"]) == min(shadow["mismatches"], EXAMPLES_MAX)
    assert all(example["remote_margin"] <= TIE_MARGIN_MAX[mode.dtype] for example in shadow["examples"])


@dataclass(frozen=True)
class Fault:
    """A way to fail.  must: the counters of failed rounds that grow while it holds.  may: those that may, too."""

    begin: Callable[[Stage], None]
    end: Callable[[Stage], None]
    must: frozenset[str]
    may: frozenset[str]


LOST, AWAY, LATE, COOLING = (
    "fallback_transport_error", "fallback_not_ready", "fallback_timeout", "fallback_cooldown",
)  # fmt: skip
FAULTS = {
    "killed": Fault(
        begin=lambda stage: stage.worker.kill(),
        end=lambda stage: stage.worker.start(),
        must=frozenset({AWAY}),
        may=frozenset({LOST}),
    ),
    "frozen": Fault(
        begin=lambda stage: stage.worker.freeze(),
        end=lambda stage: stage.worker.thaw(),
        must=frozenset({LATE}),
        may=frozenset({COOLING, LOST, AWAY}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_worker_that_fails_in_the_middle_changes_no_text_and_drafts_again(
    case: Case, texts: dict[str, Requests], fault: Fault
) -> None:
    fleet, policy, mode = case
    stage = fleet.stage(policy, mode)
    assert stage.engine.run(texts["mixed"], pauses=[BEGIN, END]) == {"event": "paused", "step": BEGIN}
    before = stage.counters()
    fault.begin(stage)
    started = perf_counter()
    assert stage.engine.go() == {"event": "paused", "step": END}
    seconds = perf_counter() - started
    grown = stage.grown(before)
    fault.end(stage)
    stage.connect()
    before = stage.counters()
    done = stage.engine.go()
    after = stage.grown(before)
    print(f"{policy}, {mode.name}: {seconds:.2f} s", grown, after, sep="\n  ")
    assert done["event"] == "finished", done
    check_text(case, "mixed", texts["mixed"], done["tokens"])
    assert fault.must <= failures(grown) <= fault.must | fault.may
    assert sum(grown[name] for name in failures(grown)) == grown["rounds_failed"]
    failed = grown["rounds_failed"] + grown.get("rounds_some_failed", 0)
    assert grown.get("local_fallback_rounds", 0) == (failed if policy == "resilience" else 0)
    assert after["rounds_ok"] >= 3, "drafting resumes"
    assert seconds < (END - BEGIN) * (TIMEOUT_MS / 1000 + 0.2), "no step waits past its deadline"


def failures(grown: dict[str, int]) -> set[str]:
    """The reasons of failed rounds."""
    return {name for name in grown if name.startswith("fallback_")}


def test_in_capacity_no_rank_but_the_first_waits_for_the_device(
    fleet: Fleet, texts: dict[str, Requests]
) -> None:
    """A kernel far longer than a proposal comes before each one.  Rank 0 waits for its taps; the others' proposals come
    back before the kernel's end, so they wait for nothing, not for the broadcast either.
    """
    if fleet.maker.device == "cpu":
        pytest.skip("a CPU's collectives are done when they return")
    stage, (wanted,) = fleet.stage("capacity", GRAPHED), texts["one"].values()
    stage.engine.on_ranks("hold_the_stream", SPIN_CYCLES)
    done = timed_run(stage.engine, {"one": wanted | {"max_tokens": 60}})
    first, *others = stage.engine.on_ranks("let_the_stream_go")
    assert len(first) >= 10
    assert all(first)
    assert len(others) == fleet.maker.ranks - 1
    for seen in others:
        assert len(seen) == len(first)
        assert not any(seen)
    assert done.tokens["one"] == fleet.judged("plain", GRAPHED, "one", texts["one"]).tokens["one"][:60]


def tell_times(title: str, ours: Done, stock: Done, plain: Done) -> None:
    """Steps and their mean time, beside vLLM's own drafting and beside none."""
    runs = {"ours": ours, "stock": stock, "plain": plain}
    shown = (f"{name} {run.steps} of {1e3 * run.seconds / run.steps:.2f} ms" for name, run in runs.items())
    print(f"{title}: steps", ", ".join(shown))
