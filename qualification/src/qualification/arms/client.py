"""The runner's side of an arm: implements `checks.model.Engine` over the arm process's pipe.

Owns the conversation and its limits, and tells the ledger of every request before it is sent.  Every wait is bounded by
the window.
"""

import os
import select
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ofl.contract import observation_v1 as seen

from qualification.arms.protocol import (
    CaseOrder,
    FaultOrder,
    ProtocolError,
    Request,
    case_line,
    read_facts,
    read_message,
    write_message,
)
from qualification.checks import model
from qualification.runs.ledger import Ledger
from qualification.runs.processes import Process
from qualification.runs.supervisor import Supervisor
from qualification.runs.window import Window

EVENT_S = 300.0
"""Longest silence of an engine at work."""
CLOSE_S = 120.0
LOOK_S = 0.5
"""How often a silent arm's supervisor is asked; its own end is seen at once."""


class ArmError(Exception):
    """The arm did not do what it must; its start is to be abandoned.  One sentence."""


class DeadlinePassedError(Exception):
    """The submission deadline has passed: no case begins any more."""


class ArmClient:
    """One start of an arm, from its process on.  start: the runner's name for it."""

    def __init__(
        self, process: Process, ledger: Ledger, window: Window, supervisor: Supervisor, start: str
    ) -> None:
        self._process, self.ledger, self._window = process, ledger, window
        self._supervisor, self.start = supervisor, start
        self._facts: seen.Facts | None = None
        self._unread = b""
        self._cases = 0

    @property
    def facts(self) -> seen.Facts:
        """What the engine said of itself."""
        assert self._facts is not None, "it was waited for"
        return self._facts

    def wait_ready(self, within_s: float) -> seen.Facts:
        """What the engine says of itself.  Raises ArmError."""
        event = self._event(within_s)
        if event.get("event") == "refused":
            raise ArmError(f"the engine cannot be had: {event.get('text')}")
        if event.get("event") != "ready":
            raise ArmError(f"the engine says {event.get('event')!r} where 'ready' is due")
        try:
            facts = read_facts(event.get("facts", {}))
        except ProtocolError as error:
            raise ArmError(f"the engine's facts cannot be read: {error}") from None
        self._facts = facts
        return facts

    def run(
        self, check: str, requests: Sequence[Request], faults: Sequence[FaultOrder]
    ) -> list[seen.Completed]:
        """One case, to the end of every request.  Raises ArmError and DeadlinePassedError."""
        if not self._window.takes_cases:
            raise DeadlinePassedError("the window's submission deadline has passed")
        self._cases += 1
        case = CaseOrder(f"{check}.{self._cases}", check, tuple(requests), tuple(faults))
        told = {"start": self.start, "case": case.name}
        self.ledger.append("case", **told, check=check, requests=len(requests), faults=len(faults))
        for fault in faults:
            self.ledger.append("fault", **told, request=fault.request, action=fault.action)
        for request in requests:
            self.ledger.append(
                "intent", **told, request=request.name, tokens=request.tokens, max_tokens=request.max_tokens
            )
        self._order(case_line(case))
        completed = self._follow(case, told)
        if missing := [request.name for request in requests if request.name not in completed]:
            raise ArmError(f"the case {case.name} ended without the request {missing[0]!r}")
        return [completed[request.name] for request in requests]

    def close(self) -> None:
        """Let the engine end by itself, so that its hooks close their files.  Raises ArmError."""
        self._order({"order": "quit"})
        event = self._event(CLOSE_S)
        if event.get("event") != "closed":
            raise ArmError(
                f"the engine says {event.get('event')!r} where 'closed' is due: {event.get('text', '')}"
            )
        status = self._process.wait(self._left(CLOSE_S))
        if status != 0:
            raise ArmError(f"the arm's process ended with status {status}: {self._process.last_words()}")

    # --- inside ---

    def _follow(self, case: CaseOrder, told: dict[str, str]) -> dict[str, seen.Completed]:
        wanted = {request.name: request for request in case.requests}
        completed: dict[str, seen.Completed] = {}
        while True:
            event = self._event(EVENT_S)
            kind, request = event.get("event"), event.get("request")
            if kind == "finished":
                return completed
            if kind not in ("opened", "completed") or request not in wanted:
                raise ArmError(f"the engine failed: {event.get('text') or event}")
            if kind == "opened":
                self.ledger.append("opened", **told, request=request)
                continue
            finish, tokens = str(event.get("finish")), int(event.get("output_tokens", -1))
            self.ledger.append("completed", **told, request=request, finish=finish, output_tokens=tokens)
            completed[request] = seen.Completed(request, wanted[request].tokens, tokens, finish, seen.NO_TAG)

    def _order(self, order: dict[str, Any]) -> None:
        self._supervisor.check()
        stdin = self._process.child.stdin
        assert stdin is not None
        try:
            stdin.write(write_message(order))
            stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _event(self, within_s: float) -> dict[str, Any]:
        """The next event.  Raises ArmError where none comes in time, StoppedError, WindowError."""
        until_s = time.monotonic() + self._left(within_s)
        stdout = self._process.child.stdout
        assert stdout is not None
        while b"\n" not in self._unread:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                self._window.left_s(0.0)
                raise ArmError(f"the engine said nothing for {within_s:g} s: {self._process.last_words()}")
            readable, _, _ = select.select([stdout], [], [], min(left_s, LOOK_S))
            self._supervisor.check()
            if readable:
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    raise self._ended()
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return read_message(line)
        except ProtocolError as error:
            raise ArmError(f"the arm's process says what it must not: {error}") from None

    def _left(self, seconds: float) -> float:
        return self._window.left_s(seconds)

    def _ended(self) -> ArmError:
        status = self._process.wait(LOOK_S)
        self._supervisor.check()
        return ArmError(f"the arm's process ended with status {status}: {self._process.last_words()}")


class CheckEngine:
    """One check's view of an arm; implements `checks.model.Engine`.

    prefix: what every request's name begins with, as the check declares; it tells its observations from those of other
    checks in the same engine.
    """

    def __init__(self, client: ArmClient, check: str, prefix: str, facts: seen.Facts) -> None:
        self.facts = facts
        self._client, self._check, self._prefix = client, check, prefix
        self._known: set[str] = set()
        self._requests: dict[str, Request] = {}
        self._faults: list[FaultOrder] = []

    def submit(self, request: str, prompt: model.Prompt, max_tokens: int, *, at_step: int = 0) -> None:
        """See `Engine`.  Raises ValueError where the name is not the check's, or was used before."""
        if not request.startswith(self._prefix):
            raise ValueError(f"{self._check}: the request {request!r} does not begin with {self._prefix!r}")
        if request in self._known:
            raise ValueError(f"{self._check}: the request {request!r} is submitted twice")
        self._known.add(request)
        self._requests[request] = Request(
            request, prompt.tokens, prompt.seed, prompt.group, prompt.shared, max_tokens, at_step=at_step
        )

    def cancel(self, request: str, *, after_tokens: int) -> None:
        """See `Engine`."""
        if after_tokens < 1:
            raise ValueError(
                f"{self._check}: a request is cancelled after a token or more, not {after_tokens}"
            )
        self._requests[request] = replace(self._requests[request], cancel_after=after_tokens)

    def fault(self, order: model.FaultOrder) -> None:
        """See `Engine`."""
        self._faults.append(FaultOrder(order.request, order.action, order.hold_steps))

    def run(self) -> Sequence[seen.Completed]:
        """See `Engine`; their `text` is not told to a check, it stands in the observations."""
        requests, faults = list(self._requests.values()), self._faults
        self._requests, self._faults = {}, []
        for fault in faults:
            if fault.request not in {request.name for request in requests}:
                raise ValueError(f"{self._check}: a fault of {fault.request!r}, which is not of this case")
        return self._client.run(self._check, requests, faults)
