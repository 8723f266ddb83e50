"""A Python process in a VM that does steps for a test, one after the other, and says how each ended.

Owns what passes between the two sides: a file of orders in the shared folder, and the process's standard output.  Both
are looked at again and again, because nothing crosses from one machine to the other that could be waited for.

A step is a function of `two_vms.steps`.  Its arguments and what it returns are what JSON can say.  An error of the
transport is raised here as it was raised there.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ofl import errors
from rdma_vm.job import Job
from rdma_vm.stage import TESTS, Stage
from rdma_vm.vm import Vm

P = ParamSpec("P")
R = TypeVar("R")

LIFE_S_MAX = 800.0
STEP_S_MAX = 600.0
LOOK_S_INTERVAL = 0.005


class RemoteError(Exception):
    """A step failed other than by an error of the transport; the text is the traceback from there."""


def lines_of(job: Job) -> list[str]:
    """What the job has written so far, whole lines only."""
    path = job.folder / "stdout"
    text = path.read_text(errors="replace") if path.exists() else ""
    return text.splitlines()[: text.count("\n")]


def next_line(job: Job, known: int, what: str, seconds: float = STEP_S_MAX) -> str:
    """The line after as many as are known.  Fails with what was waited for, and with what the job complained of."""
    limit = time.monotonic() + seconds
    while True:
        ended = job.status is not None
        lines = lines_of(job)
        if len(lines) > known:
            return lines[known]
        if ended or time.monotonic() > limit:
            path = job.folder / "stderr"
            wrote = path.read_text(errors="replace") if path.exists() else ""
            how = f"ended with {job.status}" if ended else f"said nothing for {seconds:.0f} s"
            raise AssertionError(f"{what}: the process in VM {job.vm.name} {how}; it wrote:\n{wrote}")
        time.sleep(LOOK_S_INTERVAL)


def freeze(job: Job) -> None:
    """Stop all of its processes; none of them runs any more on return."""
    job.signal(signal.SIGSTOP)
    # The agent takes one line after the other, and the one processor that they share is not theirs while it does.
    job.vm.run(":").check()


def thaw(job: Job) -> None:
    job.signal(signal.SIGCONT)


@dataclass(frozen=True)
class Pending(Generic[R]):
    """A step that was begun."""

    remote: "Remote"
    name: str
    number: int

    def result(self) -> R:
        """What it returned.  Raises what it raised: an error of `ofl.errors`, or RemoteError."""
        answer = json.loads(next_line(self.remote.job, self.number, f"step {self.name}"))
        if answer["ok"]:
            return cast(R, answer["value"])
        kind = getattr(errors, answer["kind"], RemoteError)
        raise kind(answer["text"])


class Remote:
    """The process; it has begun when this is made, and ends with the test."""

    def __init__(self, vm: Vm, stage: Stage, name: str = "client") -> None:
        self._orders: Path = vm.shared / f"{name}-{time.monotonic_ns()}.orders"
        self._orders.touch()
        self._given = 0
        path = os.pathsep.join([stage.environment()["PYTHONPATH"], str(stage.folder / TESTS)])
        loop = ("-m", "two_vms.remote_loop", str(self._orders))
        self.job = vm.start(stage.python(*loop, environment={"PYTHONPATH": path}), LIFE_S_MAX)

    def start(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Order a step; it begins when those before it have ended."""
        order: dict[str, Any] = {"step": step.__name__, "args": args, "kwargs": kwargs}
        with self._orders.open("a") as file:
            file.write(json.dumps(order) + "\n")
        self._given += 1
        return Pending(self, step.__name__, self._given - 1)

    def do(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Order a step and wait until it has ended."""
        return self.start(step, *args, **kwargs).result()
