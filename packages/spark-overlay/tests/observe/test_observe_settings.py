"""The settings of observation: none without the switch, and a sentence for whatever is wrong, without the key."""

from pathlib import Path

import pytest
from spark_overlay.docs import parts
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.settings import SettingsError, settings_table

KEY = "5e" * 32
DOCS = Path(__file__).parents[4] / "docs/operations"


def environ(folder: Path, **changes: str) -> dict[str, str]:
    good = {"VLLM_DSPARK_OBSERVE": str(folder), "VLLM_DSPARK_OBSERVE_KEY": KEY}
    return good | {f"VLLM_DSPARK_OBSERVE_{name}": text for name, text in changes.items()}


@pytest.mark.parametrize("switch", [{}, {"VLLM_DSPARK_OBSERVE": ""}])
def test_without_the_switch_there_are_no_settings(switch: dict[str, str]) -> None:
    assert ObserveSettings.from_environ({"VLLM_DSPARK_OBSERVE_KEY": "nonsense"} | switch) is None


def test_everything_can_be_given(tmp_path: Path) -> None:
    plan = tmp_path / "plan.jsonl"
    settings = ObserveSettings.from_environ(environ(tmp_path, ARM="remote", FAULT_PLAN=str(plan)))
    assert settings is not None
    assert (settings.folder, settings.arm, settings.fault_plan) == (tmp_path, "remote", plan)
    assert settings.key_bytes == bytes.fromhex(KEY)
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"KEY": "5e" * 31}, "VLLM_DSPARK_OBSERVE_KEY: 64 hex digits are needed."),
        ({"KEY": "zz" * 32}, "VLLM_DSPARK_OBSERVE_KEY: 64 hex digits are needed."),
        ({"KEY": ""}, "VLLM_DSPARK_OBSERVE_KEY: it must be set."),
        ({"FAULT_PLAN": "/nowhere/plan"}, "VLLM_DSPARK_OBSERVE_FAULT_PLAN: /nowhere is not a folder."),
        (
            {"FAULTPLAN": "x"},
            "VLLM_DSPARK_OBSERVE_FAULTPLAN: no such setting; did you mean VLLM_DSPARK_OBSERVE_FAULT_PLAN?",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_name(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        ObserveSettings.from_environ(environ(tmp_path, **changes))
    assert refusal.value.problems == [said]
    assert "zz" not in str(refusal.value)
    assert "5e5e" not in str(refusal.value)


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"VLLM_DSPARK_OBSERVE: .*gone is not a folder"):
        ObserveSettings.from_environ(environ(tmp_path / "gone"))


def test_the_documentation_lists_exactly_these_settings() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    made = settings_table(ObserveSettings)
    assert parts()["settings.md"]["observation"] == made
    assert text.split("<!-- begin observation -->\n")[1].split("<!-- end observation -->")[0] == made
