"""Observation of real engines: what runs without it is stock, what runs with it says the same, and each rank's file
tells what the drafter was called with, what it was told and what left it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from driver import Engine, dspark, engine_environment
from ofl.contract import observation_v1 as seen
from reference.tiny_checkpoints import BLOCK
from spark_overlay.vllm_seam import observed_facts
from stages import (
    WINDOW,
    Pair,
    Requests,
    Stage,
    TextsByRanks,
    drafting_stage,
    make_request,
    make_tiny_pair,
    texts_by_ranks,
)

pytestmark = pytest.mark.engine

ENGINE: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 16 << 20,
}
KEY = bytes(range(32))
TOGETHER: Requests = {"short": make_request(2, 5, 30), "chunked": make_request(3, 150, 20)}
HELD: Requests = {"held": make_request(4, 20, 24)}
AGED: Requests = {"aged": make_request(5, 20, 24)}
CUT: Requests = {"cut": make_request(6, 20, 24)}
ALL = TOGETHER | HELD | AGED | CUT
SETTINGS = {"POLICY": "capacity", "TIMEOUT_MS": "5000", "TRIP": "0"}
R = TypeVar("R", bound=seen.Record)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_tiny_pair(tmp_path_factory.mktemp("observing"))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> TextsByRanks:
    return texts_by_ranks(pair, ALL, **ENGINE)


def variables(folder: Path) -> dict[str, str]:
    """What asks for observation, in a new folder."""
    folder.mkdir()
    return {
        "VLLM_DSPARK_OBSERVE": str(folder),
        "VLLM_DSPARK_OBSERVE_KEY": KEY.hex(),
        "VLLM_DSPARK_OBSERVE_ARM": "remote",
        "VLLM_DSPARK_OBSERVE_FAULT_PLAN": str(folder / "plan.jsonl"),
    }


@dataclass(frozen=True)
class Files:
    """The files of one start, by rank."""

    ranks: list[list[seen.Record]]

    def of(self, kind: type[R], rank: int = 0) -> list[R]:
        return [record for record in self.ranks[rank] if isinstance(record, kind)]


def read(folder: Path) -> Files:
    ranks = []
    for path in sorted(folder.glob("observations-*.jsonl")):
        lines = [seen.read_line(line) for line in path.read_bytes().splitlines(keepends=True)]
        assert [line.index for line in lines] == list(range(len(lines)))
        records = [line.record for line in lines]
        assert isinstance(records[0], seen.Facts)
        assert records[-1] == seen.Closed(len(records) - 1, 0)
        ranks.append(records)
    return Files(ranks)


def arm(stage: Stage, folder: Path, order: dict[str, Any]) -> None:
    """Write a plan of one fault as a harness does."""
    (folder / "plan.new").write_text(json.dumps(order) + "\n")
    (folder / "plan.new").replace(folder / "plan.jsonl")


@pytest.fixture(scope="module", params=(1, 2), ids=("tp1", "tp2"))
def observed(request: pytest.FixtureRequest, pair: Pair, plain: TextsByRanks) -> tuple[int, Files]:
    """The files of an engine that was observed through a run without faults and, on one rank, three with one each."""
    ranks: int = request.param
    folder = pair.folder / f"seen-{ranks}"
    made = drafting_stage(
        pair, plain(ranks), ALL, name=f"observed-{ranks}", ranks=ranks, local_weights=False, settings=SETTINGS,
        engine=ENGINE, worker_first=True, variables=variables(folder),
    )  # fmt: skip
    with made as stage:
        stage.connect()
        run(stage, TOGETHER)
        if ranks == 1:
            for requests, action, more in (
                (HELD, "hold_reply", {"hold_steps": 2}),
                (AGED, "old_generation", {}),
                (CUT, "disconnect_after_final", {}),
            ):
                (name,) = requests
                arm(stage, folder, {"case": action, "request": name, "action": action, **more})
                run(stage, requests)
        assert stage.engine.quit() == 0
    return ranks, read(folder)


def run(stage: Stage, requests: Requests) -> None:
    """The text is the plain one, whatever the requests meet."""
    done = stage.engine.run(requests)
    assert done["event"] == "finished", done
    assert done["tokens"] == stage.right(requests)


def test_an_engine_that_is_not_observed_has_no_hook_anywhere(pair: Pair, plain: TextsByRanks) -> None:
    made = drafting_stage(
        pair, plain(1), ALL, name="unobserved", ranks=1, local_weights=False, settings=SETTINGS, engine=ENGINE,
        worker_first=True,
    )  # fmt: skip
    with made as stage:
        stage.connect()
        run(stage, HELD)
        (found,) = stage.engine.on_ranks("hooks")
        assert stage.engine.quit() == 0
    # The product's own count of additions is the only method that stands on an object.
    assert found == {
        "instances": ["add_request"],
        "transport": "ofl.client",
        "methods_of": ["spark_overlay.vllm_seam.guard"],
        "modules": [],
    }


def test_each_rank_says_the_same_of_the_engine_and_of_every_step(observed: tuple[int, Files]) -> None:
    ranks, files = observed
    assert len(files.ranks) == ranks
    facts = [files.of(seen.Facts, rank)[0] for rank in range(ranks)]
    assert len({one.start_id for one in facts}) == 1
    assert [one.rank for one in facts] == list(range(ranks))
    for one in facts:
        assert (one.engine, one.device, one.policy, one.transport) == ("vllm", "cpu", "capacity", "tcp")
        assert (one.speculator, one.draft_parameters, one.draft_layers) == ("RemoteDSparkSpeculator", 0, 0)
        assert (one.block_length, one.window, one.budget_tokens) == (BLOCK, WINDOW, 64)
        assert one.capabilities == (("two_ranks",) if ranks == 2 else ())
    for kind in (seen.Scheduled, seen.Decided, seen.Published, seen.Verified):
        first = files.of(kind)
        assert first, kind
        for rank in range(1, ranks):
            assert files.of(kind, rank) == first
            assert not files.of(seen.Exchanged, rank)


def test_what_was_scheduled_sent_decided_and_published_fits_together(observed: tuple[int, Files]) -> None:
    _, files = observed
    steps = {record.step: record for record in files.of(seen.Scheduled)}
    decided = {record.step: record for record in files.of(seen.Decided)}
    assert list(steps) == list(range(1, len(steps) + 1)) == list(decided)
    chunks = [entry for step in steps.values() for entry in step.requests if entry.request == "chunked"]
    prompt = [entry.q for entry in chunks if not entry.verified]
    assert sum(prompt) == len(TOGETHER["chunked"]["prompt"])
    assert [entry.sampled > 0 for entry in chunks[: len(prompt)]] == [False] * (len(prompt) - 1) + [True]
    for published in files.of(seen.Published):
        assert published.drafts == tuple(entry.drafts for entry in decided[published.step].requests)
    good = [record for record in files.of(seen.Exchanged) if record.reply == "in time"]
    assert len(good) > 5
    for exchanged in good:
        assert (exchanged.epoch_echoed, exchanged.round_echoed) == (exchanged.epoch, exchanged.round)
        entries = {entry.request: entry for entry in steps[exchanged.step].requests}
        for slot in exchanged.slots:
            entry = entries[slot.request]
            if slot.need_draft:  # else rows may go in several messages
                assert slot.first_position + slot.n_rows == entry.first_position + entry.valid
            assert slot.generation_echoed == slot.generation
    assert all(record.source == "remote" for record in files.of(seen.Verified) if record.accepted)
    assert any(record.accepted == BLOCK for record in files.of(seen.Verified))


def test_faults_meet_their_owner_and_nothing_late_or_wrong_is_used(observed: tuple[int, Files]) -> None:
    ranks, files = observed
    moments = [(fault.request, fault.action, fault.moment) for fault in files.of(seen.Fault)]
    if ranks == 2:
        assert not moments
        return
    assert moments == [
        ("held", "hold_reply", "armed"),
        ("held", "hold_reply", "held"),
        ("held", "hold_reply", "released"),
        ("aged", "old_generation", "armed"),
        ("aged", "old_generation", "struck"),
        ("cut", "disconnect_after_final", "armed"),
        ("cut", "disconnect_after_final", "struck"),
    ]
    decided = {record.step: record for record in files.of(seen.Decided)}
    met = {
        record.slots[0].request: record for record in files.of(seen.Exchanged) if record.reply != "in time"
    }
    assert {name: record.reply for name, record in met.items()} == {
        "held": "late",
        "aged": "unreadable",
        "cut": "none",
    }
    for name, record in met.items():
        (decision,) = decided[record.step].requests
        assert (decision.request, decision.outcome, decision.drafts) == (name, "ROUND_FAILED", seen.NO_TAG)
    late = met["held"].slots[0].drafts
    assert late != seen.NO_TAG
    assert all(late != entry.drafts for record in decided.values() for entry in record.requests)
    assert met["aged"].slots[0].generation_echoed < met["aged"].slots[0].generation


def test_an_engine_that_drafts_by_itself_is_observed_alike(pair: Pair, plain: TextsByRanks) -> None:
    folder = pair.folder / "seen-local"
    environment = engine_environment(**variables(folder))
    with Engine(pair.folder / "local.log", environment) as engine:
        found = engine.start(model=str(pair.target), speculative_config=dspark(pair.drafter, BLOCK), **ENGINE)
        assert found["event"] == "ready", found
        done = engine.run(TOGETHER)
        assert engine.quit() == 0
    assert done["tokens"] == {
        name: plain(1)[name][: wanted["max_tokens"]] for name, wanted in TOGETHER.items()
    }
    files = read(folder)
    (facts,) = files.of(seen.Facts)
    assert (facts.speculator, facts.policy, facts.transport) == ("DSparkSpeculator", "", "")
    assert facts.draft_parameters > 0
    assert facts.draft_layers > 0
    assert facts.block_length == BLOCK
    assert len(files.of(seen.Published)) == len(files.of(seen.Scheduled)) > 0
    assert not files.of(seen.Decided)
    assert not files.of(seen.Exchanged)
    assert {record.source for record in files.of(seen.Verified)} <= {"local", "none"}


def test_an_engine_that_does_not_draft_states_its_facts_alone(pair: Pair) -> None:
    folder = pair.folder / "seen-target"
    with Engine(pair.folder / "target.log", engine_environment(**variables(folder))) as engine:
        assert engine.start(model=str(pair.target), **ENGINE)["event"] == "ready"
        assert engine.run(HELD)["event"] == "finished"
        assert engine.quit() == 0
    (records,) = read(folder).ranks
    assert len(records) == 2
    assert isinstance(records[0], seen.Facts)
    assert (records[0].speculator, records[0].block_length, records[0].draft_layers) == ("", 0, 0)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 03:01:18 UTC 2025\n"
            "GCC version:  gcc version 12.2.0\n",
            "570.86.15",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (dvs-builder)\n",
            "580.95.05",
        ),
        ("NVRM version: something else 12.2.0\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_drivers_release_is_what_the_kernel_module_says(tmp_path: Path, text: str, release: str) -> None:
    path = tmp_path / "version"
    assert observed_facts.driver_version(path) == "unknown"
    path.write_text(text)
    assert observed_facts.driver_version(path) == release


def test_a_host_without_cuda_has_a_device_and_no_driver() -> None:
    assert observed_facts.device_facts(torch.device("cpu")) == ("cpu", "", "")
