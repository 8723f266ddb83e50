"""Rows from a server, from the local shard, and from a server of another manifest; and evidence that is no use."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import EvidenceError, Found, Verdict, verdict_of
from qualification.checks.table_rows_exact_and_fallback import CHECK
from synthetic_evidence import HARNESS, OFF, ON, Evidence, assert_flips, assert_not_seen, change_one
from synthetic_parts import Platform
from synthetic_tables import FOREIGN

OTHER_TAG = "e" * 32
SUBCASES = [subcase.name for subcase in CHECK.subcases]


def reads(request: str, outcome: str, layer: int = 3) -> Callable[[Any], bool]:
    """Lookups for one request alone, of one layer and outcome."""
    return lambda record: (
        isinstance(record, seen.TableRead)
        and (record.requests, record.outcome, record.layer) == ((f"tables.{request}",), outcome, layer)
    )


def refusals(record: Any) -> bool:
    return isinstance(record, seen.TableOpened) and record.status == "refused"


def struck(action: str, moment: str) -> Callable[[Any], bool]:
    return lambda record: (
        isinstance(record, seen.Fault) and (record.action, record.moment) == (action, moment)
    )


def test_a_sound_product_passes() -> None:
    evidence = Evidence(CHECK)
    assert set(evidence.found().values()) == {Found.PASSED}
    assert verdict_of(CHECK, tuple(evidence.judge().values())) is Verdict.PASS


DEFECTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("rows_exact", "long", "remote", {"rows": OTHER_TAG}),
    ("rows_exact", "long", "remote", {"ids": OTHER_TAG}),
    ("rows_exact", "long", "remote", {"out_of_shard": 77}),
    ("rows_exact", "long", "remote", {"replied": False}),
    ("fallback_exact", "server_killed", "local", {"rows": OTHER_TAG}),
    ("fallback_exact", "server_killed", "local", {"ids": OTHER_TAG}),
    ("fallback_exact", "server_killed", "local", {"out_of_shard": 77}),
    ("fallback_exact", "server_held", "local", {"rows": OTHER_TAG}),
    ("manifest_bound", "other_manifest", "local", {"rows": OTHER_TAG}),
    ("manifest_bound", "other_manifest", "local", {"replied": True}),
    ("manifest_bound", "other_manifest", "local", {"outcome": "remote", "reason": ""}),
]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("subcase", "request_name", "outcome", "changes"), DEFECTS)
def test_a_defect_in_one_lookup_fails_its_own_subcase_alone(
    subcase: str, request_name: str, outcome: str, changes: dict[str, Any], rank: int
) -> None:
    assert_flips(
        Evidence(CHECK),
        lambda evidence: change_one(evidence, ON, rank, reads(request_name, outcome), **changes),
        subcase,
    )


def test_a_lookup_that_failed_fails() -> None:
    failed = {"outcome": "failed", "reason": "", "rows": seen.NO_TAG}
    assert_flips(
        Evidence(CHECK),
        lambda evidence: change_one(evidence, ON, 1, reads("server_killed", "local", layer=7), **failed),
        "fallback_exact",
    )


def test_rows_that_the_local_shards_alone_did_not_give_fail() -> None:
    assert_flips(
        Evidence(CHECK),
        lambda evidence: change_one(
            evidence, OFF, 0, reads("long", "local"), outcome="failed", rows=seen.NO_TAG
        ),
        "rows_exact",
    )


def test_a_server_of_another_manifest_that_was_opened_fails_also_without_a_row_from_it() -> None:
    evidence = Evidence(CHECK)
    evidence.change(ON, 1, refusals, status="open", refused="", offered="")
    assert evidence.found() == {
        "rows_exact": Found.PASSED,
        "fallback_exact": Found.PASSED,
        "manifest_bound": Found.FAILED,
    }


@pytest.mark.parametrize("changes", [{"offered": ""}, {"refused": "shape"}, {"offered": "ab" * 32}])
def test_a_refusal_that_does_not_name_another_identity_is_none(changes: dict[str, str]) -> None:
    evidence = Evidence(CHECK)
    assert next(record for record in evidence.records(ON) if refusals(record)).offered == FOREIGN
    assert_not_seen(evidence.change(ON, 0, refusals, **changes), "manifest_bound")


@pytest.mark.parametrize(
    ("action", "moment", "subcase"),
    [
        ("server_killed", "struck", "fallback_exact"),
        ("server_killed", "released", "fallback_exact"),
        ("server_held", "held", "fallback_exact"),
        ("server_held", "released", "fallback_exact"),
        ("other_manifest", "released", "manifest_bound"),
    ],
)
def test_a_fault_that_did_not_happen_shows_nothing(action: str, moment: str, subcase: str) -> None:
    assert_not_seen(Evidence(CHECK).drop(ON, 0, struck(action, moment)), subcase)


@pytest.mark.parametrize(
    ("request_name", "subcase"),
    [
        ("server_killed", "fallback_exact"),
        ("server_held", "fallback_exact"),
        ("other_manifest", "manifest_bound"),
    ],
)
def test_a_server_that_is_never_met_again_shows_nothing(request_name: str, subcase: str) -> None:
    evidence = Evidence(CHECK)
    for layer in (3, 7):
        evidence.change(
            ON, 1, reads(request_name, "remote", layer), outcome="local", reason="lost", replied=False
        )
    found = evidence.judge()
    assert found[subcase].found is Found.NOT_SEEN
    assert all(each.found is not Found.FAILED for each in found.values())


def test_a_reply_that_was_never_late_shows_no_fallback() -> None:
    evidence = Evidence(CHECK)
    for rank in (0, 1):
        evidence.change(ON, rank, reads("server_held", "local"), reason="lost")
    assert_not_seen(evidence, "fallback_exact")


def test_a_platform_without_tables_shows_nothing_and_says_so() -> None:
    evidence = Evidence(CHECK, Platform(tables=False))
    assert_not_seen(evidence, *SUBCASES)
    assert all("does not show engram_tables" in each.why for each in evidence.judge().values())
    assert verdict_of(CHECK, tuple(evidence.judge().values())) is Verdict.NOT_RUN


def one_request_more(evidence: Evidence) -> None:
    """Completed in both arms, for which no rows were looked up."""
    for arm in (OFF, ON):
        more = seen.Completed("tables.more", 1, 1, "length", seen.NO_TAG)
        evidence.put(arm, HARNESS, [*evidence.records(arm, HARNESS), more])


Spoil = Callable[[Evidence], object]
UNUSABLE: dict[str, tuple[str, Spoil]] = {
    "a lookup is missing": (
        "do not count on",
        lambda evidence: evidence.drop(
            ON, 1, lambda record: isinstance(record, seen.TableRead) and record.lookup == 4
        ),
    ),
    "a lookup is told twice": (
        "a layer is twice",
        lambda evidence: evidence.put(
            ON,
            1,
            [
                record
                for record in evidence.records(ON, 1)
                for _ in range(1 + reads("long", "remote")(record))
            ],
        ),
    ),
    "other rows were looked up": (
        "different work",
        lambda evidence: change_one(evidence, ON, 0, reads("long", "remote"), n_rows=3),
    ),
    "of another step": (
        "a step before",
        lambda evidence: change_one(evidence, ON, 0, reads("server_killed", "remote", 7), step=1),
    ),
    "of two checks": (
        "of two checks",
        lambda evidence: change_one(
            evidence, ON, 0, reads("long", "remote"), requests=("tables.long", "early.long")
        ),
    ),
    "a request that nobody looked rows up for": (
        "not both",
        one_request_more,
    ),
    "tables of another manifest in one arm": (
        "different manifests",
        lambda evidence: [
            evidence.change(ON, rank, lambda record: isinstance(record, seen.TableOpened), identity="12" * 32)
            for rank in (0, 1)
        ],
    ),
    "another rank's shards": (
        "not those of a remote arm",
        lambda evidence: evidence.change(ON, 1, lambda record: isinstance(record, seen.TableOpened), rank=0),
    ),
    "no server in ON": (
        "not those of a remote arm",
        lambda evidence: evidence.change(
            ON, 0, lambda record: isinstance(record, seen.TableOpened), source="local"
        ),
    ),
    "nothing of its tables": (
        "no record of its tables",
        lambda evidence: evidence.drop(OFF, 0, lambda record: isinstance(record, seen.TableOpened)),
    ),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_torn_evidence_and_evidence_of_different_work_is_not_judged(how: str) -> None:
    said, spoil = UNUSABLE[how]
    evidence = Evidence(CHECK)
    spoil(evidence)
    with pytest.raises(EvidenceError, match=said):
        evidence.judge()
