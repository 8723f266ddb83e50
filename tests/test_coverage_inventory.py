"""The coverage inventory: it is complete by the code's own definitions, and its check finds what is wrong with it."""

import ast
import contextlib
import importlib.util
import io
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import pytest
import yaml
from engram_remote import abi, native
from engram_remote.cli import COMMANDS as ENGRAM_COMMANDS
from engram_remote.cli import main as engram_command
from engram_remote.server.metrics import ServerCollector
from engram_remote.settings import NOT_OURS
from engram_remote.settings import Settings as EngramSettings
from ofl.contract.dspark_v1 import RowDtype
from ofl.contract.engram_v1 import Status as TableStatus
from prometheus_client.parser import text_string_to_metric_families
from spark_overlay.cli import main as command
from spark_overlay.figures import LATENCIES
from spark_overlay.interface import EngineFacts, LocalDrafts
from spark_overlay.link import LinkCounters
from spark_overlay.metrics import GROUPS
from spark_overlay.metrics_command import exposition
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.report import write_json
from spark_overlay.round import reasons
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import RoundRequest
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.settings import NOT_BUILT_YET, Settings
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker
from spark_overlay.vllm_seam.startup import report

ROOT = Path(__file__).parents[1]


def load_tool() -> ModuleType:
    """`tools` is no package."""
    spec = importlib.util.spec_from_file_location("check_coverage", ROOT / "tools" / "check_coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check_coverage = load_tool()

SOURCES = {
    "pyproject.toml": '[tool.pytest.ini_options]\ntestpaths = ["packages", "tests"]\n',
    "packages/a-b/tests/test_one.py": (
        "def test_fine(): ...\ndef test_cases(x): ...\ndef test_skips(): ...\ndef test_fails(): ...\n"
        "def test_broken(): ...\ndef test_idle(): ...\ndef test_checks(): ...\n"
        "class TestGroup:\n    def test_inner(self): ...\n"
    ),
    "packages/a-b/tests/seam/test_two.py": "def test_fine(): ...\n",
    "tests/seam/test_two.py": "def test_fine(): ...\n",
}
REPORT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite>
<testcase classname="packages.a-b.tests.test_one" name="test_fine"/>
<testcase classname="packages.a-b.tests.test_one" name="test_fine_too"/>
<testcase classname="packages.a-b.tests.test_one" name="test_cases[1-a]"/>
<testcase classname="packages.a-b.tests.test_one" name="test_cases[x::y]"/>
<testcase classname="packages.a-b.tests.test_one" name="test_skips"><skipped message="no GPU"/></testcase>
<testcase classname="packages.a-b.tests.test_one" name="test_checks"><skipped message="no promtool here"/></testcase>
<testcase classname="packages.a-b.tests.test_one" name="test_fails"><failure message="no"/></testcase>
<testcase classname="packages.a-b.tests.test_one" name="test_broken"><error message="no"/></testcase>
<testcase classname="packages.a-b.tests.test_one.TestGroup" name="test_inner"/>
<testcase classname="tests.seam.test_two" name="test_fine"/>
</testsuite></testsuites>"""
HEAD = "| Name | What it must do | Proof |\n|---|---|---|\n"


class Repository:
    """A few tests, the report of their run, and an inventory of the rows given."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in (SOURCES | {"report.xml": REPORT}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "docs/operations").mkdir(parents=True)

    def check(self, *rows: str, head: str = HEAD, reports: tuple[str, ...] = ("report.xml",)) -> list[str]:
        """What is printed, the summary last.  The exit status is 0 exactly where nothing comes before it."""
        text = "# Title\n\n" + head + "".join(f"{row}\n" for row in rows)
        (self.root / "docs/operations/coverage.md").write_text(text)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            arguments = ["--root", str(self.root), *(str(self.root / name) for name in reports)]
            status = check_coverage.main(arguments)
        lines = out.getvalue().splitlines()
        assert (status == 0) is (len(lines) == 1)
        return lines


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_rows_with_passed_tests_or_a_reason_are_counted(repository: Repository) -> None:
    assert repository.check(
        "| `a` | is so | `test_one.py::test_fine` |",
        "| `b`, `c` | are so | `test_one.py::test_cases`, `test_one.py::test_cases[x::y]` |",
        "| a behaviour | happens | `test_one.py::TestGroup::test_inner`, `tests/seam/test_two.py::test_fine` |",
        "| `d` | is not so | Excluded: it belongs to one image. |",
    ) == ["coverage: 4 rows, 3 proven by 5 tests, 1 excluded, 0 problems"]


@pytest.mark.parametrize(
    ("proof", "clause"),
    [
        ("`test_one.py::test_nothing`", "test_one.py::test_nothing does not exist"),
        ("`test_one.py::TestOther::test_inner`", "test_one.py::TestOther::test_inner does not exist"),
        ("`test_three.py::test_fine`", "test_three.py::test_fine names 0 files where one is needed"),
        ("`seam/test_two.py::test_fine`", "seam/test_two.py::test_fine names 2 files where one is needed"),
        ("`test_one.py::test_idle`", "test_one.py::test_idle was not run"),
        ("`test_one.py::test_cases[2]`", "test_one.py::test_cases[2] was not run"),
        ("`test_one.py::test_skips`", "test_one.py::test_skips was skipped"),
        ("`test_one.py::test_fails`", "test_one.py::test_fails failed"),
        ("`test_one.py::test_broken`", "test_one.py::test_broken failed"),
        ("`test_one.py::test_fine`, `test_one.py::test_fails`", "test_one.py::test_fails failed"),
        ("", "it has neither a test nor a reason for its exclusion"),
        ("test_one.py::test_fine", "it has neither a test nor a reason for its exclusion"),
        ("Excluded:", "it has neither a test nor a reason for its exclusion"),
        ("`test_one.py`", "it has neither a test nor a reason for its exclusion"),
        ("pending", "its proof is pending"),
        ("`test_one.py::test_fine`, pending: the other half", "its proof is pending"),
    ],
)
def test_each_kind_of_problem_is_one_line(repository: Repository, proof: str, clause: str) -> None:
    problem, summary = repository.check(f"| `a` | is so | {proof} |")
    assert problem == f"coverage: line 5: a: {clause}"
    assert summary.endswith(", 1 problems")
    assert "0 proven" in summary


def test_a_test_may_be_skipped_for_lack_of_the_program_that_its_row_names(repository: Repository) -> None:
    proof = "`test_one.py::test_fine`, `test_one.py::test_checks`"
    (summary,) = repository.check(f"| `a` | is so | {proof} (where there is promtool) |")
    assert summary == (
        "coverage: 1 rows, 1 proven by 2 tests (1 of them not run here, for lack of a program), 0 excluded, 0 problems"
    )
    for other in (
        proof,
        f"{proof} (where there is prom)",
        "`test_one.py::test_skips` (where there is promtool)",
    ):
        assert "was skipped" in repository.check(f"| `a` | is so | {other} |")[0]


def test_a_row_whose_tests_were_all_skipped_is_not_proven(repository: Repository) -> None:
    problem, _ = repository.check("| `a` | is so | `test_one.py::test_checks` (where there is promtool) |")
    assert problem == "coverage: line 5: a: all of its tests were skipped"


def test_a_test_that_failed_is_not_excused_by_a_program(repository: Repository) -> None:
    problem, _ = repository.check("| `a` | is so | `test_one.py::test_fails` (where there is promtool) |")
    assert problem.endswith("test_one.py::test_fails failed")


def test_a_row_that_says_nothing_of_what_must_hold_is_a_problem(repository: Repository) -> None:
    problem, _ = repository.check("| `a` | | `test_one.py::test_fine` |")
    assert problem == "coverage: line 5: a: it does not say what must hold"


def test_a_name_with_two_rows_is_a_problem(repository: Repository) -> None:
    problem, _ = repository.check(
        "| `a`, `b` | are so | `test_one.py::test_fine` |", "| `b` | is so | Excluded: no. |"
    )
    assert problem == "coverage: line 6: b has a row already, line 5"


@pytest.mark.parametrize(
    ("head", "rows", "clause"),
    [
        ("| Name | Proof |\n|---|---|\n", (), "line 3: a table's head is not"),
        (HEAD, ("| `a` | `test_one.py::test_fine` |",), "line 5: 2 columns where 3 are needed"),
        (HEAD, (), "the document has no rows"),
    ],
)
def test_a_table_that_cannot_be_read_is_a_problem_and_not_passed_over(
    repository: Repository, head: str, rows: tuple[str, ...], clause: str
) -> None:
    assert clause in repository.check(*rows, head=head)[0]


def test_a_report_that_is_missing_broken_or_empty_is_a_problem(repository: Repository) -> None:
    (repository.root / "broken.xml").write_text("<testsuites>")
    (repository.root / "empty.xml").write_text("<testsuites/>")
    row = "| `a` | is so | `test_one.py::test_fine` |"
    for name, clause in (("missing", "No such file"), ("broken", "no element found"), ("empty", "no test")):
        problem, _ = repository.check(row, reports=("report.xml", f"{name}.xml"))
        assert clause in problem


@pytest.mark.parametrize(
    ("other", "problems"),
    [
        ('<testcase classname="tests.seam.test_two" name="test_fine"><skipped/></testcase>', 0),
        ('<testcase classname="tests.seam.test_two" name="test_fine"><failure/></testcase>', 1),
    ],
    ids=["skipped there", "failed there"],
)
def test_of_two_reports_one_must_have_it_passed_and_none_failed(
    repository: Repository, other: str, problems: int
) -> None:
    (repository.root / "other.xml").write_text(f"<testsuites>{other}</testsuites>")
    for reports in (("report.xml", "other.xml"), ("other.xml", "report.xml")):
        lines = repository.check("| `a` | is so | `tests/seam/test_two.py::test_fine` |", reports=reports)
        assert len(lines) == problems + 1


def test_pytest_names_cases_in_its_reports_as_the_check_expects(tmp_path: Path) -> None:
    """A run of a real test file, parametrised, in a class, in a folder with a dash."""
    (tmp_path / "docs/operations").mkdir(parents=True)
    folder = tmp_path / "packages/with-dash/tests/deep"
    folder.mkdir(parents=True)
    config = '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\ntestpaths = ["packages"]\n'
    (tmp_path / "pyproject.toml").write_text(config)
    (folder / "test_real.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('text', ['a b', 'c[0]', 'd::e'])\n"
        "def test_text(text): assert text\n"
        "class TestGroup:\n"
        "    def test_inner(self): pass\n"
        "def test_never(): pytest.skip('as the test asks')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--junit-xml=report.xml", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    rows = [
        f"| `{name}` | is so | `deep/test_real.py::{name}` |"
        for name in (
            "test_text",
            "test_text[a b]",
            "test_text[c[0]]",
            "test_text[d::e]",
            "TestGroup::test_inner",
        )
    ]
    document = HEAD + "\n".join([*rows, "| `n` | is so | `test_real.py::test_never` |"])
    (tmp_path / "docs/operations/coverage.md").write_text(document)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        check_coverage.main(["--root", str(tmp_path), str(tmp_path / "report.xml")])
    assert out.getvalue().splitlines() == [
        "coverage: line 8: n: test_real.py::test_never was skipped",
        "coverage: 6 rows, 5 proven by 6 tests, 0 excluded, 1 problems",
    ]


# --- the page against the code ---

PAGE = ROOT / "docs/operations/coverage.md"
SOURCE = ROOT / "packages/spark-overlay/src/spark_overlay"
OBSERVATION_FILE = ROOT / "packages/ofl-transport/src/ofl/observation_file.py"
"""Its sentence reaches the log of an engine that is observed."""
ENGRAM = ROOT / "packages/engram-remote"
ENGRAM_SPEAKS = ("settings.py", "commands", "server", "vllm_seam")
"""What of the tables' Python speaks to operators.  Errors about files name file and field; those are behaviours."""
STDERR = re.compile(r'fprintf\(stderr,\s*"engram: ((?:[^"\\]|\\.)*)"')
RULES = SOURCE / "alerts/spark-overlay.rules.yml"
ENGRAM_RULES = ENGRAM / "src/engram_remote/server/engram-remote.rules.yml"
LOGS = {f"{name}.{level}" for name in ("log", "logger", "LOGGER") for level in ("info", "warning", "error")}
ERRORS = {
    "CalibrateRefused",
    "DeliveryError",
    "DisabledError",
    "LaunchError",
    "PreflightError",
    "Problem",
    "RemoteRoundFailed",
    "RemoteUnavailableError",
    "SeamError",
    "SettingsError",
}
FACTS = EngineFacts(1000, 16, RowDtype.BFLOAT16, 2, 6, 500, 4, 3, draft_schedule=(0, 4, 4, 2))
POLICIES = ("capacity", "resilience", "shadow")
SPEAKS: dict[str, type[ast.Yield | ast.Return]] = {
    "refusals.py": ast.Yield,
    "rules.py": ast.Yield,
    "depth.py": ast.Yield,
    "settings.py": ast.Return,
    "acceptance.py": ast.Return,
    "misses.py": ast.Return,
}
"""Modules whose functions give sentences, and how."""
TELLING = ("settings.py", "tables.py")
"""Modules that say what is wrong with a setting in errors of Python's own."""
SHAPES = {"counters", "latency"}
"""Sections of the stats whose names are counted by their own definitions."""
COUNTERS = set(Counters.meanings()) | set(vars(LinkCounters()))


def inventory() -> set[str]:
    """Every name that has a row."""
    rows, problems = check_coverage.read_rows(PAGE.read_text(encoding="utf-8"))
    assert problems == []
    return {name for row in rows for name in row.names}


def settings(policy: str) -> Settings:
    """An engine's settings, as few as there can be."""
    name = "VLLM_DSPARK_REMOTE"
    environ = {name: "tcp://w:1", f"{name}_IDENTITY": "ab" * 32, f"{name}_MARKOV_IDENTITY": "cd" * 32}
    made = Settings.from_environ(environ | {f"{name}_POLICY": policy})
    assert made is not None
    return made


def statistics(policy: str) -> dict[str, object]:
    """The figures of a connected drafter after a round."""
    made = settings(policy)
    wire = SimulatedWire(SimulatedWorker(session_shape(made, FACTS)).answer)
    drafter = RemoteDrafter(made, FACTS, connect=wire.connect)
    assert drafter.link.attempt()
    requests = [RoundRequest(0, "a", 0, 1, 0, 5, 4)]
    result = drafter.round(requests, bytes(FACTS.row_bytes))
    drafter.record_acceptance(1, 4, 5)
    if policy == "shadow":
        drafter.record_local(LocalDrafts(result.drafts.astype(np.int64), 1.0), requests, result)
    return drafter.stats()


def fields(stats: dict[str, object]) -> set[str]:
    """Every field of the figures, `section.field` where it lies in a section."""
    inner = {
        f"{section}.{field}"
        for section, value in stats.items()
        if isinstance(value, dict) and section not in SHAPES
        for field in value
    }
    return set(stats) | inner


def skeleton(node: ast.expr) -> str:
    """A sentence of the source with `…` for what varies; empty where it is not written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[0-9.]*[a-z]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.List) and len(node.elts) == 1:
        return skeleton(node.elts[0])
    if isinstance(node, ast.Call) and isinstance(
        node.func, ast.Attribute
    ):  # what a method makes of a sentence
        return skeleton(node.func.value)
    return ""


def said_by(path: Path) -> Iterator[str]:
    """What a module refuses with, tells of settings, or logs for operators, as skeletons."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        speaks = SPEAKS.get(path.name)
        if speaks is not None and isinstance(node, speaks) and node.value is not None:
            yield skeleton(node.value)
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func)
            logs = called in LOGS or called == "self._complain"
            tells = path.name in TELLING and called in ("ValueError", "problems.append")
            if called in ERRORS or logs or tells:
                yield skeleton(node.args[0])


def engram_modules() -> list[Path]:
    """Modules of the tables that speak to operators."""
    places = [ENGRAM / "src/engram_remote" / name for name in ENGRAM_SPEAKS]
    return [path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))]


def said_by_the_library() -> set[str]:
    """What libengram says on stderr, as skeletons."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ENGRAM / "cpp").glob("*.cpp")))
    return {
        f"engram: {re.sub('%[a-z]', '…', said).removesuffix(chr(92) + 'n')}" for said in STDERR.findall(text)
    }


def sentences() -> set[str]:
    """Of two words at least: shorter ones are made of others.  Without backticks, which would end a name's own."""
    modules = [path for path in SOURCE.rglob("*.py") if "simulation" not in path.parts]
    modules.append(OBSERVATION_FILE)
    modules += engram_modules()
    found = {
        sentence.replace("`", "") for path in modules for sentence in said_by(path)
    } | said_by_the_library()
    return {sentence for sentence in found if len(re.findall(r"[a-z]{2,}", sentence)) >= 2}


def said_at_the_start() -> set[str]:
    """All that an engine can say once it is up: every policy, a worker or none, nothing, one and two of everything."""
    said: set[str] = set()
    for policy, count, connected, disabled in product(POLICIES, range(3), (True, False), ("", "identity")):
        memory = defaultdict[str, int](lambda count=count: count)  # type: ignore[misc]
        said.update(
            report(settings(policy), count or 1, memory, {"connected": connected, "disabled": disabled})
        )
    return said


def says(name: str, line: str) -> bool:
    """Whether a line is what a name stands for."""
    return re.fullmatch(".+".join(map(re.escape, name.split("…"))), line) is not None


def measured() -> set[str]:
    """Names of what is measured of an engine's memory."""
    tree = ast.parse((SOURCE / "vllm_seam/memory.py").read_text(encoding="utf-8"))
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    named = [key.value for key in keys if isinstance(key, ast.Constant)]
    return {f"memory.{name}" for name in named if isinstance(name, str)}


def metrics(folder: Path) -> set[str]:
    """Families that Prometheus gets, but for those that are a counter or a latency of the stats file."""
    found: set[str] = set()
    for policy in POLICIES:
        path = folder / f"{policy}.json"
        write_json(path, statistics(policy))
        text, problem = exposition(path)
        assert problem == ""
        found.update(family.name for family in text_string_to_metric_families(text))
    times = [name.removesuffix("us") for name in LATENCIES]
    own = [*COUNTERS, *(f"{name}{end}" for name in times for end in ("seconds", "max_seconds"))]
    return found - {f"spark_overlay_{name}" for name in own}


def test_every_setting_has_a_row() -> None:
    settings = (*Settings.model_fields.values(), *ObserveSettings.model_fields.values())
    aliases = {str(field.alias) for field in settings}
    assert (aliases | NOT_BUILT_YET) - inventory() == set()


def test_every_counter_latency_and_reason_has_a_row() -> None:
    fallbacks = {f"fallback_{reason}" for reason in reasons.ALL if reason != reasons.PAUSED}  # no failure
    assert (COUNTERS | set(LATENCIES) | fallbacks) - inventory() == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_field_of_the_stats_has_a_row(policy: str) -> None:
    assert fields(statistics(policy)) - inventory() == set()


def test_every_figure_of_the_memory_has_a_row() -> None:
    found = measured()
    assert len(found) > 20, "the search still finds what is measured"
    assert found - inventory() == set()


def test_every_refusal_and_log_line_has_a_row() -> None:
    found = sentences()
    assert len(found) > 50, "the search still finds what the overlay says"
    assert found - inventory() == set()


def test_every_line_of_the_start_has_a_row() -> None:
    names = {name for name in inventory() if "…" in name}
    assert {line for line in said_at_the_start() if not any(says(name, line) for name in names)} == set()


def test_no_row_tells_of_a_sentence_that_nothing_says() -> None:
    told = {name for name in inventory() if "…" in name} - sentences()
    lines = said_at_the_start()
    assert {name for name in told if not any(says(name, line) for line in lines)} == set()


def commands_below(made: click.Command, words: str) -> Iterator[str]:
    """What stands in a row of its own: commands with their words, and options, with the words of a nested command."""
    yield words
    group = words.split(" ", 1)[-1] + " " if words.count(" ") > 1 else ""
    yield from (f"{group}{option}" for one in made.params for option in one.opts if option.startswith("--"))
    if isinstance(made, click.Group):
        context = click.Context(made)
        for name in made.list_commands(context):
            below = made.get_command(context, name)
            assert below is not None
            yield from commands_below(below, f"{words} {name}")


def test_every_command_and_option_has_a_row() -> None:
    found = set(commands_below(command, "spark-overlay")) - {"spark-overlay", "--version"}
    assert {"spark-overlay stats", "--watch", "spark-overlay pause", "spark-overlay overlay build"} <= found
    assert found - inventory() == set()


def test_every_metric_of_prometheus_has_a_row(tmp_path: Path) -> None:
    found = metrics(tmp_path)
    assert {f"spark_overlay_{family}" for family, _ in GROUPS.values()} <= found
    assert found - inventory() == set()


def test_every_alert_has_a_row() -> None:
    groups = [
        group
        for rules in (RULES, ENGRAM_RULES)
        for group in yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    ]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert len(alerts) > 20
    assert alerts - inventory() == set()
    assert {name for name in inventory() if re.match("SparkOverlay|Engram[A-Z]", name)} - alerts == set()


def library_names(function: str, count: int) -> set[str]:
    """Of counters, as libengram has them."""
    name = getattr(native.loaded(), function)
    return {found.decode() for index in range(count) if (found := name(index)) is not None}


def test_every_setting_and_status_of_the_tables_has_a_row() -> None:
    aliases = {str(field.alias) for field in EngramSettings.model_fields.values()}
    statuses = {f"engram-v1 {status.name}" for status in TableStatus}
    assert (aliases | set(NOT_OURS) | statuses) - inventory() == set()


def test_every_counter_and_reason_of_the_tables_has_a_row() -> None:
    clients = library_names("engram_client_counter_name", abi.CLIENT_COUNTERS)
    servers = library_names("engram_server_counter_name", abi.SERVER_COUNTERS)
    assert {"lookups_remote", "fallbacks_late", "fallbacks_refused_draining"} <= clients
    assert {"lookups", "refused_draining"} <= servers
    named = {f"client.{name}" for name in clients} | {f"server.{name}" for name in servers}
    assert named - inventory() == set()
    rows = {name for name in inventory() if name.startswith(("client.", "server."))}
    assert rows - named == set(), "a row for a counter that there is not"


def test_every_command_of_the_tables_and_every_option_of_serve_has_a_row() -> None:
    serve = engram_command.get_command(click.Context(engram_command), "serve")
    assert serve is not None
    options = {option for one in serve.params for option in one.opts if option.startswith("--")}
    assert "--reply-buffers" in options
    named = {f"engram-remote {name}" for name in ENGRAM_COMMANDS}
    assert (named | {f"engram-remote serve {name}" for name in options}) - inventory() == set()


def test_every_metric_of_the_tables_that_is_no_counter_has_a_row() -> None:
    families = {one.name for one in ServerCollector(dict, {}).collect()}
    assert families == {"engram_server", "engram_refused"}
    assert families - inventory() == set()


def test_every_test_that_the_page_names_exists() -> None:
    rows, _ = check_coverage.read_rows(PAGE.read_text(encoding="utf-8"))
    suite = check_coverage.Suite.of(ROOT)
    wrong = {test: check_coverage.check_test(test, {}, suite)[0] for row in rows for test in row.tests}
    assert {test: clause for test, clause in wrong.items() if clause != "was not run"} == {}
