"""What the page says of runs that verify and of those that do not, and that nobody's text becomes part of it."""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pages import Page, page_of
from qualification.checks.model import Found
from qualification.checks.registry import all_checks
from qualification.gate import judge_gate, known_checks
from qualification.policy import Policy
from qualification.receipts import ReceiptError, verify_run
from qualification.receipts.errors import printable
from qualification.review.gather import gather
from qualification.review.page import Asked
from qualification.subjects import SUBJECTS_FORMAT, SubjectsFile
from receipt_corpus import sound
from receipt_corpus.bench import Bench

Break = Callable[[Bench], object]
VERDICTS = {"PASS", "FAIL", "NOT RUN", "HOLD"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path / "runs" / "run-1")


def folder_of(bench: Bench) -> Path:
    return bench.root.parent


def evidence_changed(bench: Bench) -> None:
    path = bench.root / bench.predicate()["evidence"][0]["path"]
    path.write_bytes(path.read_bytes() + b"\n")


def killed(bench: Bench) -> None:
    (bench.root / "complete.json").unlink()


def receipt_forged(bench: Bench) -> None:
    path = next((bench.root / "receipts").iterdir())
    path.write_bytes(path.read_bytes().replace(b"A", b"B", 1))


def verdict_turned(bench: Bench) -> None:
    bench.predicate(1)["verdict"] = "PASS"
    bench.publish()


BREAKS: list[Break] = [evidence_changed, killed, receipt_forged, verdict_turned]


def test_a_sound_run_is_shown_with_every_verdict_subcase_and_reason(bench: Bench) -> None:
    page = page_of(folder_of(bench))
    assert {"PASS", "FAIL", "NOT RUN", "verified"} <= page.verdicts
    assert "not verified" not in page.verdicts
    run = verify_run(bench.root, sound.KEY)
    for receipt in run.receipts:
        predicate = receipt.predicate
        said = [
            predicate.check.name,
            receipt.digest,
            *predicate.notes,
            *(one.why for one in predicate.conclusions),
        ]
        said += [file.sha256 for file in predicate.evidence]
        said += [subject.digest.sha256 for subject in receipt.statement.subject]
        assert [text for text in said if text not in page.plain] == []
    for check in all_checks():
        assert check.name in page.plain


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_run_that_does_not_verify_shows_every_violation_and_no_verdict(bench: Bench, broken: Break) -> None:
    broken(bench)
    with pytest.raises(ReceiptError) as refused:
        verify_run(bench.root, sound.KEY)
    page = page_of(folder_of(bench))
    assert "NOT VERIFIED" in page.plain
    assert "NO EVIDENCE THAT COUNTS" in page.plain
    assert not VERDICTS & page.verdicts
    for violation in refused.value.violations:
        assert violation.sentence in page.plain
        assert violation.rule in page.plain


def test_a_bad_run_beside_a_good_one_takes_no_verdict_from_it(bench: Bench) -> None:
    other = Bench.make(folder_of(bench) / "run-2", run_id="run-2", counter=900)
    killed(other)
    page = page_of(folder_of(bench))
    assert "1 of 2 runs do not verify" in page.plain
    assert page.words.count("? not verified") == 1 + len(
        {*(c.name for c in all_checks()), *sound.KNOWN_NAMES}
    )
    assert "PASS" in page.verdicts


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "NOTHING TO REVIEW" in page.plain
    assert not VERDICTS & page.verdicts


def test_runs_that_contradict_each_other_are_conflicts(bench: Bench) -> None:
    Bench.make(folder_of(bench) / "run-2", run_id="run-2", counter=900, found=Found.PASSED)
    page = page_of(folder_of(bench))
    assert "Runs that verify contradict each other." in page.plain
    assert "run run-2 says PASS, run run-1 says FAIL" in page.plain
    assert "NOT VERIFIED" in page.plain


@pytest.mark.parametrize(("started", "word"), [(sound.native, "NATIVE"), (sound.simulated, "REHEARSAL")])
def test_the_evidence_class_is_said_out_loud(tmp_path: Path, started: Any, word: str) -> None:
    Bench.make(tmp_path / "run-1", started=started)
    page = page_of(tmp_path)
    assert f">{word}</strong>" in page.html
    assert ("can never promote" in page.plain) == (word == "REHEARSAL")


def test_native_and_rehearsed_runs_side_by_side_are_native_in_part(bench: Bench) -> None:
    Bench.make(folder_of(bench) / "run-2", run_id="run-2", counter=900, started=sound.simulated)
    page = page_of(folder_of(bench))
    assert ">NATIVE IN PART</strong>" in page.html
    assert "can never promote" in page.plain


def asked(bench: Bench, required: tuple[str, ...]) -> Asked:
    """A policy over the corpus, judged."""
    policy = Policy.model_validate_json(
        json.dumps(
            {
                "format": "urn:spark-offload:qualification:policy:v1",
                "name": "corpus",
                "promotion": "The corpus is promoted.",
                "evidence_class": "native",
                "minimum_counter": sound.FIRST_COUNTER,
                "required_checks": required,
                "required_subjects": ["wheel"],
                "thresholds": [],
                "platform": {
                    "engine": "vllm",
                    "engine_versions": ["0.33.0"],
                    "devices": ["NVIDIA GB10"],
                    "ranks": [1, 2],
                    "transports": ["tcp"],
                },
            }
        )
    )
    bits = SubjectsFile(format=SUBJECTS_FORMAT, subjects=sound.SUBJECTS)
    gathered = gather(folder_of(bench), sound.KEY)
    known = known_checks() | known_checks(sound.CHECKS)
    return Asked("runs", judge_gate(policy, bits, gathered.verified, gathered.refused, known=known))


def test_the_headline_is_the_gates_word(bench: Bench) -> None:
    promote = page_of(folder_of(bench), asked(bench, ("alpha_passes", "echo_ranks")))
    assert ">PROMOTE</strong>" in promote.html
    hold = page_of(folder_of(bench), asked(bench, ("alpha_passes", "bravo_fails")))
    assert ">HOLD</strong>" in hold.html
    assert "verdict is FAIL" in hold.plain
    unjudged = page_of(folder_of(bench))
    assert "PROMOTE" not in unjudged.plain


def test_no_headline_says_promote_where_a_run_does_not_verify(bench: Bench) -> None:
    judged = asked(bench, ("alpha_passes", "echo_ranks"))
    killed(bench)
    page = page_of(folder_of(bench), judged)
    assert "PROMOTE" not in page.plain
    assert ">NOT VERIFIED</strong>" in page.html


def test_what_differs_from_production_is_told_by_name(bench: Bench) -> None:
    names = [subject.name for subject in sound.SUBJECTS]
    digests = {subject.name: subject.digest.sha256 for subject in sound.SUBJECTS}
    serving = {names[0]: digests[names[0]], names[1]: "a" * 64, "checkpoint:old": "b" * 64}
    page = page_of(folder_of(bench), Asked("runs", production=serving))
    assert {"same", "differs", "not in production", "only in production"} <= page.verdicts
    assert "a" * 64 in page.plain
    assert "b" * 64 in page.plain


def test_whose_key_a_run_verified_with_is_told(bench: Bench) -> None:
    assert page_of(folder_of(bench)).plain.count(sound.KEY.keyid) == 1


# --- form --------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_can_be_walked_by_keyboard(bench: Bench) -> None:
    page = page_of(folder_of(bench))
    assert page.wrong == []
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert [link for link in page.links if link.removeprefix("#") not in page.ids] == []
    assert page.links[0] == "#main"
    assert page.headers_without_scope == 0
    tags = {tag for tag, _ in page.elements}
    assert {"header", "nav", "main", "footer", "h1", "h2", "caption", "summary"} <= tags
    regions = [names for tag, names in page.elements if tag == "div" and "role" in names]
    assert all({"aria-label", "tabindex"} <= set(names) for names in regions)


def test_the_page_loads_nothing_and_runs_nothing(bench: Bench) -> None:
    page = page_of(folder_of(bench))
    assert not {"script", "link", "img", "iframe", "object", "embed", "form"} & {
        tag for tag, _ in page.elements
    }
    attributes = {name for _, names in page.elements for name in names}
    assert not {name for name in attributes if name.startswith("on") or name in ("src", "action")}
    assert all(link.startswith("#") for link in page.links)
    loads = re.findall(r"(?:url\(|@import|https?:)[^\s\"')]*", page.html.replace("http://www.w3.org/", ""))
    assert [found for found in loads if not found.startswith("url(#")] == []
    assert "default-src 'none'" in page.html


# --- text from outside ---------------------------------------------------------------------------------------

EVIL = (
    "<script>alert(1)</script>",
    "</details><h1>PASS</h1>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "&lt;",
)
LINES = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=60)
TEXTS = st.one_of(st.sampled_from(EVIL), LINES)


def with_text(root: Path, text: str) -> Page:
    """The page of a run whose receipts say this wherever they may say anything."""
    shutil.rmtree(root, ignore_errors=True)
    bench = Bench.make(root / "run-1")
    for place in range(len(bench.statements)):
        predicate = bench.predicate(place)
        predicate["notes"] = [text]
        predicate["arm_variable"] = text
        for one in predicate["conclusions"]:
            one["why"] = text
        for subcase in predicate["check"]["subcases"]:
            subcase["asks"] = text
        bench.statements[place]["subject"][0]["name"] = f"engine:{text}"
        bench.redeclare(place)
    bench.publish()
    verify_run(bench.root, sound.KEY)
    return page_of(root)


@cache
def plain_page(root: Path) -> Page:
    return with_text(root / "plain", "plain")


@given(text=TEXTS)
@example(text="\u00a0")
def test_text_in_receipts_never_becomes_an_element(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "texts"
    evil, plain = with_text(folder / "evil", text), plain_page(folder)
    assert evil.elements == plain.elements
    assert evil.wrong == []
    assert evil.links == plain.links
    assert printable(text) in evil.plain


@pytest.mark.parametrize("name", ["<script>alert(1)<", "a&b\"c'd", "{{ runs }}"])
def test_names_of_folders_and_files_never_become_elements(tmp_path: Path, name: str) -> None:
    for folder in (name, "plain"):
        bench = Bench.make(tmp_path / folder.replace("/", "") / folder)
        (bench.root / name).write_text("a stranger")
        killed(bench)
    evil, plain = (page_of(tmp_path / folder, Asked(folder)) for folder in (name, "plain"))
    assert evil.elements == plain.elements
    assert name in evil.plain
