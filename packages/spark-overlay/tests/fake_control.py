"""What an engine's rank 0 does with its control file and its stats file, for tests that need both and no engine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_overlay.control.files import read_record
from spark_overlay.control.record import ControlFileError, ControlRecord

LOOK_EVERY_S = 0.01


@dataclass
class FakeRankZero:
    """Obeys a control file and writes a stats file.

    told: what else the stats say.  obeys: whether it does what it is asked.  failing: of its rounds, one in so many
    fails; 0: none.  orders: states in the order in which they took effect; ordered: set by the first of them.
    """

    control: Path
    stats: Path
    told: dict[str, Any] = field(default_factory=lambda: {"policy": "capacity", "connected": True})
    obeys: bool = True
    failing: int = 0
    state: str = "active"
    orders: list[str] = field(default_factory=list)
    ordered: threading.Event = field(default_factory=threading.Event)
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("rounds", "rounds_ok"), 0))

    def drafts_on(self) -> bool:
        """A request begins: its rounds are counted, all of them before its first token."""
        self.look()
        paused = self.state == "paused"
        for _ in range(8):
            self.count("rounds")
            if paused:
                self.count("rounds_paused")
            elif self.failing and self.counters["rounds"] % self.failing == 0:
                self.count("rounds_failed")
                self.count("fallback_timeout")
            else:
                self.count("rounds_ok")
        self.write()
        return not paused

    def look(self) -> None:
        """As the engine's thread does."""
        try:
            record = read_record(self.control) or ControlRecord()
        except ControlFileError:
            return
        if self.obeys and record.state != self.state:
            self.state = record.state
            self.orders.append(record.state)
            self.write()
            self.ordered.set()

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def write(self) -> None:
        """The stats file, replaced as a whole."""
        control = {"file": str(self.control), "state": self.state, "problem": ""}
        stats = {"counters": self.counters, "latency": {}, "acceptance": {}, "control": control, **self.told}
        new = self.stats.with_suffix(".new")
        new.write_text(json.dumps(stats))
        new.replace(self.stats)


@contextmanager
def fake_rank_zero(folder: Path, **given: Any) -> Iterator[FakeRankZero]:
    """One that looks at its file until the end."""
    rank = FakeRankZero(folder / "control.json", folder / "stats.json", **given)
    lock = threading.Lock()
    write, ending = rank.write, threading.Event()

    def write_alone() -> None:
        with lock:
            write()

    rank.write = write_alone  # type: ignore[method-assign]
    rank.write()

    def run() -> None:
        while not ending.wait(LOOK_EVERY_S):
            rank.look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rank
    finally:
        ending.set()
        thread.join(20)
        assert not thread.is_alive()
