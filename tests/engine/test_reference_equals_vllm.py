"""The reference drafter says what vLLM's own DSpark speculator says, on a real engine with the same
weights.

A child process runs the engine and records every call of the speculator; here the same taps go through the
reference drafter as contract rows.  One engine per kind of checkpoint.  docs/drafters/reference.md holds
the figures.

vLLM's CPU `rms_norm` reads only row 0 of a 2-D weight, which would give every drafter layer the key norm of
layer 0.  The engine's helper distribution repairs that (tools/engine-cpu); the tests assert that the repair
was active, and that the defect could not have gone unseen.
"""

import os
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from preloaded import PreloadedProcess
from reference.record_blocks import DRAFTS, ENGINE_ENVIRONMENT, record_alone
from reference.replay import Comparison, Record, read_records, replay
from reference.tiny_checkpoints import KINDS, make_pair
from x86_worker.checkpoint import DrafterCheckpoint, read_drafter
from x86_worker.drafters.reference import ReferenceDrafter

pytestmark = pytest.mark.engine

COMPARED = ("full", "sliding", "mixed", "sliding-not-causal", "fill-in")
BLOCKS_MIN = 1000
CONFIDENCE_DIFFERENCE_MAX = 1e-3
ENGINE_TIMEOUT_S = 600


@dataclass(frozen=True)
class Recording:
    """What one engine's speculator did, and the checkpoint it did it with."""

    checkpoint: DrafterCheckpoint
    records: list[Record]
    repair: str
    comparison: Comparison


class Recordings:
    """Runs each kind's engine once, when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.of = cache(self._record)

    def _record(self, kind: str) -> Recording:
        drafter, target = make_pair(self._folder / kind, KINDS[kind])
        output = self._folder / kind / "records.npz"
        log = self._folder / kind / "engine.log"
        arguments = (str(drafter), str(target), output)
        process = PreloadedProcess(partial(record_alone, *arguments), os.environ | ENGINE_ENVIRONMENT, log)
        try:
            assert process.wait(ENGINE_TIMEOUT_S) == 0, f"the engine failed:\n{log.read_text()[-6000:]}"
        finally:
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        checkpoint = read_drafter(drafter, target)
        records = read_records(output)
        with np.load(output) as stored:
            repair = str(stored["repair"])
        return Recording(checkpoint, records, repair, replay(records, ReferenceDrafter(checkpoint)))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(tmp_path_factory.mktemp("engines"))


@pytest.mark.parametrize("kind", COMPARED)
def test_draft_ids_are_vllms_but_for_shown_ties_and_confidences_agree(
    recordings: Recordings, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = recordings.of(kind).comparison
    with capsys.disabled():
        print(f"\n  {kind}: {found}")
        for tie in found.ties:
            print(f"    tie: {tie}")
    assert found.differences == []
    assert found.confidence_difference_max <= CONFIDENCE_DIFFERENCE_MAX


def test_a_thousand_blocks_were_compared_and_ties_are_rare(recordings: Recordings) -> None:
    found = [recordings.of(kind).comparison for kind in COMPARED]
    assert sum(one.blocks for one in found) >= BLOCKS_MIN
    assert sum(len(one.ties) for one in found) <= sum(one.blocks for one in found) // 100


@pytest.mark.parametrize("kind", COMPARED)
def test_the_engine_prefilled_in_chunks_batched_requests_and_met_rejections(
    recordings: Recordings, kind: str
) -> None:
    records = recordings.of(kind).records
    starts = [record["positions"][record["starts"][:-1]] for record in records]
    spans = [np.diff(record["starts"]) for record in records]
    longest_draft = DRAFTS + 1
    later_chunks = [(first > 0) & (span > longest_draft) for first, span in zip(starts, spans, strict=True)]
    assert np.concatenate(later_chunks).sum() >= 3
    assert max(len(record["slots"]) for record in records) >= 5
    rejected = [record["rejected"] for record in records]
    kept = np.concatenate([(span - lost)[lost > 0] for span, lost in zip(spans, rejected, strict=True)])
    assert {1, 2, 3} <= set(kept.tolist()), "rounds that kept no draft, one, and two"


@pytest.mark.parametrize("kind", COMPARED)
def test_the_engines_context_keys_were_normalised_layer_by_layer(recordings: Recordings, kind: str) -> None:
    assert recordings.of(kind).repair == "triton_cpu_interpreter.repairs"


def test_the_comparison_would_show_one_layers_key_norm_used_for_all(recordings: Recordings) -> None:
    recording = recordings.of("full")
    names = [name for name in recording.checkpoint.tensors if name.endswith("self_attn.k_norm.weight")]
    first = recording.checkpoint.tensors[names[0]]
    wrong = dict(recording.checkpoint.tensors) | {name: replace(first, name=name) for name in names}
    assert _shows(recording, replace(recording.checkpoint, tensors=wrong))


@pytest.mark.parametrize("kind", ["sliding", "mixed", "sliding-not-causal"])
@pytest.mark.parametrize("difference", [-1, 1])
def test_the_comparison_would_show_a_window_off_by_one(
    recordings: Recordings, kind: str, difference: int
) -> None:
    recording = recordings.of(kind)
    config = recording.checkpoint.config
    layers = tuple(
        replace(rule, window=None if rule.window is None else rule.window + difference)
        for rule in config.layers
    )
    assert _shows(recording, replace(recording.checkpoint, config=replace(config, layers=layers)))


@pytest.mark.parametrize("kind", COMPARED)
def test_the_comparison_would_show_the_other_causality(recordings: Recordings, kind: str) -> None:
    recording = recordings.of(kind)
    config = recording.checkpoint.config
    layers = tuple(replace(rule, causal=not rule.causal) for rule in config.layers)
    assert _shows(recording, replace(recording.checkpoint, config=replace(config, layers=layers)))


def _shows(recording: Recording, wrong: DrafterCheckpoint) -> bool:
    """Whether a wrong drafter fails the comparison clearly: a tenth of the blocks."""
    found = replay(recording.records, ReferenceDrafter(wrong))
    return len(found.differences) >= found.blocks // 10
