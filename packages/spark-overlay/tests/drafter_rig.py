"""What tests of a drafter share: the facts of a small engine, its settings, and a drafter on a simulated wire."""

import json
from typing import Any

import pytest
from ofl.contract.dspark_v1 import RowDtype
from spark_overlay.interface import EngineFacts
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.settings import Settings
from spark_overlay.simulation.transport import SimulatedTransport, SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker

FACTS = EngineFacts(
    vocabulary=1000,
    row_elements=16,
    row_dtype=RowDtype.BFLOAT16,
    tap_count=2,
    window=6,
    max_positions=500,
    block_length=4,
    max_slots=3,
)
FULL_ATTENTION = EngineFacts(1000, 512, RowDtype.FLOAT32, 2, 0, 500, 4, 3)
"""Rows of 2,048 bytes, and no window."""
ENVIRONMENT = {
    "VLLM_DSPARK_REMOTE": "tcp://worker:18620",
    "VLLM_DSPARK_REMOTE_IDENTITY": "ab" * 32,
    "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": "cd" * 32,
    "VLLM_DSPARK_REMOTE_LOG_EVERY": "0",
}


def make_settings(**changes: str) -> Settings:
    """Good settings with these changes, each by the last part of its name."""
    made = Settings.from_environ(
        ENVIRONMENT | {f"VLLM_DSPARK_REMOTE_{name}": text for name, text in changes.items()}
    )
    assert made is not None
    return made


class DrafterRig:
    """A drafter on a simulated wire, without its threads: the test connects when it wants.

    now_ns: what the drafter's clock says.
    """

    def __init__(self, settings: Settings, facts: EngineFacts = FACTS) -> None:
        self.settings, self.facts = settings, facts
        self.now_ns = 0
        self.worker = SimulatedWorker(session_shape(settings, facts))
        self.wire = SimulatedWire(self.worker.answer)
        self.drafter = RemoteDrafter(settings, facts, connect=self.wire.connect, clock_ns=lambda: self.now_ns)

    @property
    def transport(self) -> SimulatedTransport:
        """The newest connection."""
        return self.wire.connections[-1]

    def connect(self) -> SimulatedTransport:
        """A new connection, which must come about."""
        assert self.drafter.link.attempt()
        return self.transport

    def replace_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In every round from now on, once its messages are made, the link has another connection."""
        frames = self.drafter.core.frames

        def replaced() -> Any:
            built = frames()
            session = self.drafter.link.session
            assert session is not None
            self.drafter.link.lost(session, "as the test asks")
            self.connect()
            return built

        monkeypatch.setattr(self.drafter.core, "frames", replaced)

    def stats(self) -> dict[str, Any]:
        """As a reader of the file gets them."""
        stats: dict[str, Any] = json.loads(json.dumps(self.drafter.stats(), allow_nan=False))
        return stats

    def counters(self) -> dict[str, int]:
        """All of them, those at zero too."""
        counters = self.drafter.stats()["counters"]
        assert isinstance(counters, dict)
        return counters
