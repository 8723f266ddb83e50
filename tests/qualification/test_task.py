"""`./run qualify` is content with a gate that holds everything for not being native, and with nothing else."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from qualification.policy import read_policy

ROOT = Path(__file__).parents[2]
CHECKS = ("one", "two")


@pytest.fixture
def task() -> ModuleType:
    """tools/qualify.py, afresh."""
    spec = importlib.util.spec_from_file_location("qualify_task", ROOT / "tools" / "qualify.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(
    task: ModuleType, held: Sequence[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """The task's look at a gate that held these things."""
    said = {
        "promote": not held,
        "held": [{"about": about, "sentence": sentence} for about, sentence in held],
        "checks": [{"check": check} for check in CHECKS],
    }

    def qualify(*_: Any, statuses: tuple[int, ...] = (0,), quiet: bool = False) -> str:
        assert statuses == (1,), "a gate that promotes ends the task"
        return json.dumps(said)

    monkeypatch.setattr(task, "qualify", qualify)
    return lambda: task.gate(task.Place(Path("nowhere")), "simulator")


def test_a_gate_that_holds_every_check_for_not_being_native_is_what_is_wanted(
    task: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(task, [(check, task.NOT_NATIVE) for check in CHECKS], monkeypatch)()
    assert "HOLD" in capsys.readouterr().out


HELD = {
    "a check failed": [("one", "native?"), ("two", "native?"), ("two", "verdict is FAIL: it broke")],
    "a run does not verify": [("one", "native?"), ("two", "native?"), ("evidence", "[incomplete] ...")],
    "one check is native": [("one", "native?")],
    "nothing holds": [],
    "a check is held for another reason": [("one", "native?"), ("two", "no receipt")],
}


@pytest.mark.parametrize("how", HELD)
def test_anything_else_is_told(task: ModuleType, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    held = [(about, task.NOT_NATIVE if sentence == "native?" else sentence) for about, sentence in HELD[how]]
    with pytest.raises(task.QualifyError, match="something else than that nothing is native"):
        judged(task, held, monkeypatch)()


@pytest.mark.parametrize("platform", ["simulator", "cpu"])
def test_the_policies_of_rehearsals_can_be_used_and_ask_for_native_evidence(platform: str) -> None:
    policy = read_policy(ROOT / "qualification" / "platforms" / f"{platform}.policy.toml")
    assert policy.evidence_class == "native"
    assert len(policy.required_checks) >= 5
