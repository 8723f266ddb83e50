"""An observed simulation, without faults but those of a plan, over requests of the test's own."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ofl.contract import observation_v1 as seen
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.simulated import Speculation, observing
from spark_overlay.simulation.engine_life import Policy
from spark_overlay.simulation.model import Model
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.simulation.scheduler import Scheduler
from spark_overlay.simulation.world import Scenario, Simulation
from x86_worker.simulation import ChainModel, SimulatedWorker

from demo.simulated.scenarios import engine_options

KEY = bytes(range(32))
STEPS_MAX = 400
PROMPT = 90
"""Tokens: three steps of the engine's 40."""
R = TypeVar("R", bound=seen.Record)


class Asked:
    """A workload: requests that begin at a step each, and none else."""

    def __init__(self, model: Model, requests: dict[int, list[SimulatedRequest]]) -> None:
        self._requests, self._steps = requests, 0
        self.all = [request for some in requests.values() for request in some]
        for request in self.all:
            request.begin(model)

    def arrive(self, scheduler: Scheduler) -> None:
        """Those whose step it is."""
        scheduler.waiting.extend(self._requests.get(self._steps, ()))
        self._steps += 1

    def disturb(self, scheduler: Scheduler) -> list[SimulatedRequest]:
        """Nobody cancels."""
        return []


def make_request(name: str, model: Model, prompt: int = PROMPT, tokens: int = 30) -> SimulatedRequest:
    """A prompt of its own, from its name."""
    drawn = [zlib.crc32(f"{name} {at}".encode()) % model.vocabulary for at in range(prompt)]
    return SimulatedRequest(name, drawn, prompt + tokens)


class Observed:
    """One run.  folder: of observations and plan.  model: ChainModel unless given."""

    def __init__(
        self,
        folder: Path,
        policy: Policy = "capacity",
        *,
        trims: bool = False,
        speculation: Speculation = "remote",
        model: ChainModel | None = None,
        requests: dict[int, list[str]] | None = None,
        settings: bool = True,
    ) -> None:
        self.folder, self.plan = folder, folder / "plan.jsonl"
        self.model = model or ChainModel(window=8)
        options = replace(engine_options(self.model, policy), trims=trims)
        worker = SimulatedWorker(self.model, max_slots=options.load.max_requests, max_frame_bytes=4096)
        made = {
            at: [make_request(name, self.model) for name in names]
            for at, names in (requests or {1: ["one"]}).items()
        }
        self.workload = Asked(self.model, made)
        environ = {
            "VLLM_DSPARK_OBSERVE": str(folder),
            "VLLM_DSPARK_OBSERVE_KEY": KEY.hex(),
            "VLLM_DSPARK_OBSERVE_ARM": "test",
            "VLLM_DSPARK_OBSERVE_FAULT_PLAN": str(self.plan),
        }
        wanted = ObserveSettings.from_environ(environ) if settings else None
        on_engine = None if wanted is None else observing(wanted, speculation)
        self.simulation = Simulation(
            Scenario(1, options, faults=False), self.model, worker, self.workload, on_engine
        )

    def arm(self, *orders: dict[str, object]) -> None:
        """Write the plan as a harness does."""
        written = self.plan.with_suffix(".new")
        written.write_text("".join(json.dumps(order) + "\n" for order in orders))
        written.replace(self.plan)

    def run(self) -> "Observed":
        """Until every request has ended, and the engine too."""
        for _ in range(STEPS_MAX):
            self.simulation.step()
            if all(request.finished for request in self.workload.all):
                break
        else:
            raise AssertionError("the requests do not end")
        self.simulation.close()
        return self

    def texts(self) -> dict[str, list[int]]:
        """By request, what was said, as far as it was asked for."""
        return {
            request.name: request.tokens[request.prompt_length : request.length_max]
            for request in self.workload.all
        }

    def lines(self, rank: int = 0) -> list[seen.Observation]:
        """One rank's file."""
        (path,) = self.folder.glob(f"observations-*-rank{rank}.jsonl")
        return [seen.read_line(line) for line in path.read_bytes().splitlines(keepends=True)]

    def records(self, kind: type[R], rank: int = 0) -> list[R]:
        """One kind of one rank."""
        return [line.record for line in self.lines(rank) if isinstance(line.record, kind)]

    def moments(self) -> Sequence[tuple[str, int]]:
        """Of the fault seam."""
        return [(fault.moment, fault.step) for fault in self.records(seen.Fault)]
