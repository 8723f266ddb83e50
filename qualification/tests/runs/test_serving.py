"""The arm process's side: when requests begin and are cancelled, what is told and what is written; and prompts."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from ofl.contract.observation_v1 import Blind
from one_check import FACTS
from qualification.arms.harness import ObservationFile
from qualification.arms.prompts import Prompts
from qualification.arms.protocol import (
    CaseOrder,
    FaultOrder,
    ProtocolError,
    Request,
    case_line,
    read_case,
    read_facts,
    read_message,
    write_message,
)
from qualification.arms.serve import ArmServer, Progress


class Engine:
    """Says one token a step for each request, its step's number; ends it after its length.  Told: what happened."""

    def __init__(self, folder: Path) -> None:
        self.prompts, self.blind = Prompts(100), Blind(bytes(32))
        self._folder = folder
        self._left: dict[str, int] = {}
        self.told: list[Any] = []
        self.steps = 0

    @property
    def busy(self) -> bool:
        return bool(self._left)

    def start(self) -> seen.Facts:
        return read_facts(json.loads(FACTS))

    def harness(self, facts: seen.Facts) -> ObservationFile:
        return ObservationFile(self._folder / "harness.jsonl", facts, clock_ns=lambda: 7)

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        self.told.append(("faults", case, len(faults)))

    def add(self, request: str, prompt: list[int], max_tokens: int) -> None:
        self.told.append(("add", request, self.steps, len(prompt)))
        self._left[request] = max_tokens

    def abort(self, request: str) -> None:
        self.told.append(("abort", request, self.steps))
        del self._left[request]

    def step(self) -> list[Progress]:
        self.steps += 1
        said = []
        for request in list(self._left):
            self._left[request] -= 1
            done = not self._left[request]
            said.append(Progress(request, [self.steps], "length" if done else ""))
            if done:
                del self._left[request]
        return said

    def close(self) -> None:
        self.told.append("closed")


def request(name: str, max_tokens: int, **more: int) -> Request:
    return Request(name, 5, 1, 0, 0, max_tokens, **more)


def served(
    folder: Path, *cases: CaseOrder, end: bytes = b'{"order":"quit"}\n'
) -> tuple[Engine, list[Any], list[Any]]:
    """What the engine, the runner and the file were told."""
    engine, events = Engine(folder), io.BytesIO()
    orders = io.BytesIO(b"".join(write_message(case_line(case)) for case in cases) + end)
    assert ArmServer(engine, orders, events).serve() == 0
    lines = (folder / "harness.jsonl").read_bytes().splitlines(keepends=True)
    observations = [seen.read_line(line) for line in lines]
    assert [each.index for each in observations] == list(range(len(observations)))
    return (
        engine,
        [json.loads(line) for line in events.getvalue().splitlines()],
        [each.record for each in observations],
    )


def test_a_request_begins_once_so_many_steps_of_its_case_have_passed(tmp_path: Path) -> None:
    first = CaseOrder("c.1", "c", (request("a", 6), request("b", 2, at_step=4)))
    second = CaseOrder("c.2", "c", (request("d", 1, at_step=1), request("e", 1)))
    engine, _, _ = served(tmp_path, first, second)
    added = [each[1:3] for each in engine.told if each[0] == "add"]
    assert added == [("a", 0), ("b", 4), ("e", 6), ("d", 7)]


def test_no_step_passes_while_nothing_runs(tmp_path: Path) -> None:
    """A request that is to begin later than the others' end begins at once then: an idle engine takes no steps."""
    engine, _, _ = served(tmp_path, CaseOrder("c.1", "c", (request("a", 2), request("b", 1, at_step=50))))
    assert [each[1:3] for each in engine.told if each[0] == "add"] == [("a", 0), ("b", 2)]
    assert engine.steps == 3


def test_a_request_is_cancelled_once_so_many_tokens_are_there(tmp_path: Path) -> None:
    engine, events, records = served(tmp_path, CaseOrder("c.1", "c", (request("a", 9, cancel_after=3),)))
    assert ("abort", "a", 3) in engine.told
    (completed,) = [each for each in records if isinstance(each, seen.Completed)]
    assert (completed.finish, completed.output_tokens, completed.prompt_tokens) == ("abort", 3, 5)
    assert {"event": "completed", "request": "a", "finish": "abort", "output_tokens": 3} in events


def test_a_request_that_ends_first_is_not_cancelled(tmp_path: Path) -> None:
    engine, _, records = served(tmp_path, CaseOrder("c.1", "c", (request("a", 3, cancel_after=3),)))
    assert not [each for each in engine.told if each[0] == "abort"]
    assert [each.finish for each in records if isinstance(each, seen.Completed)] == ["length"]


def test_the_file_holds_cases_and_ends_and_a_tag_for_the_text(tmp_path: Path) -> None:
    _, _, records = served(tmp_path, CaseOrder("c.1", "c", (request("a", 2),)))
    tag = Blind(bytes(32)).text([1, 2])
    assert records[1:] == [
        seen.Case("c", "", begins=True),
        seen.Completed("a", 5, 2, "length", tag),
        seen.Case("c", "", begins=False),
        seen.Closed(records=4, dropped=0),
    ]


def test_a_runner_that_is_gone_is_no_end_in_order(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the runner is gone"):
        served(tmp_path, end=b"")
    assert b'"kind":"closed"' not in (tmp_path / "harness.jsonl").read_bytes()


def test_orders_survive_their_way() -> None:
    case = CaseOrder(
        "c.1", "c", (request("a", 2, at_step=3, cancel_after=1),), (FaultOrder("a", "hold_reply", 6),)
    )
    assert read_case(read_message(write_message(case_line(case)))) == case


@pytest.mark.parametrize("order", [{}, {"name": "c", "check": "c", "requests": [{}], "faults": []}])
def test_an_order_that_is_no_case_is_refused(order: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="this is no case"):
        read_case(order)


def test_prompts_are_the_same_for_the_same_numbers_and_share_what_they_are_told_to() -> None:
    prompts = Prompts(512)
    one, other = prompts.make(30, seed=1, group=4, shared=12), prompts.make(40, seed=2, group=4, shared=12)
    assert one == Prompts(512).make(30, seed=1, group=4, shared=12)
    assert (len(one), len(other)) == (30, 40)
    assert one[:12] == other[:12]
    assert one[12:] != other[12:30]
    assert one[:12] != prompts.make(30, seed=1, group=5, shared=12)[:12]
    assert all(3 <= token < 511 for token in one + other)


def test_a_text_is_cut_into_stretches_that_go_round() -> None:
    text = list(range(10, 30))
    prompt = Prompts(512, text).make(25, seed=3)
    start = text.index(prompt[0])
    assert prompt == [text[(start + at) % 20] for at in range(25)]


@pytest.mark.parametrize(("tokens", "shared"), [(0, 0), (4, 5), (4, -1)])
def test_a_prompt_that_cannot_be_is_refused(tokens: int, shared: int) -> None:
    with pytest.raises(ValueError, match="cannot share"):
        Prompts(512).make(tokens, seed=1, shared=shared)
