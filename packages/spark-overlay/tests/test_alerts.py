"""The shipped alert rules: they name metrics that exist, fire when they should, and are all documented."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from spark_overlay.cli import main
from spark_overlay.metrics_command import exposition
from spark_overlay.report import write_json
from spark_overlay.settings import Settings

RULES = (
    resources.files("spark_overlay").joinpath("alerts", "spark-overlay.rules.yml").read_text(encoding="utf-8")
)
RULE_TESTS = Path(__file__).parent / "alerts" / "spark-overlay.test.yml"
POLICIES = get_args(Settings.model_fields["policy"].annotation)
DOCUMENTATION = Path(__file__).parents[3] / "docs/operations/alerts.md"
ALERTS: list[dict[str, Any]] = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in ALERTS}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus has it)"
)


def promtool(*arguments: str, text: str | None = None) -> None:
    """Run it; what it says is the failure."""
    done = subprocess.run(
        ["promtool", *arguments], check=False, input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def expositions(tmp_path: Path, make_run: Callable[..., Any]) -> list[str]:
    """What the exporter says of a real run in each policy."""
    texts = []
    for policy in POLICIES:
        path = tmp_path / f"{policy}.json"
        write_json(path, make_run(POLICY=policy).eventful().stats())
        text, problem = exposition(path)
        assert problem == ""
        texts.append(text)
    return texts


def used(expression: str) -> Iterator[tuple[str, str, set[str]]]:
    """Every metric of an expression with each label that it selects by: (metric, label, values); label "" for none."""
    for metric, selector in re.findall(r"(spark_overlay_\w+)(?:\{([^}]*)\})?", expression):
        yield metric, "", set()
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            yield metric, label, set(values.split("|"))


def test_every_metric_and_label_value_in_the_rules_is_one_that_the_exporter_gives(
    expositions: list[str],
) -> None:
    given: dict[str, set[tuple[str, str]]] = {}
    for text in expositions:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                given.setdefault(sample.name, set()).update(sample.labels.items())
    assert EXPRESSIONS
    for alert, expression in EXPRESSIONS.items():
        found = list(used(expression))
        assert found, alert
        for metric, label, values in found:
            assert metric in given, alert
            assert {(label, text) for text in values} <= given[metric], alert


@pytest.mark.parametrize("rule", ALERTS, ids=EXPRESSIONS)
def test_every_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"] in [{"severity": severity} for severity in ("critical", "warning", "info")]
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description"}
    assert re.search(r" What to do: \S.*\.$", annotations["description"])
    labels = {"instance", "endpoint", "from"}
    assert set(re.findall(r"\$labels\.(\w+)", "".join(annotations.values()))) <= labels


def test_every_alert_is_documented_with_its_severity() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    sections = re.findall(r"^### (SparkOverlay\w+)\n\n\*(\w+)[.;]", text, flags=re.MULTILINE)
    assert sections == [(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS], (
        "the same order as well"
    )


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    fires = {
        name
        for case in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
        for expected in case["promql_expr_test"]
        if "firing" in expected["expr"]
        for sample in expected["exp_samples"]
        for name in re.findall(r"SparkOverlay\w+", sample.get("labels", "") + expected["expr"])
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


@needs_promtool
def test_prometheus_finds_nothing_to_say_about_the_metrics(expositions: list[str]) -> None:
    for text in expositions:
        promtool("check", "metrics", text=text)
