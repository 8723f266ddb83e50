"""docs/transport/security.md states the limits and counters that the code has."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
PAGE = (PACKAGE.parents[1] / "docs" / "transport" / "security.md").read_text()
HEADER = (PACKAGE / "cpp" / "access.hpp").read_text()


def constant(name: str) -> str:
    """The value of a constant of access.hpp, spans in seconds."""
    found = re.search(rf"\b{name} = ([^;]+);", HEADER)
    assert found is not None
    return re.sub(r"(?:(\d+) \* )?kSecond", lambda match: f"{match[1] or 1} s", found[1])


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        (r"\| failures within (10 s) until the address is refused \| (5) \|", ("kWindow", "kFailuresMax")),
        (r"\| first refusal \| (1 s) \|", ("kRefusalMin",)),
        (r"\| twice as long, up to (60 s) \|", ("kRefusalMax",)),
        (r"or (60 s) after a refusal without a failure \|", ("kProbation",)),
        (r"\| addresses remembered \| (1024); the one whose last failure is oldest", ("kHostsMax",)),
        (r"addresses and prefixes, at most (1024)\.", ("kRulesMax",)),
    ],
)
def test_a_limit_is_the_one_of_the_code(sentence: str, names: tuple[str, ...]) -> None:
    found = re.search(sentence, PAGE)
    assert found is not None
    assert found.groups() == tuple(constant(name) for name in names)


def test_every_counter_that_is_named_exists() -> None:
    source = (PACKAGE / "cpp" / "server_shared.hpp").read_text()
    block = re.search(r"enum class Counter[^{]*{(.*?)}", source, re.DOTALL)
    assert block is not None
    known = set(re.findall(r"^\s+(\w+),", block[1], re.MULTILINE))
    rows = re.findall(r"^\| ([a-z_, ]+) \|", PAGE.split("## What to watch")[1], re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert {"auth_failures", "auth_limited", "not_allowed"} <= named
    assert named <= known
