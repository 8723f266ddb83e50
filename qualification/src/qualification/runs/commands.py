"""`qualify plan`, `run`, `finish` and `rehearse`.

Exit status: 0 done; 1 the run did not come to its end, or a rehearsal has a FAIL or a HOLD; 2 an input cannot be used;
128 + n after signal n.  Whatever a run leaves behind before its end verifies as incomplete.
"""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.decorators import FC

from qualification.checks.model import Check, Verdict
from qualification.checks.registry import all_checks
from qualification.commands.common import FILE, REFUSED, UNUSABLE, stop, usable
from qualification.policy import read_policy
from qualification.receipts.keys import load_signer
from qualification.receipts.statement import Statement
from qualification.runs import folder
from qualification.runs.declared import SIDES, DeclarationError, Side
from qualification.runs.finish import finish as finish_run
from qualification.runs.folder import Run, RunError
from qualification.runs.interruption import Interrupted, interruptible
from qualification.runs.ledger import LedgerError
from qualification.runs.matrix import matrix
from qualification.runs.plan import lines, make_plan
from qualification.runs.platform import Platform, PlatformError, parse_platform, read_platform
from qualification.runs.side import run_side
from qualification.runs.window import CHECKPOINT_S, HARD_S, SUBMIT_S, Limits
from qualification.subjects import read_subjects

OPTIONS: dict[str, Any] = {
    "platform": click.option("--platform", required=True, type=FILE, help="Platform file, TOML."),
    "evidence": click.option("--evidence", required=True, type=FILE, help="Folder for runs."),
    "run_id": click.option("--run", "run_id", required=True, help="The run's name, new for each."),
    "check": click.option(
        "--check", "names", multiple=True, help="A check; again for more.  All by default."
    ),
    "attempts": click.option(
        "--attempts", default=1, type=click.IntRange(1, 5), help="Starts of an arm that fails, at most."
    ),
    "guard": click.option("--guard", default="", help="Command that must go on ending with 0."),
    "submit": click.option("--submit-s", default=SUBMIT_S, help="Seconds until which cases may begin."),
    "hard": click.option("--hard-s", default=HARD_S, help="Seconds after which everything is ended."),
    "checkpoint": click.option(
        "--checkpoint-s", default=CHECKPOINT_S, help="Seconds between two checkpoints, at most."
    ),
    "counter": click.option(
        "--counter-first",
        type=click.IntRange(min=1),
        help="Counter of the first receipt.  The next that no run in the evidence has, by default.",
    ),
    "blinding": click.option(
        "--blinding", required=True, type=FILE, help="The run's blinding key, outside of the evidence."
    ),
    "key": click.option("--key", required=True, type=FILE, help="Private key that signs."),
    "subjects": click.option("--subjects", required=True, type=FILE, help="By `qualify subjects`."),
    "policy": click.option(
        "--policy", type=FILE, help="Decide by its thresholds where they are stricter than a check's own."
    ),
}


def options(*names: str) -> Callable[[FC], FC]:
    """Several of `OPTIONS`."""

    def add(command: FC) -> FC:
        for name in reversed(names):
            command = OPTIONS[name](command)
        return command

    return add


@click.command()
@options("platform", "check")
def plan(platform: Path, names: tuple[str, ...]) -> None:
    """Say what would run on a platform, how long it takes, and what is missing.  Starts nothing."""
    with ending():
        for line in lines(make_plan(read_platform(platform), chosen(names))):
            click.echo(line)


@click.command()
@options("platform", "evidence", "run_id", "blinding", "check", "attempts", "guard")
@options("submit", "hard", "checkpoint", "counter")
@click.option("--arm", "side", required=True, type=click.Choice(SIDES), help="The side to run.")
def run(
    platform: Path,
    evidence: Path,
    run_id: str,
    blinding: Path,
    names: tuple[str, ...],
    attempts: int,
    guard: str,
    submit_s: float,
    hard_s: float,
    checkpoint_s: float,
    counter_first: int | None,
    side: Side,
) -> None:
    """Run one side of every check; the first side opens the run and its window, the other one goes on in it.

    A side whose runner was killed can be run again: its arms start anew, and what they left before does not count.
    """
    with ending():
        where, checks, watched = read_platform(platform), chosen(names), shlex.split(guard)
        if blinding.resolve().is_relative_to(evidence.resolve()):
            raise RunError(f"{blinding}: the blinding key must not lie in the evidence.")
        known = (evidence / f"{run_id}{folder.PARTIAL}").is_dir()
        key = folder.key_of(blinding, create=not known)
        if known:
            made = folder.resume(evidence, run_id, where, checks, key)
        else:
            limits = Limits(submit_s, hard_s, checkpoint_s)
            made = folder.begin(evidence, run_id, where, checks, limits, key, counter_first)
        with closing(made):
            run_side(made, where, checks, side, attempts=attempts, guard=watched)
        click.echo(f"{made.root}: the side {side!r} is complete")


@click.command()
@options("platform", "evidence", "run_id", "blinding", "check", "key", "subjects", "policy")
def finish(
    platform: Path,
    evidence: Path,
    run_id: str,
    blinding: Path,
    names: tuple[str, ...],
    key: Path,
    subjects: Path,
    policy: Path | None,
) -> None:
    """Decide every check of a run whose sides are complete, sign the receipts, publish the run."""
    with ending():
        where, checks, signer = read_platform(platform), chosen(names), load_signer(key)
        bits, asked = read_subjects(subjects), None if policy is None else read_policy(policy)
        made = folder.resume(
            evidence, run_id, where, checks, folder.key_of(blinding, create=False), finishing=True
        )
        with closing(made):
            published, statements = finish_run(made, checks, bits.subjects, signer, asked)
        blinding.unlink()
        click.echo(matrix(statements))
        click.echo(f"{published}: {len(statements)} receipts")


@click.command()
@options("evidence", "run_id", "check", "key", "subjects", "policy", "attempts", "counter")
@click.option("--engine", default="simulator", type=click.Choice(["simulator", "vllm"]))
@click.option("--platform", type=FILE, help="Platform file; needed for every engine but the simulator.")
@click.option("--submit-s", default=1500.0, help="Seconds until which cases may begin.")
@click.option("--hard-s", default=1800.0, help="Seconds after which everything is ended.")
def rehearse(
    evidence: Path,
    run_id: str,
    names: tuple[str, ...],
    key: Path,
    subjects: Path,
    policy: Path | None,
    attempts: int,
    counter_first: int | None,
    engine: str,
    platform: Path | None,
    submit_s: float,
    hard_s: float,
) -> None:
    """Both sides, receipts and publication in one go.  Whether the evidence is native is seen, not said."""
    with ending():
        where, checks, signer = rehearsed_platform(engine, platform), chosen(names), load_signer(key)
        bits, asked = read_subjects(subjects), None if policy is None else read_policy(policy)
        limits = Limits(submit_s, hard_s)
        made = folder.begin(evidence, run_id, where, checks, limits, folder.draw_key(), counter_first)
        with closing(made):
            for side in SIDES:
                run_side(made, where, checks, side, attempts=attempts)
                click.echo(f"{run_id}: the side {side!r} is complete", err=True)
            published, statements = finish_run(made, checks, bits.subjects, signer, asked)
        click.echo(matrix(statements))
        click.echo(f"{published}: {len(statements)} receipts")
        if wrong := failing(statements):
            stop(REFUSED, f"not as it should be: {', '.join(wrong)}")


def rehearsed_platform(engine: str, path: Path | None) -> Platform:
    """The platform of a rehearsal: a file's, or the simulator in this Python.  Raises PlatformError."""
    if path is None:
        if engine != "simulator":
            raise PlatformError([f"platform: the engine {engine!r} needs a platform file."])
        values = {"name": "simulator", "engine": "simulator", "python": sys.executable, "start_s": 120.0}
        return parse_platform(values, Path.cwd())
    platform = read_platform(path)
    if platform.engine != engine:
        raise PlatformError([f"engine: the platform file is of {platform.engine!r}, not {engine!r}."])
    return platform


def chosen(names: Sequence[str]) -> Sequence[Check]:
    """Checks by name, all where none is named.  Raises RunError."""
    known = {check.name: check for check in all_checks()}
    for name in names:
        if name not in known:
            raise PlatformError([f"check: there is no check {name!r}; known: {', '.join(known)}."])
    return [known[name] for name in (sorted(set(names)) or known)]


def failing(statements: Sequence[Statement]) -> list[str]:
    """Checks that say FAIL or HOLD."""
    return [
        f"{one.predicate.check.name} {one.predicate.verdict}"
        for one in statements
        if one.predicate.verdict in (Verdict.FAIL, Verdict.HOLD)
    ]


@contextmanager
def closing(made: Run) -> Iterator[None]:
    """The run's ledger is closed afterwards."""
    try:
        yield
    finally:
        made.close()


@contextmanager
def ending() -> Iterator[None]:
    """Within it, whatever ends a run early becomes a sentence and an exit status, once every process is gone."""
    try:
        with interruptible(), usable():
            yield
    except (PlatformError, DeclarationError) as error:
        stop(UNUSABLE, "\n".join(getattr(error, "problems", [str(error)])))
    except ValueError as error:
        stop(UNUSABLE, f"{error}.")
    except (RunError, LedgerError) as error:
        stop(REFUSED, str(error))
    except Interrupted as error:
        stop(error.status, f"ended by {error.name}; what is there verifies as incomplete.")
