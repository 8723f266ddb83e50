"""An observed drafter on a simulated wire, step by step."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from drafter_rig import FACTS, DrafterRig, make_settings
from ofl.contract import observation_v1 as seen
from ofl.contract.observation_v1 import SCHEMA, Facts, Record
from spark_overlay.observe.observer import Observer
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.watch import StepRequest, Use
from spark_overlay.round.messages import RoundRequest, RoundResult

KEY = bytes(range(32))
R = TypeVar("R", bound=Record)
ENGINE_FACTS = Facts(
    schema=SCHEMA, start_id="ab" * 16, arm="test", rank=0, ranks=1, engine="simulator", engine_version="1",
    overlay_version="1", device="simulated", device_capability="", driver="", speculator="", speculator_module="",
    policy="capacity", transport="simulated", draft_parameters=0, draft_layers=0, budget_tokens=100,
    block_length=FACTS.block_length, window=FACTS.window, capabilities=(),
)  # fmt: skip


class ListSink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.defects: list[Exception] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def defect(self, error: Exception) -> None:
        self.defects.append(error)

    def of(self, kind: type[R]) -> list[R]:
        return [record for record in self.records if isinstance(record, kind)]


class States:
    """Request states as an engine keeps them."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}

    def add_request(self, req_id: str, slot: int) -> None:
        self.req_id_to_index[req_id] = slot


def scheduled(name: str, **changes: Any) -> StepRequest:
    """A request of a step: one token at position 10, sampled."""
    values: dict[str, Any] = {
        "name": name, "slot": 0, "start": 10, "q": 1, "kept": 1, "sampled": 1, "rejected": 0, "verified": 0,
        "anchor": 5,
    }  # fmt: skip
    return StepRequest(**values | changes)


def observe_settings(folder: Path, **changes: str) -> ObserveSettings:
    """Good settings, and a plan in the folder."""
    environ = {
        "VLLM_DSPARK_OBSERVE": str(folder),
        "VLLM_DSPARK_OBSERVE_KEY": KEY.hex(),
        "VLLM_DSPARK_OBSERVE_FAULT_PLAN": str(folder / "plan.jsonl"),
    }
    made = ObserveSettings.from_environ(
        environ | {f"VLLM_DSPARK_OBSERVE_{name}": text for name, text in changes.items()}
    )
    assert made is not None
    return made


class ObservedRig(DrafterRig):
    """Steps of one request in slot 0, unless said otherwise; the drafter is attached and not yet connected."""

    def __init__(self, folder: Path, use: Use | None = None, **settings: str) -> None:
        super().__init__(make_settings(**settings))
        self.states = States()
        self.observer = Observer(observe_settings(folder), ENGINE_FACTS, use or Use("capacity"), self.states)
        self.sink = ListSink()
        self.observer.watch.sink = self.sink
        self.observer.attach(self.drafter, FACTS.max_positions)
        self.states.add_request("one", 0)
        self.end = 0

    def step(
        self, rows: int, *, n_out: int = 4, name: str = "one", slot: int = 0, remaining: int = 0
    ) -> RoundResult:
        """The next rows of a request, and a round about them."""
        asked = scheduled(
            name, slot=slot, start=self.end, q=rows, kept=rows, sampled=int(n_out > 0), remaining=remaining
        )
        self.observer.begin(lambda: [asked])
        request = RoundRequest(slot, name, self.end, rows, 0, 5 if n_out else 0, n_out)
        result = self.drafter.round([request], os.urandom(rows * FACTS.row_bytes))
        self.end += rows
        self.observer.decided(lambda: decision(result))
        self.observer.end(result.drafts.tolist)
        return result

    def exchanges(self) -> list[seen.Exchanged]:
        """Those that are settled."""
        return self.sink.of(seen.Exchanged)

    def moments(self) -> list[tuple[str, int]]:
        """Of faults."""
        return [(fault.moment, fault.step) for fault in self.sink.of(seen.Fault)]


def decision(result: RoundResult, number: int = 1) -> Any:
    """A result as the broadcast says it."""
    without = (result.outcomes != 0) & (result.outcomes != 1)
    return SimpleNamespace(
        round=number,
        reason=result.reason,
        outcomes=result.outcomes,
        drafts=result.drafts,
        confidences=result.confidences,
        without=without,
    )


def replies(records: Sequence[seen.Exchanged]) -> list[str]:
    """What came of each."""
    return [record.reply for record in records]
