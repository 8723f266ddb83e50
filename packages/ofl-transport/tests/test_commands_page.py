"""docs/transport/commands.md has every option of every command with its default, and every field that is printed."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ofl import cli
from ofl.bench import MAX_BYTES, figures, report
from ofl.bench.compare import Compared
from ofl.bench.figures import Case, Latency, Mode, Result
from ofl.bench.peers import comparisons
from ofl.cli import main
from ofl.commands.bench import COMPARED_SIZES
from transport_harness import Harness

PAGE = (Path(__file__).parents[3] / "docs" / "transport" / "commands.md").read_text()


def table(before: str) -> list[list[str]]:
    """The cells of the first table after a text, without its heading."""
    lines = PAGE.split(before, 1)[1].splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("|---")) + 1
    end = next((number for number in range(begin, len(lines)) if not lines[number]), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:end]]


def commands(
    parser: argparse.ArgumentParser, words: str = "ofl"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Those that run something, by name."""
    parts = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not parts:
        yield words, parser
    for name, part in ((name, part) for action in parts for name, part in action.choices.items()):
        yield from commands(part, f"{words} {name}")


COMMANDS = dict(commands(cli._parser()))


def shown(action: argparse.Action) -> str:
    """An option as the page has it: what it is called, what it takes, and dots where it takes several."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    takes = "KIND" if action.choices else name
    words = [*action.option_strings, *([takes] if action.nargs != 0 else [])]
    return " ".join([*words, *(["..."] if action.nargs == "+" else [])])


def options(command: str) -> list[argparse.Action]:
    return [one for one in COMMANDS[command]._actions if not isinstance(one, argparse._HelpAction)]


def test_every_command_has_its_section() -> None:
    assert set(re.findall(r"^## `(.+)`$", PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_table_has_every_option_and_no_other(command: str) -> None:
    rows = {row[0]: row[1] for row in table(f"## `{command}`")}
    assert set(rows) == {shown(one) for one in options(command)}
    for one in options(command):
        default = rows[shown(one)]
        if one.nargs == 0:
            assert default == "off"
        elif isinstance(one.default, str | int | float):
            assert default == f"{one.default:g}" if isinstance(one.default, float) else str(one.default)
        elif not one.option_strings:
            assert default == ("none" if one.nargs == "?" else "required")


def test_the_sizes_of_bench_are_the_codes_own() -> None:
    row = next(row for row in table("## `ofl bench run`") if row[0].startswith("--sizes"))
    assert row[1] == f"{' '.join(figures.SIZES)}; with --compare {' '.join(COMPARED_SIZES)}"
    assert f"up to {MAX_BYTES:,} bytes" in row[2]


def fields(of: str) -> set[str]:
    return {row[0] for row in table(f"| Field of {of} ")}


def test_every_field_of_bench_is_there() -> None:
    latency = Latency.of([1, 2, 3])
    result = Result(Case(Mode.ECHO, 64), 0, latency, 6, 0.0, 0.0)
    (comparison,) = comparisons("tcp", "127.0.0.1", [64], [0])
    printed = {
        "results": report.result_json(result),
        "first_after_idle": report.idle_json(latency, 1.0, 0),
        "compared": report.compared_json(Compared(comparison, (1.0,), (1.0,))),
    }
    for name, document in printed.items():
        assert fields(name) == set(document)


def test_every_field_of_probe_is_there(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    _, endpoint = harness.echo()
    assert main(["probe", endpoint, "--connect", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert fields("connect") == {*document["connect"], "alive_ms", "error"}
    for name in document:
        assert f"`{name}`" in PAGE
