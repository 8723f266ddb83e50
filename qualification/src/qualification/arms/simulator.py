"""The arm process of the simulated engine: `python -m qualification.arms.simulator CONFIG`.

For rehearsals: it needs the overlay and the worker's simulation, no vLLM, torch or GPU, and takes seconds.  The hooks
are the overlay's own; what they stand on is `simulated`.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ofl.contract import observation_v1 as seen
from ofl.contract.observation_v1 import Blind

from qualification.arms.config import TABLES, ArmConfig, hook_places, read_config
from qualification.arms.harness import HARNESS_FILE, ObservationFile
from qualification.arms.prompts import Prompts
from qualification.arms.protocol import FaultOrder
from qualification.arms.serve import ArmFailedError, ArmServer, Progress, own_stdout
from qualification.arms.simulated import LOAD, MODEL, SimulatedEngine
from qualification.arms.simulated_hooks import hook

if TYPE_CHECKING:
    from qualification.arms.tables import Tables


class SimulatorBackend:
    """Implements `serve.Backend`."""

    def __init__(self, config: ArmConfig) -> None:
        self._config = config
        self._places = hook_places()
        self.blind = Blind(self._places.key)
        self.prompts = Prompts(MODEL.vocabulary)
        self._engine = SimulatedEngine(config.speculation, config.ranks, os.environ)
        self._tables: Tables | None = None

    @property
    def busy(self) -> bool:
        """See `Backend`."""
        return self._engine.busy

    def start(self) -> seen.Facts:
        """See `Backend`."""
        self._engine.tables = self._tables = self._open_tables()
        self._hooks = hook(self._engine, self._config, os.environ)
        self._engine.connect()
        if self._tables is not None:
            self._tables.observe(self._hooks.writers, self._places.key)
            self._tables.start()
        return self._hooks.facts

    def harness(self, facts: seen.Facts) -> ObservationFile:
        """See `Backend`."""
        return ObservationFile(self._places.folder / HARNESS_FILE, facts)

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """See `Backend`."""
        if self._tables is not None:
            self._tables.arm(case, faults)
        else:
            self._hooks.arm(case, faults)

    def add(self, request: str, prompt: list[int], max_tokens: int) -> None:
        """See `Backend`."""
        self._engine.add(request, prompt, max_tokens)

    def abort(self, request: str) -> None:
        """See `Backend`."""
        self._engine.abort(request)

    def step(self) -> list[Progress]:
        """See `Backend`."""
        return self._engine.step()

    def close(self) -> None:
        """See `Backend`."""
        self._engine.close()
        if self._tables is not None:
            self._tables.close()
        self._hooks.close()

    def _open_tables(self) -> "Tables | None":
        """Where the arm has tables; only then is the native library needed.  Raises ArmFailedError."""
        source = os.environ.get(TABLES)
        if not source:
            return None
        try:
            from qualification.arms.tables import Tables
        except ImportError as error:
            raise ArmFailedError(f"the simulated engine has no tables: {error}") from None
        return Tables(source, self._config.ranks, LOAD.batched_tokens, Path(self._config.scratch))


def main() -> int:
    """Serve one start; the exit status."""
    config = read_config(sys.argv[1])
    with own_stdout() as events:
        return ArmServer(SimulatorBackend(config), sys.stdin.buffer, events).serve()


if __name__ == "__main__":
    sys.exit(main())
