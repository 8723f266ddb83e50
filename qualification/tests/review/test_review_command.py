"""`qualify review`: what it needs, what it refuses, and that it always leaves a page about runs that it could read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from qualification.receipts.keys import public_pem
from qualification.subjects import SUBJECTS_FORMAT, SubjectsFile
from qualification.subjects import text as subjects_text
from receipt_corpus import sound
from receipt_corpus.bench import Bench

from qualification import cli

POLICIES = Path(__file__).parents[2] / "policies"
Qualify = Callable[..., Result]


@pytest.fixture
def review(tmp_path: Path) -> Qualify:
    """Runs the command on a sound run, into page.html."""
    Bench.make(tmp_path / "runs" / "run-1")
    (tmp_path / "pub.pem").write_bytes(public_pem(sound.PRIVATE_KEY))
    bits = SubjectsFile(format=SUBJECTS_FORMAT, subjects=sound.SUBJECTS)
    (tmp_path / "subjects.json").write_text(subjects_text(bits))
    out = ["--key", tmp_path / "pub.pem", "--out", tmp_path / "page.html"]
    words = ["review", tmp_path / "runs", *out]
    return lambda *more: CliRunner().invoke(cli.main, [str(word) for word in (*words, *more)])


def test_a_page_is_written_and_the_command_says_how_many_runs_verify(tmp_path: Path, review: Qualify) -> None:
    result = review()
    assert (result.exit_code, result.output) == (0, f"{tmp_path / 'page.html'}: 1 of 1 runs verify\n")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("policy", sorted(POLICIES.glob("*.toml")), ids=lambda path: path.stem)
def test_each_policy_that_is_delivered_holds_the_corpus(
    tmp_path: Path, review: Qualify, policy: Path
) -> None:
    bits = tmp_path / "subjects.json"
    result = review("--policy", policy, "--subjects", bits, "--production", bits)
    assert result.exit_code == 0
    assert ">HOLD</strong>" in (tmp_path / "page.html").read_text()


def test_a_run_that_does_not_verify_still_gets_its_page(tmp_path: Path, review: Qualify) -> None:
    (tmp_path / "runs" / "run-1" / "complete.json").unlink()
    result = review()
    assert (result.exit_code, result.output) == (0, f"{tmp_path / 'page.html'}: 0 of 1 runs verify\n")
    assert "NOT VERIFIED" in (tmp_path / "page.html").read_text()


def test_a_run_whose_name_is_no_text_gets_its_page_too(tmp_path: Path, review: Qualify) -> None:
    run = tmp_path / "runs" / "run-1"
    run = run.rename(os.fsdecode(bytes(run) + b"-\xff"))
    (run / "complete.json").unlink()
    result = review("--out", os.fsdecode(bytes(tmp_path) + b"/\xfe.html"))
    assert (result.exit_code, result.exception) == (0, None), result.output
    assert result.output.endswith("\\udcfe.html: 0 of 1 runs verify\n")
    (page,) = tmp_path.glob("*.html")
    assert "run-1-\\udcff/complete.json" in page.read_text()
    verified = CliRunner().invoke(cli.main, ["verify", str(run), "--key", str(tmp_path / "pub.pem")])
    assert verified.exit_code == 1
    assert "run-1-\\udcff/complete.json: [incomplete]" in verified.output


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--policy", POLICIES / "overlay-version.toml"], "--policy needs --subjects"),
        (["--subjects", "nowhere.json"], "nowhere.json cannot be read"),
        (["--key", "nowhere.pem"], "nowhere.pem"),
        (["--out", "nowhere/page.html"], "nowhere/page.html"),
    ],
)
def test_input_that_cannot_be_used_ends_with_2_and_no_page(
    tmp_path: Path, review: Qualify, more: list[object], told: str
) -> None:
    result = review(*more)
    assert result.exit_code == 2
    assert told in result.output
    assert not (tmp_path / "page.html").exists()
