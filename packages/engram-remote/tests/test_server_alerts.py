"""The shipped alert rules: they name metrics that a server exports, fire when they should, and are all documented."""

import re
import shutil
import subprocess
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from engram_process import serving
from engram_remote.cli import main
from engram_remote.commands.alerts import RULES as NAME
from engram_service import built
from engram_tables import tiny_checkpoint
from prometheus_client.parser import text_string_to_metric_families

RULES = resources.files("engram_remote.server").joinpath(NAME).read_text(encoding="utf-8")
RULE_TESTS = Path(__file__).parent / "alerts" / "engram-remote.test.yml"
DOCS = Path(__file__).parents[3] / "docs"
SERVER_PAGE = (DOCS / "engram" / "server.md").read_text(encoding="utf-8")
ALERTS: list[dict[str, Any]] = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in ALERTS}
SCRAPED = ("up", "job", "engram-remote")
"""What Prometheus itself says of a target; the job has the name that the page gives it."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus has it)"
)


def promtool(*arguments: str) -> None:
    """Run it; what it says is the failure."""
    done = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def used(expression: str) -> set[tuple[str, str, str]]:
    """Every metric of an expression with each label value that it selects by; "" and "" for the metric alone."""
    found = set()
    for metric, selector in re.findall(r"\b(engram_\w+|up)\b(?:\{([^}]*)\})?", expression):
        found.add((metric, "", ""))
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            found |= {(metric, label, value) for value in values.split("|")}
    return found


def test_every_metric_and_label_value_in_the_rules_is_one_that_a_server_exports(tmp_path: Path) -> None:
    tables = built(tiny_checkpoint(tmp_path / "model", smallest=60), tmp_path / "tables")
    with serving(tables, tmp_path, "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0") as one:
        url = f"http://{one.ready()['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            text = page.read().decode()
    exported = {SCRAPED, ("up", "", "")}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            exported.add((sample.name, "", ""))
            exported |= {(sample.name, *label) for label in sample.labels.items()}
    assert EXPRESSIONS
    for alert, expression in EXPRESSIONS.items():
        assert used(expression), alert
        assert used(expression) <= exported, alert
        assert ("up", "", "") not in used(expression) or SCRAPED in used(expression), alert


def test_the_job_that_the_rules_name_is_the_one_of_the_page() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", SERVER_PAGE, re.DOTALL)
    [job] = [yaml.safe_load(block)["scrape_configs"][0] for block in blocks if "scrape_configs" in block]
    assert job["job_name"] == SCRAPED[-1]


@pytest.mark.parametrize("rule", ALERTS, ids=EXPRESSIONS)
def test_every_alert_says_how_bad_it_is_what_to_do_and_where_more_stands(rule: dict[str, Any]) -> None:
    assert rule["labels"] in [{"severity": severity} for severity in ("critical", "warning")]
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook"}
    assert re.search(r" What to do: \S.*\.$", annotations["description"])
    assert set(re.findall(r"\$labels\.(\w+)", "".join(annotations.values()))) <= {"instance", "status"}
    page, anchor = annotations["runbook"].removeprefix("docs/").split("#")
    titles = re.findall(r"^## (\w+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert rule["alert"] in titles
    assert anchor == rule["alert"].lower()


def test_the_page_and_the_runbook_have_every_alert_in_the_rules_order_and_no_other() -> None:
    rows = re.findall(r"^\| \[(Engram\w+)\]\(\S+\) \| (\w+) \|", SERVER_PAGE, re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS]
    runbook = (DOCS / "operations" / "runbook.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (Engram\w+)$", runbook, re.MULTILINE) == list(EXPRESSIONS)


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    fires = {
        name
        for case in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
        for expected in case["promql_expr_test"]
        if "firing" in expected["expr"]
        for sample in expected["exp_samples"]
        for name in re.findall(r"Engram\w+", sample.get("labels", ""))
    }
    assert fires == set(EXPRESSIONS)


def test_the_command_prints_the_rules() -> None:
    result = CliRunner().invoke(main, ["alerts"])
    assert (result.exit_code, result.stdout) == (0, RULES)


@needs_promtool
def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(RULES)
    promtool("check", "rules", str(path))


@needs_promtool
def test_alerts_fire_on_what_they_are_for_and_on_nothing_else() -> None:
    promtool("test", "rules", str(RULE_TESTS))
