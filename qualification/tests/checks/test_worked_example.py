"""The check that docs/qualification.md shows is one: it passes, fails for its defect, and does not pass vacuously."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import Check, Engine, Found, Prompt
from qualification.checks.registry import all_checks
from synthetic_evidence import ON, Evidence, assert_flips, assert_not_seen, of_step, steps_of
from synthetic_parts import Platform

PAGE = Path(__file__).parents[3] / "docs" / "qualification.md"
LONG = "early.long"


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """The page's own, from its only block of Python."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("example") / "worked_example.py"
    path.write_text(block)
    spec = importlib.util.spec_from_file_location("worked_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["worked_example"] = module
    spec.loader.exec_module(module)
    made = module.CHECK
    assert isinstance(made, Check)
    return made


def test_it_passes_where_all_is_right(check: Check) -> None:
    assert set(Evidence(check).found().values()) == {Found.PASSED}


def test_it_fails_for_a_draft_that_leaves_too_early(check: Check) -> None:
    def too_early(evidence: Evidence) -> None:
        step = steps_of(evidence, ON, LONG)[0][0]
        evidence.change(ON, 0, of_step(seen.Published, step), drafts=("a" * 32,))

    assert_flips(Evidence(check), too_early, "nothing_before_it")


def test_it_does_not_pass_where_nothing_is_read_on_or_drafted(check: Check) -> None:
    evidence = Evidence(check)
    evidence.change(ON, 0, lambda record: isinstance(record, seen.Published), drafts=(seen.NO_TAG,))
    assert_not_seen(evidence, "drafts_after_it")
    whole = Evidence(check, Platform(budget=192), drive=_short)
    assert_not_seen(whole, "nothing_before_it")


def test_every_check_that_runs_is_in_the_pages_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(rows) == [check.name for check in all_checks() if not check.missing]


def _short(engine: Engine) -> None:
    engine.submit(LONG, Prompt(20, seed=1), 8)
    engine.run()
