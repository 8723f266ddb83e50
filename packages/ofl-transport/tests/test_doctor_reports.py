"""Doctor: reports of other hosts, whatever they hold."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from doctor_pair import DIGEST, Pair, pair_in
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ofl.doctor import peers, report
from ofl.doctor.findings import (
    BROKEN,
    Result,
    Verdict,
    judge_all,
)
from ofl.doctor.gather import Wanted, gather
from ofl.doctor.peers import PEER_CHECKS, ReportError, parse_report, read_report
from ofl.doctor.run import examine
from ofl.doctor.simulated import ENGINE, WORKER, healthy


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return pair_in(tmp_path)


# --- reports of other hosts ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no report"),
        ('{"format": 2, "facts": {"host": "a"}}', "format 1"),
        ('{"format": 1}', "facts.host"),
        ('{"format": 1, "facts": {"host": 5}}', "facts.host"),
    ],
)
def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "peer.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=r"peer\.json") as refused:
        read_report(path)
    assert words in str(refused.value)


def test_a_pipe_a_missing_file_and_a_giant_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "giant").write_bytes(b" " * (peers.REPORT_BYTES_MAX + 1))
    for name, words in (
        ("pipe", "regular file"),
        ("giant", "which no report has"),
        ("absent", "cannot be read"),
    ):
        with pytest.raises(ReportError, match=words):
            read_report(tmp_path / name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["ofl-transport", "dspark", "address", "remote", "mtu", "rdma", "way", "bind", "sha256"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
NAMES = ["packages", "contracts", "library", "identities", "alike", "links", "endpoint", "written_s", "role"]


@settings(max_examples=150, deadline=None)
@given(facts=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=len(NAMES)))
@example(facts={"library": {"sha256": "0"}})
def test_whatever_another_hosts_report_holds_no_check_breaks(
    facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = parse_report(json.dumps({"format": 1, "facts": facts | {"host": "h"}}).encode(), "x")
    ours = _OURS.setdefault("facts", _our_facts(tmp_path_factory))
    findings = judge_all(PEER_CHECKS, ours, theirs | {"path": "x", "arrived_s": time.time()})
    assert [finding for finding in findings if finding.repair == BROKEN] == []


_OURS: dict[str, Any] = {}


def _our_facts(folders: pytest.TempPathFactory) -> dict[str, Any]:
    if "facts" in _OURS:
        return dict(_OURS["facts"])
    host = healthy(folders.mktemp("host"), "spark-1", ENGINE)
    wanted = Wanted(endpoint=f"rdma://{WORKER}:1?bind={ENGINE}")
    alike = {"alike": {"a": "b"}, "identities": {"identity": DIGEST}}
    return gather(host, wanted) | alike


def test_a_link_is_found_from_either_end(pair: Pair) -> None:
    """The worker's doctor is given the engine's report, and compares the same link."""
    ours = gather(pair.worker, pair.worker_wanted())
    theirs = gather(pair.engine, pair.wanted())
    (found,) = [finding for finding in judge_all(PEER_CHECKS, ours, theirs) if finding.check == "peer-mtu"]
    assert found.result is Result.PASS
    assert found.seen == f"{WORKER} and {ENGINE}: 9000, RDMA 4096"


def test_the_workers_own_drafter_is_the_one_that_an_engine_is_told_to_name(pair: Pair) -> None:
    ours = {"host": "x86", "role": "worker", "identities": {"identity": "11" * 32}}
    theirs = {"host": "spark-1", "role": "engine", "identities": {"identity": "22" * 32}}
    assert f"={'11' * 32} on the engine's hosts" in _repair(peers.identities(ours, theirs))


def _repair(verdict: Verdict) -> str:
    return verdict.repair.format(**verdict.values)


def test_no_fact_holds_the_content_of_the_key(pair: Pair) -> None:
    pair.key.write_text("s3cr3t-" * 8)
    pair.key.chmod(0o600)
    facts, findings = examine(pair.engine, pair.wanted())
    assert "s3cr3t" not in json.dumps(report.document("ofl doctor", facts, findings))
