"""The runbook has a section for every alert that the package ships, says what each needs, and names what exists."""

import pkgutil
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OPERATIONS = ROOT / "docs" / "operations"
RULES = ROOT / "packages" / "spark-overlay" / "src" / "spark_overlay" / "alerts" / "spark-overlay.rules.yml"
RUNBOOK = (OPERATIONS / "runbook.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"\b(spark-overlay|x86-worker|ofl) ([a-z][a-z-]+)")


def alerts() -> list[str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def sections() -> dict[str, str]:
    """Text by title, of level two."""
    parts = re.split(r"^## (.+)$", RUNBOOK, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_alert_has_a_section_in_the_rules_order_and_no_other_has() -> None:
    assert [title for title in sections() if title.startswith("SparkOverlay")] == alerts()


@pytest.mark.parametrize("alert", alerts())
def test_a_section_says_what_the_alert_means_what_to_read_and_what_to_do(alert: str) -> None:
    found = re.findall(r"^\*\*(\w+):\*\* \S", sections()[alert], flags=re.MULTILINE)
    assert found == ["Means", "Read", "Do"]


def test_an_alert_that_is_named_elsewhere_exists() -> None:
    assert set(re.findall(r"SparkOverlay\w+", RUNBOOK)) == set(alerts())


def test_every_command_that_is_named_exists() -> None:
    from ofl import commands
    from spark_overlay.cli import COMMANDS as OVERLAY_COMMANDS
    from x86_worker.cli import main as worker

    ofl_commands = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    known = {"spark-overlay": set(OVERLAY_COMMANDS), "x86-worker": set(worker.commands), "ofl": ofl_commands}
    named = set(COMMAND.findall(RUNBOOK))
    assert len(named) > 8
    assert {f"{program} {name}" for program, name in named if name not in known[program]} == set()


def test_settings_and_links_that_are_named_exist() -> None:
    settings = (OPERATIONS / "settings.md").read_text(encoding="utf-8")
    assert all(name in settings for name in re.findall(r"VLLM_DSPARK_REMOTE\w*", RUNBOOK))
    for target in re.findall(r"\]\(([^)#]+)", RUNBOOK):
        assert (OPERATIONS / target).is_file(), target
