"""The arm process's side of the conversation, the same for every engine: orders in, cases run, events and observations
out.

Owns when a request begins and is cancelled, counted in engine steps and tokens, never in time.  Standard library and
`ofl` only.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from ofl.contract import observation_v1 as seen
from ofl.contract.observation_v1.blind import Blind

from qualification.arms.harness import ObservationFile
from qualification.arms.prompts import Prompts
from qualification.arms.protocol import (
    LINE_BYTES_MAX,
    CaseOrder,
    FaultOrder,
    Request,
    facts_fields,
    read_case,
    read_message,
    write_message,
)

STEPS_MAX = 200_000
"""Engine steps of one case; one that takes more is not going to end."""


class ArmFailedError(Exception):
    """The engine cannot be had, or cannot go on; the text is one sentence for the runner."""


@dataclass(frozen=True)
class Progress:
    """What a step did for a request.  tokens: new ones.  finish: "length", "stop", "error", or "" while it goes on."""

    request: str
    tokens: Sequence[int]
    finish: str = ""


class Backend(Protocol):
    """An engine as the arm process drives it."""

    @property
    def prompts(self) -> Prompts:
        """Made for this engine's target."""

    @property
    def blind(self) -> Blind:
        """Tags under the run's key."""

    @property
    def busy(self) -> bool:
        """Whether any request has not ended."""

    def start(self) -> seen.Facts:
        """Build the engine; what rank 0's hook says of it.  Raises ArmFailedError."""

    def harness(self, facts: seen.Facts) -> ObservationFile:
        """The file for what the arm process sees."""

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """Put the case's faults, or none, where the fault seam reads them."""

    def add(self, request: str, prompt: list[int], max_tokens: int) -> None:
        """Begin a request, greedy, to the very length."""

    def abort(self, request: str) -> None:
        """End a request early."""

    def step(self) -> Sequence[Progress]:
        """One engine step."""

    def close(self) -> None:
        """End the engine, so that its hooks close their files."""


@dataclass
class _Running:
    wanted: Request
    prompt_tokens: int
    tokens: list[int] = field(default_factory=list)


class ArmServer:
    """One arm process."""

    def __init__(self, backend: Backend, orders: BinaryIO, events: BinaryIO) -> None:
        self._backend, self._orders, self._events = backend, orders, events
        self._running: dict[str, _Running] = {}
        self._harness: ObservationFile | None = None

    def serve(self) -> int:
        """From the engine's start to its end; the exit status."""
        try:
            facts = self._backend.start()
        except ArmFailedError as error:
            self._say(event="refused", text=str(error))
            return 1
        self._harness = self._backend.harness(facts)
        self._say(event="ready", facts=facts_fields(facts))
        try:
            for order in self._read():
                self._run(read_case(order))
        except Exception as error:
            # Not narrower: whatever an engine raises, the runner is told before the process is gone.
            self._harness.abandon()
            self._say(event="failed", text=" ".join(f"{type(error).__name__}: {error}".split())[:500])
            raise
        self._backend.close()
        self._harness.close()
        self._say(event="closed")
        return 0

    def _read(self) -> Iterator[dict[str, Any]]:
        """Orders until the last; a runner that is gone is an end without one."""
        while line := self._orders.readline(LINE_BYTES_MAX):
            order = read_message(line)
            if order.get("order") == "quit":
                return
            yield order
        raise ArmFailedError("the runner is gone")

    # --- a case ---

    def _run(self, case: CaseOrder) -> None:
        assert self._harness is not None, "the engine is up"
        self._backend.arm(case.name, case.faults)
        self._harness.write(seen.Case(case.check, "", begins=True))
        waiting = list(case.requests)
        steps = 0
        while waiting or self._backend.busy:
            if not self._backend.busy:  # no step passes without a request
                steps = max(steps, min(request.at_step for request in waiting))
            for request in [request for request in waiting if request.at_step <= steps]:
                waiting.remove(request)
                self._begin(request)
            for progress in self._backend.step():
                self._take(progress)
            steps += 1
            if steps > STEPS_MAX:
                raise ArmFailedError(f"the case {case.name} has not ended after {STEPS_MAX} steps")
        self._harness.write(seen.Case(case.check, "", begins=False))
        self._say(event="finished", name=case.name)

    def _begin(self, request: Request) -> None:
        prompt = self._backend.prompts.make(request.tokens, request.seed, request.group, request.shared)
        self._backend.add(request.name, prompt, request.max_tokens)
        self._running[request.name] = _Running(request, len(prompt))
        self._say(event="opened", request=request.name)

    def _take(self, progress: Progress) -> None:
        running = self._running.get(progress.request)
        if running is None:
            return  # a token that came with the cancel
        running.tokens += progress.tokens
        after = running.wanted.cancel_after
        if progress.finish:
            self._complete(progress.request, progress.finish)
        elif after and len(running.tokens) >= after:
            self._backend.abort(progress.request)
            self._complete(progress.request, "abort")

    def _complete(self, request: str, finish: str) -> None:
        assert self._harness is not None, "the engine is up"
        running = self._running.pop(request)
        count = len(running.tokens)
        tag = self._backend.blind.text(running.tokens)
        self._harness.write(seen.Completed(request, running.prompt_tokens, count, finish, tag))
        self._say(event="completed", request=request, finish=finish, output_tokens=count)

    def _say(self, **fields: Any) -> None:
        self._events.write(write_message(fields))
        self._events.flush()


@contextmanager
def own_stdout() -> Iterator[BinaryIO]:
    """stdout for events alone: what else is printed goes to stderr."""
    with os.fdopen(os.dup(1), "wb") as events:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        yield events
