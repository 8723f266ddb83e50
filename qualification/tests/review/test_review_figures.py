"""Figures from observations, by hand: which steps, rounds and drafts count, and how they are drawn."""

from pathlib import Path

import pytest
from ofl.contract import observation_v1 as seen
from pages import Page
from qualification.receipts.files import Files
from qualification.review import plots
from qualification.review.gather import gather, observations_of
from qualification.review.measure import (
    Accepted,
    Measured,
    bucket_name,
    bucket_of,
    measure,
    quantile,
    requests_of,
)
from receipt_corpus import sound
from receipt_corpus.bench import Bench

MS = 1_000_000
BOTH = frozenset({"a", "b"})


def entry(request: str) -> seen.ScheduledRequest:
    return seen.ScheduledRequest(request, 0, 1, 1, 1, 1, 0, 1, 0, "a" * 32)


def lines(*records: tuple[int, seen.Record], rank: int = 0) -> list[seen.Observation]:
    """A file: facts, then records at milliseconds."""
    facts = sound.facts(sound.LOCAL, "start-1", rank)
    return [
        seen.Observation(index, ms * MS, record) for index, (ms, record) in enumerate([(0, facts), *records])
    ]


def step(number: int, at: int, took: int, *requests: str) -> list[tuple[int, seen.Record]]:
    return [
        (at, seen.Scheduled(number, tuple(map(entry, requests)))),
        (at + took, seen.Published(number, ("",) * len(requests))),
    ]


def test_a_step_lasts_until_the_next_call_unless_the_engine_was_idle_between() -> None:
    file = lines(*step(1, 10, 2, "a"), *step(2, 25, 3, "a", "b"), *step(3, 90, 4, "b"), *step(4, 500, 5, "c"))
    measured = measure([file], frozenset({"a", "b", "c"}))
    assert measured.step_ms == (15.0, 65.0)
    assert measured.round_ms == (2.0, 3.0, 4.0, 5.0)


def test_steps_with_a_request_that_one_arm_did_not_have_do_not_count() -> None:
    file = lines(*step(1, 10, 2, "a"), *step(2, 25, 3, "a", "alone"), *step(3, 60, 4, "a"))
    measured = measure([file], BOTH)
    assert measured.round_ms == (2.0, 4.0)
    assert measured.step_ms == ()


def test_acceptance_leaves_out_drafts_of_nobody_and_requests_of_one_arm() -> None:
    harness = lines(
        (1, seen.Completed("a", 31, 8, "length", "t")),
        (2, seen.Completed("b", 300, 8, "length", "t")),
        (3, seen.Completed("alone", 300, 8, "length", "t")),
    )
    file = lines(
        (4, seen.Verified(1, "a", 40, 5, 3, "local")),
        (5, seen.Verified(2, "a", 44, 5, 0, "none")),
        (6, seen.Verified(3, "b", 310, 5, 1, "remote")),
        (7, seen.Verified(4, "b", 312, 5, 4, "remote")),
        (8, seen.Verified(5, "alone", 312, 5, 5, "remote")),
    )
    other_rank = lines((9, seen.Verified(1, "a", 40, 5, 3, "local")), rank=1)
    assert requests_of([harness, file]) == {"a", "b", "alone"}
    measured = measure([harness, file, other_rank], BOTH)
    assert measured.acceptance == {0: Accepted(5, 3), 256: Accepted(10, 5)}
    assert measured.acceptance[256].share == 0.5


def test_buckets_are_powers_of_two_and_quantiles_are_values() -> None:
    assert [bucket_of(tokens) for tokens in (1, 31, 32, 63, 64, 1000)] == [0, 0, 32, 32, 64, 512]
    assert [bucket_name(bucket) for bucket in (0, 64)] == ["below 32", "64 to 127"]
    hundred = [float(value) for value in range(100, 0, -1)]
    assert [quantile(hundred, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]
    assert quantile([7.0], 0.5) == 7.0


def test_a_bucket_that_one_arm_lacks_has_no_bar_there() -> None:
    off = Measured(acceptance={0: Accepted(10, 5), 32: Accepted(10, 4)})
    on = Measured(acceptance={0: Accepted(10, 6)})
    svg = plots.acceptance(off, on, "p")
    assert all(value in svg for value in ("0.50", "0.40", "0.60"))
    assert "0.00" not in svg


def test_figures_are_well_formed_apart_from_each_other_and_hidden_from_readers_of_their_tables() -> None:
    first, second = (plots.shares([1.0, 2.0, 30.0], [2.0, 3.0], prefix) for prefix in ("p1", "p2"))
    page = Page(f"<div>{first}{second}</div>")
    assert page.wrong == []
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert first.startswith('<svg aria-hidden="true"')
    assert "OFF" in first
    assert "\\mathdefault" not in first
    assert plots.shares([1.0, 2.0], [3.0], "p1") == plots.shares([1.0, 2.0], [3.0], "p1")


def test_times_of_zero_and_no_times_at_all_can_be_drawn() -> None:
    assert "<svg" in plots.shares([0.0, 1.0], [2.0], "p")
    assert "<svg" in plots.shares([], [2.0], "p")


def test_a_file_that_changed_since_it_verified_gives_no_figures(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path / "run-1")
    (run,) = gather(tmp_path, sound.KEY).verified
    before = observations_of(run)
    assert before
    for file in bench.predicate()["evidence"]:
        path = bench.root / file["path"]
        path.write_bytes(path.read_bytes() + b" ")
    after = observations_of(run)
    assert sum(map(len, after.values())) < sum(map(len, before.values()))


def test_a_file_of_any_length_that_a_receipt_states_gives_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Bench.make(tmp_path / "run-1")
    (run,) = gather(tmp_path, sound.KEY).verified
    before = observations_of(run)
    monkeypatch.setattr(Files.read, "__defaults__", (10,))
    assert observations_of(run) == before
