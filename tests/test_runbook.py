"""The runbook has a section for every alert that the packages ship and a row for every end of an RDMA connection, says
what each needs, and names what exists.
"""

import pkgutil
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OPERATIONS = ROOT / "docs" / "operations"
RULES = (
    ROOT / "packages" / "spark-overlay" / "src" / "spark_overlay" / "alerts" / "spark-overlay.rules.yml",
    ROOT / "packages" / "engram-remote" / "src" / "engram_remote" / "server" / "engram-remote.rules.yml",
)
RUNBOOK = (OPERATIONS / "runbook.md").read_text(encoding="utf-8")
ALERT = re.compile(r"\b(?:SparkOverlay|Engram[A-Z])\w+")
COMMAND = re.compile(r"\b(spark-overlay|x86-worker|engram-remote|ofl) ([a-z][a-z-]+)")


def alerts() -> list[str]:
    groups = [
        group for rules in RULES for group in yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    ]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def sections() -> dict[str, str]:
    """Text by title, of level two."""
    parts = re.split(r"^## (.+)$", RUNBOOK, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_alert_has_a_section_in_the_rules_order_and_no_other_has() -> None:
    assert [title for title in sections() if ALERT.match(title)] == alerts()


@pytest.mark.parametrize("alert", alerts())
def test_a_section_says_what_the_alert_means_what_to_read_and_what_to_do(alert: str) -> None:
    found = re.findall(r"^\*\*(\w+):\*\* \S", sections()[alert], flags=re.MULTILINE)
    assert found == ["Means", "Read", "Do"]


def test_an_alert_that_is_named_elsewhere_exists() -> None:
    assert set(ALERT.findall(RUNBOOK)) == set(alerts())


def test_every_status_of_a_broken_rdma_connection_is_explained_and_no_other() -> None:
    source = (ROOT / "packages" / "ofl-transport" / "cpp" / "rdma_status.cpp").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", sections()["How an RDMA connection broke"], flags=re.MULTILINE
    )
    assert rows == re.findall(r"case (\w+):", source)
    assert len(rows) > 10


def test_every_command_that_is_named_exists() -> None:
    from engram_remote.cli import COMMANDS as TABLE_COMMANDS
    from ofl import commands
    from spark_overlay.cli import COMMANDS as OVERLAY_COMMANDS
    from x86_worker.cli import main as worker

    ofl_commands = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    known = {
        "spark-overlay": set(OVERLAY_COMMANDS),
        "x86-worker": set(worker.commands),
        "engram-remote": set(TABLE_COMMANDS),
        "ofl": ofl_commands,
    }
    named = set(COMMAND.findall(RUNBOOK))
    assert len(named) > 8
    assert {f"{program} {name}" for program, name in named if name not in known[program]} == set()


def test_settings_and_links_that_are_named_exist() -> None:
    pages = (OPERATIONS / "settings.md", OPERATIONS.parent / "engram" / "settings.md")
    settings = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"VLLM_(?:DSPARK|ENGRAM)_REMOTE\w*", RUNBOOK))
    targets = re.findall(r"\]\(([^)#]+)", RUNBOOK)
    assert named, "the runbook names settings"
    assert targets, "and other pages"
    assert {name for name in named if f"`{name}`" not in settings} == set()
    for target in targets:
        assert (OPERATIONS / target).is_file(), target
