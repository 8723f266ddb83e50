"""Reads a checklist: a page of Markdown whose fenced blocks say on which host they run and what they show.

Owns the format and the comparison of outputs.  Pure: no file, no process, no clock.  Standard library.

A step is a section of level two with blocks; its paragraph that begins with `**Pass:**` says what has to come of it.
Blocks, by the words behind the fence:

    sh host=HOST                   run to its end by that host's shell; exports and folder last to its next block
       status=N                    the status that it must end with (0)
       timeout=SECONDS             how long it may take (60)
       retry=SECONDS               run again so long until it ends and shows as it should
       background=NAME until=TEXT  left running once a line of its output holds TEXT
       ends=NAME                   the background NAME must end with it
       not-here=REASON             for other hardware: counted as not run, with the reason
    text expect                    what the block before it shows, all of it
    text shows=NAME                what the background NAME shows by then, somewhere in its output; timeout as above
       ends                        and it must end then by itself

In outputs `…` stands for what varies in a line, and a line of it alone for any number of lines.  Every sh block needs a
host or a reason: nothing is left out in silence.
"""

import difflib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

VARIES = "…"
TIMEOUT_S = 60.0
PASS = "**Pass:**"
FENCE = re.compile(r"(`{3,})\s*(.*)")
SH_WORDS = {"host", "status", "timeout", "retry", "background", "until", "ends", "not-here"}
SHOWS_WORDS = {"shows", "timeout", "ends"}


class ChecklistError(ValueError):
    """The page is no checklist; one sentence with the line."""


@dataclass(frozen=True)
class Block:
    """What is run, or looked for.  line: of its fence, from 1.  Times in seconds.

    shows: the background whose output is looked at; then nothing is run.  expected: None where any output will do.
    """

    line: int
    commands: str = ""
    host: str = ""
    status: int = 0
    timeout_s: float = TIMEOUT_S
    retry_s: float = 0.0
    background: str = ""
    until: str = ""
    ends: str = ""
    not_here: str = ""
    shows: str = ""
    expected: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Step:
    """A section: its title, what has to come of it, and its blocks in order."""

    title: str
    line: int
    criterion: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class _Fence:
    line: int
    words: str
    text: tuple[str, ...]


def parse(page: str, hosts: Sequence[str]) -> list[Step]:
    """The steps of a page.  Raises ChecklistError."""
    steps: list[Step] = []
    for title, line, lines in _sections(page):
        blocks = _blocks(_fences(lines, line), hosts)
        if not blocks:
            continue
        criterion = _criterion(lines)
        if not title:
            raise ChecklistError(f"line {blocks[0].line}: the block stands before the first step")
        if not criterion:
            raise ChecklistError(f"line {line}: the step {title!r} has no paragraph that begins with {PASS}")
        steps.append(Step(title, line, criterion, tuple(blocks)))
    if not steps:
        raise ChecklistError("the page has no step with a block to run")
    _check_names(steps)
    return steps


def _sections(page: str) -> list[tuple[str, int, list[str]]]:
    """(title, line of its heading, its lines), the one before the first heading with an empty title."""
    found: list[tuple[str, int, list[str]]] = [("", 0, [])]
    fence = ""
    for number, line in enumerate(page.splitlines(), 1):
        if opened := FENCE.match(line):
            fence = "" if fence and line.strip() == fence else fence or opened[1]
        if not fence and line.startswith("## "):
            found.append((line[3:].strip(), number, []))
        else:
            found[-1][2].append(line)
    return found


def _fences(lines: Sequence[str], offset: int) -> list[_Fence]:
    found: list[_Fence] = []
    opened: tuple[int, str, str] | None = None
    text: list[str] = []
    for number, line in enumerate(lines, offset + 1):
        if opened is None:
            if match := FENCE.match(line):
                opened, text = (number, match[1], match[2].strip()), []
        elif line.strip() == opened[1]:
            found.append(_Fence(opened[0], opened[2], tuple(text)))
            opened = None
        else:
            text.append(line)
    if opened is not None:
        raise ChecklistError(f"line {opened[0]}: the block has no end")
    return found


def _criterion(lines: Sequence[str]) -> str:
    """The paragraph behind PASS, in one line."""
    for index, line in enumerate(lines):
        if line.startswith(PASS):
            paragraph = [line.removeprefix(PASS)]
            for more in lines[index + 1 :]:
                if not more.strip() or FENCE.match(more):
                    break
                paragraph.append(more)
            return " ".join(" ".join(paragraph).split())
    return ""


def _blocks(fences: Sequence[_Fence], hosts: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    runs_before = False
    for fence in fences:
        language, _, rest = fence.words.partition(" ")
        words = _words(rest, fence.line)
        if language == "text" and "expect" in words:
            if not runs_before:
                raise ChecklistError(
                    f"line {fence.line}: no block that is run stands right before this output"
                )
            blocks[-1] = _with_output(blocks[-1], fence)
        elif language == "text" and "shows" in words:
            _check_words(words, SHOWS_WORDS, fence.line)
            timeout = _number(words, "timeout", TIMEOUT_S, fence.line)
            expected = (VARIES, *fence.text, VARIES)
            ends = words["shows"] if "ends" in words else ""
            blocks.append(
                Block(fence.line, shows=words["shows"], ends=ends, timeout_s=timeout, expected=expected)
            )
        elif language in ("sh", "bash", "shell", "console"):
            blocks.append(_run(fence, words, hosts))
            runs_before = True
            continue
        runs_before = False
    return blocks


def _with_output(block: Block, fence: _Fence) -> Block:
    if block.not_here:
        return block  # shown for those who have the hardware
    return Block(**{**vars(block), "expected": fence.text})


def _run(fence: _Fence, words: dict[str, str], hosts: Sequence[str]) -> Block:
    line = fence.line
    _check_words(words, SH_WORDS, line)
    if "not-here" in words:
        if not words["not-here"]:
            raise ChecklistError(f"line {line}: not-here needs a reason")
        return Block(line, "\n".join(fence.text), words.get("host", ""), not_here=words["not-here"])
    if words.get("host") not in hosts:
        raise ChecklistError(f"line {line}: host={words.get('host', '')} is none of {', '.join(hosts)}")
    if bool(words.get("background")) != bool(words.get("until")):
        raise ChecklistError(f"line {line}: background and until go together")
    if not any(text.strip() for text in fence.text):
        raise ChecklistError(f"line {line}: the block is empty")
    return Block(
        line,
        "\n".join(fence.text),
        words["host"],
        status=int(_number(words, "status", 0, line)),
        timeout_s=_number(words, "timeout", TIMEOUT_S, line),
        retry_s=_number(words, "retry", 0.0, line),
        background=words.get("background", ""),
        until=words.get("until", ""),
        ends=words.get("ends", ""),
    )


def _words(text: str, line: int) -> dict[str, str]:
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise ChecklistError(f"line {line}: {error}") from None
    words: dict[str, str] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name in words:
            raise ChecklistError(f"line {line}: {name} is said twice")
        words[name] = value
    return words


def _check_words(words: dict[str, str], known: set[str], line: int) -> None:
    for name in words:
        if name not in known:
            raise ChecklistError(f"line {line}: {name!r} is none of {', '.join(sorted(known))}")


def _number(words: dict[str, str], name: str, default: float, line: int) -> float:
    text = words.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text):
        raise ChecklistError(f"line {line}: {name}={text} is no number from 0")
    return float(text)


def _check_names(steps: Sequence[Step]) -> None:
    """What is looked at or ended was started before and not ended since."""
    running: set[str] = set()
    for block in (block for step in steps for block in step.blocks):
        for name in filter(None, (block.shows, block.ends)):
            if name not in running:
                raise ChecklistError(f"line {block.line}: no background {name!r} runs there")
        running.discard(block.ends)
        if block.background:
            if block.background in running:
                raise ChecklistError(f"line {block.line}: the background {block.background!r} runs already")
            running.add(block.background)


# --- outputs ---


def matches(expected: Sequence[str], shown: Sequence[str]) -> bool:
    """Whether what was shown is what was expected, line by line; trailing blanks do not count."""
    return _furthest(expected, shown)[0]


def mismatch(expected: Sequence[str], shown: Sequence[str]) -> str:
    """What differs, for people; empty where nothing does."""
    good, at = _furthest(expected, shown)
    if good:
        return ""
    told = repr(expected[at]) if at < len(expected) else "no further line"
    # Lines that match are shown as they came, so that the difference has the others alone.
    patterns = [_pattern(line) for line in expected]
    alike = [
        next((line for line in shown if patterns[index].fullmatch(line.rstrip())), text)
        if index < at
        else text
        for index, text in enumerate(expected)
    ]
    diff = difflib.unified_diff(alike, list(shown), "expected", "shown", lineterm="", n=2)
    return "\n".join([f"line {at + 1} of the output is expected to be {told}:", *diff])


def _furthest(expected: Sequence[str], shown: Sequence[str]) -> tuple[bool, int]:
    """Whether all matches, and the first expected line that could not be matched."""
    patterns = [_pattern(line) for line in expected]
    lines = [line.rstrip() for line in shown]
    reached = {0}
    for index, text in enumerate(expected):
        if text.strip() == VARIES:
            following = set(range(min(reached), len(lines) + 1))
        else:
            following = {at + 1 for at in reached if at < len(lines) and patterns[index].fullmatch(lines[at])}
        if not following:
            return False, index
        reached = following
    return len(lines) in reached, len(expected)


@cache
def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in line.rstrip().split(VARIES)))
