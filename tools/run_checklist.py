"""Runs a checklist on the three trial hosts: `run_checklist.py docs/operations/integration.md`.

Owns the order of the run and its report.  Every block is run as it stands on the page, on hosts that begin empty; the
first that does not end or show as it should ends the run, and everything that was started ends with it.  Must never
change the page.  Standard library, as root.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checklist import Block, ChecklistError, Step, matches, mismatch, parse
from three_hosts import FOLDER, HOSTS, HostsError, ThreeHosts, parse_binds

WRAPPER = """[ -z "$2" ] || trap 'status=$?; { export -p; printf "cd %q\\n" "$PWD"; } >"$0"; exit $status' EXIT
[ ! -f "$0" ] || . "$0"
set -e
eval "$1"
"""
"""$0: where the host's shell keeps its exports and folder; $1: the block; $2: whether they are kept after it."""
KEPT = ".shell-of-the-checklist"
LOOK_S = 0.2
"""How often an output that grows is looked at; the end of its process is seen at once."""
END_S = 60.0


@dataclass
class Result:
    """Of one block.  outcome: passed, failed, not run here or not reached; reason: of all but the first."""

    step: str
    line: int
    host: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""
    shown: list[str] = field(default_factory=list)


class Failure(Exception):
    """A block did not do what the page says."""


class Background:
    """A block that goes on running on its host; its output is in a file."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = _start(command, output.fileno())

    def lines(self) -> list[str]:
        """What it has shown so far, whole lines."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def await_lines(self, seconds: float, wanted: "Wanted") -> list[str]:
        """Its output once `wanted` holds of it.  Raises Failure where it ends before, or time does."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.wait(0) is not None
            if wanted(lines := self.lines()):
                return lines
            if ended:
                raise Failure(f"it ended with status {self.process.returncode}; {_tail(lines)}")
            if time.monotonic() > deadline:
                raise Failure(f"{wanted.told} within {seconds:g} s; {_tail(lines)}")
            self.wait(LOOK_S)

    def wait(self, seconds: float) -> int | None:
        """Its status, None where it runs on after so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class Wanted:
    """A condition on lines, and how its absence is told."""

    def __init__(self, *, text: str = "", pattern: Sequence[str] = ()) -> None:
        self._text, self._pattern = text, pattern
        self.told = f"no line holds {text!r}" if text else "it does not show what is expected"

    def __call__(self, lines: Sequence[str]) -> bool:
        if self._text:
            return any(self._text in line for line in lines)
        return matches(self._pattern, lines)


class Run:
    """One run of a page's steps.  patience: what every time on the page is multiplied with."""

    def __init__(self, hosts: ThreeHosts, logs: Path, patience: float) -> None:
        self._hosts, self._logs, self._patience = hosts, logs, patience
        self._running: dict[str, Background] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def steps(self, steps: Sequence[Step]) -> Iterator[Result]:
        """A result for every block, in order; after the first failure the others are not reached."""
        failed = ""
        for step in steps:
            for block in step.blocks:
                result = Result(step.title, block.line, block.host, "passed")
                if block.not_here:
                    result.outcome, result.reason = "not run here", block.not_here
                elif failed:
                    result.outcome, result.reason = "not reached", failed
                else:
                    begun = time.monotonic()
                    try:
                        result.shown = self._block(block)
                    except Failure as failure:
                        result.outcome, result.reason = "failed", str(failure)
                        failed = f"the block of line {block.line} failed"
                    result.seconds = round(time.monotonic() - begun, 1)
                yield result

    def _block(self, block: Block) -> list[str]:
        for name, background in self._running.items():
            if name != block.shows and background.wait(0) is not None:
                status = background.process.returncode
                raise Failure(f"{name} has ended with status {status}; {_tail(background.lines())}")
        seconds = block.timeout_s * self._patience
        if block.shows:
            return self._shows(block, seconds)
        if block.background:
            return self._begin(block, seconds)
        deadline = time.monotonic() + block.retry_s * self._patience
        while True:
            try:
                lines = self._foreground(block, seconds)
                break
            except Failure:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)  # what is asked about has no event to wait for
        self._await_end(block)
        return lines

    def _foreground(self, block: Block, seconds: float) -> list[str]:
        log = self._logs / f"line-{block.line}.log"
        with log.open("wb") as output:
            process = _start(self._command(block), output.fileno())
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _kill(process)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if status is None:
            raise Failure(f"it did not end within {seconds:g} s; {_tail(lines)}")
        if status != block.status:
            raise Failure(f"it ended with status {status} instead of {block.status}; {_tail(lines)}")
        _compare(block, lines)
        return lines

    def _begin(self, block: Block, seconds: float) -> list[str]:
        background = Background(self._command(block), self._logs / f"{block.background}.log")
        self._running[block.background] = background
        lines = background.await_lines(seconds, Wanted(text=block.until))
        last = next(index for index, line in enumerate(lines) if block.until in line)
        _compare(block, lines[: last + 1])
        return lines[: last + 1]

    def _shows(self, block: Block, seconds: float) -> list[str]:
        assert block.expected is not None
        background = self._running[block.shows]
        lines = background.await_lines(seconds, Wanted(pattern=block.expected))
        self._await_end(block)
        return lines[-20:]

    def _await_end(self, block: Block) -> None:
        seconds = END_S * self._patience
        if block.ends and self._running.pop(block.ends).wait(seconds) is None:
            raise Failure(f"{block.ends} did not end within {seconds:g} s")

    def _command(self, block: Block) -> list[str]:
        kept = str(self._hosts.home(block.host) / KEPT)
        # A background ends at another time: its shell must not write over what later blocks have kept.
        keep = "" if block.background else "keep"
        return self._hosts.command(block.host, ["bash", "-c", WRAPPER, kept, block.commands, keep])


def _start(command: list[str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """What is left of a foreground block; its own group, so what it put into the background itself stays in it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)


def _compare(block: Block, lines: Sequence[str]) -> None:
    if block.expected is not None and (difference := mismatch(block.expected, lines)):
        raise Failure(difference)


def _tail(lines: Sequence[str]) -> str:
    return "its last lines:\n" + "\n".join(lines[-15:]) if lines else "it showed nothing"


# --- the report ---


def junit(page: str, results: Sequence[Result]) -> ElementTree.Element:
    """A testcase for every block: not run here is a skip with its reason, not reached an error."""
    suite = ElementTree.Element("testsuite", name="operations", tests=str(len(results)))
    classname = page.removesuffix(".md").replace("/", ".")
    for result in results:
        name = f"{result.step}: line {result.line}"
        case = ElementTree.SubElement(
            suite, "testcase", classname=classname, name=name, time=str(result.seconds)
        )
        kind = {"failed": "failure", "not reached": "error", "not run here": "skipped"}.get(result.outcome)
        if kind:
            ElementTree.SubElement(case, kind, message=_printable(result.reason))
    return suite


def _printable(text: str) -> str:
    """XML takes no control characters."""
    return "".join(one for one in text if one.isprintable() or one in "\n\t")


def summary(results: Sequence[Result]) -> str:
    """One line of counts."""
    counts = [f"{sum(one.outcome == outcome for one in results)} {outcome}" for outcome in OUTCOMES]
    return ", ".join(counts)


OUTCOMES = ("passed", "failed", "not run here", "not reached")


# --- the command ---


def main(argv: Sequence[str] | None = None) -> int:
    """0 where every block that can run here passed, 1 where one failed, 2 where page, option or machine is wrong."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results: list[Result] = []
    try:
        steps = parse(options.page.read_text(encoding="utf-8"), HOSTS)
        if options.list:
            print("\n".join(f"{step.title}: {step.criterion}" for step in steps))
            return 0
        with ThreeHosts(options.folder.resolve(), dict(parse_binds(options.bind)), fresh=True) as hosts:
            run = Run(hosts, options.folder.resolve() / "logs", options.patience)
            _follow(run, steps, results)
    except (ChecklistError, HostsError, OSError) as error:
        print(f"run_checklist: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run_checklist: interrupted; the hosts are gone", file=sys.stderr)
        return 130
    finally:
        if results:
            _write(options, results)
    print(summary(results))
    return 0 if all(one.outcome in ("passed", "not run here") for one in results) else 1


def _follow(run: Run, steps: Sequence[Step], results: list[Result]) -> None:
    """Say what comes of each block, and add it to results."""
    title = ""
    for result in run.steps(steps):
        if result.step != title:
            title = result.step
            print(f"== {title}", flush=True)
        results.append(result)
        said = f"  line {result.line} {result.host}: {result.outcome} ({result.seconds:g} s)"
        print(said + (f": {result.reason}" if result.reason else ""), flush=True)


def _write(options: argparse.Namespace, results: Sequence[Result]) -> None:
    if options.json:
        document = {"page": str(options.page), "blocks": [asdict(one) for one in results]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.junit_xml:
        tree = ElementTree.ElementTree(junit(str(options.page), results))
        tree.write(options.junit_xml, encoding="unicode", xml_declaration=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument(
        "--list", action="store_true", help="the steps and their pass criteria; nothing is run"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="what the hosts keep (default: %(default)s)"
    )
    parser.add_argument(
        "--bind", action="append", default=[], metavar="FOLDER=PATH", help="see three_hosts.py"
    )
    parser.add_argument(
        "--patience", type=float, default=1.0, help="every time on the page is multiplied with it"
    )
    parser.add_argument("--json", type=Path, help="a report with what every block showed")
    parser.add_argument("--junit-xml", type=Path, help="a report as the test sessions leave one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
