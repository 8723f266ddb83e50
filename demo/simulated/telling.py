"""The demo's story with the simulated engine: the same texts, drill and summary, over token ids, in simulated time.

Owns the simulated counterpart of `demo.drafting` and `demo.plain`.  What drafts is the overlay's real remote drafter
against the worker's real session core; what is simulated is the target, its scheduler, the network and the weights.
A prompt's tokens are its bytes.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from spark_overlay.simulation.clock import MS
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.simulation.scheduler import Load, Scheduler
from spark_overlay.simulation.world import STEP_NS, Scenario, Simulation, SimulationFailedError
from x86_worker.simulation import ChainModel

from demo.drafting import DRILL_TEXT_TOKENS, Drafted, show
from demo.drill import Drill, Order, Seen
from demo.options import Options, prompts
from demo.processes import DemoError
from demo.simulated.scenarios import build, engine_options
from demo.texts import Text

WINDOW = 16
POSITIONS = 1_408
"""Holds the longest prompt, in bytes, and the longest text."""
BLOCK_TOKENS = 16
LOAD = Load(
    max_requests=4, batched_tokens=512, block_tokens=BLOCK_TOKENS, kv_blocks=POSITIONS // BLOCK_TOKENS
)
FOR_EVER_NS = 86_400_000 * MS


class OneText:
    """A workload of one request at a time, given by hand; see `spark_overlay.simulation.workload.Workload`."""

    def __init__(self) -> None:
        self.ordered: SimulatedRequest | None = None

    def arrive(self, scheduler: Scheduler) -> None:
        """The request that was ordered, once."""
        if self.ordered is not None:
            scheduler.waiting.append(self.ordered)
            self.ordered = None

    def disturb(self, scheduler: Scheduler) -> list[SimulatedRequest]:
        """Nothing disturbs it."""
        return []


class Stage:
    """Streams texts from the simulated engine and, in a drill, does to the worker what the drill orders."""

    def __init__(self, options: Options) -> None:
        self.drill = Drill(options.drill_round) if options.drill else None
        self._orders = OneText()
        self.made = _simulation(options, self._orders)
        self._done = False

    def generate(self, options: Options) -> tuple[list[Text], float]:
        """One text, or as many as the drill needs; simulated seconds from the first to the last token, summed."""
        waiting = [options.prompt, *(text for text in prompts() if text != options.prompt)]
        tokens = DRILL_TEXT_TOKENS if self.drill else options.tokens
        texts: list[Text] = []
        seconds = 0.0
        while waiting and not self._done:
            text = Text(waiting.pop(0), ordered=tokens)
            texts.append(text)
            show(" ".join(map(str, text.prompt.encode())) + "\n", "\x1b[2m")
            seconds += self._generate(text, texts)
            show("\n")
            self._done = self._done or self.drill is None
        return texts, seconds

    def _generate(self, text: Text, texts: list[Text]) -> float:
        request = _request(self.made, text)
        self._orders.ordered = request
        started_ns = 0
        while not request.finished and not text.cut:
            self.made.step()
            new = request.tokens[request.prompt_length + len(text.ids) :][: text.ordered - len(text.ids)]
            started_ns = started_ns or (self.made.clock() if new else 0)
            text.ids += new
            show("".join(f"{token} " for token in new))
            self._told(text, texts)
        if text.cut:
            self.made.engine.scheduler.remove(request)
        return (self.made.clock() - started_ns) / 1e9

    def _told(self, text: Text, texts: list[Text]) -> None:
        if self.drill is None:
            return
        counters = self.made.engine.drafter.core.counters
        tokens = sum(len(one.ids) for one in texts)
        seen = Seen(tokens, counters.rounds_ok, counters.rounds_failed, counters.resync_rows)
        order = self.drill.watch(seen)
        if order is Order.KILL:
            self.made.network.kill_worker(FOR_EVER_NS)
            show("\n[the worker was killed]\n", "\x1b[33m")
        elif order is Order.START:
            self.made.network.down_until_ns = self.made.clock()
            show("\n[the worker is started again]\n", "\x1b[33m")
        elif order is Order.STOP:
            text.cut = self._done = True


def draft(options: Options, folder: Path, console: Console) -> Drafted:
    """Run the simulated engine to the end of the text (or of the drill); the overlay's log goes to the folder."""
    logging.basicConfig(filename=folder / "overlay.log", level=logging.INFO)
    stage = Stage(options)
    console.print(
        f"simulated worker and engine; the deadline of a round is {options.deadline_ms} ms of simulated time\n",
        style="dim",
        highlight=False,
    )
    try:
        texts, seconds = stage.generate(options)
    except SimulationFailedError as error:
        raise DemoError(f"{error}; {folder / 'overlay.log'} has the overlay's log.") from error
    stats: dict[str, Any] = stage.made.engine.drafter.stats()
    stage.made.close()
    return Drafted(texts, seconds, stats, stage.drill)


def repeat(drafted: list[Text]) -> tuple[list[Text], float]:
    """What the target alone says, token by token; simulated seconds from first to last token, summed."""
    model = ChainModel(window=WINDOW, max_positions=POSITIONS)
    texts = []
    for wanted in drafted:
        text = Text(wanted.prompt, ordered=wanted.due)
        state = model.begin()
        for token in text.prompt.encode():
            state = model.advance(state, token)
        while len(text.ids) < wanted.due:
            text.ids.append(model.choose(state))
            state = model.advance(state, text.ids[-1])
        texts.append(text)
    return texts, sum(max(0, len(text.ids) - 1) for text in texts) * STEP_NS / 1e9


def _simulation(options: Options, orders: OneText) -> Simulation:
    model = ChainModel(window=WINDOW, max_positions=POSITIONS)
    engine = replace(
        engine_options(model, "capacity"),
        load=LOAD,
        timeout_ms=options.deadline_ms,
        frame_bytes=1 << 20,
    )
    scenario = Scenario(0, engine, faults=False, replay="./run demo --engine sim")
    return build(scenario, model, orders)


def _request(made: Simulation, text: Text) -> SimulatedRequest:
    tokens = list(text.prompt.encode())
    if len(tokens) + text.ordered >= POSITIONS:
        raise DemoError(f"--tokens: {text.ordered} after {len(tokens)} bytes pass {POSITIONS} positions.")
    request = SimulatedRequest(f"demo-{made.rounds}", tokens, len(tokens) + text.ordered)
    request.begin(made.model)
    return request
