"""The drafting engine's part: worker up, engine up through the overlay's launcher, text streamed, drill driven.

Reads top to bottom as it happens.  Uses the packages as an operator would: their commands, settings and files.
"""

import contextlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from demo.drill import Drill, Order, Phase, Seen
from demo.options import PAIR, Options, prompts
from demo.processes import DemoError, Engine, Worker, engine_env, overlay_launcher, tool
from demo.progress import Progress
from demo.texts import Text

DRAFTS = 5
DRILL_TEXT_TOKENS = 800
"""The drill goes on with the next prompt when one text has grown so long."""
IDENTITY_S = 60.0


@dataclass
class Drafted:
    """What the drafting engine said.  seconds: from the first token of each text to its last; stats: the overlay's."""

    texts: list[Text]
    seconds: float
    stats: dict[str, Any]
    drill: Drill | None


def draft(options: Options, folder: Path, console: Console) -> Drafted:
    """Run worker and drafting engine to the end of the text (or of the drill); ends both."""
    with contextlib.ExitStack() as stack:
        worker = Worker(folder, PAIR, options.port)
        stack.callback(worker.end)
        with Progress(console, "starting the worker") as progress:
            worker.start()
            identity = _identity(folder)
            worker.wait_ready(progress.tick)
        engine = _engine(options, folder, worker.endpoint, identity)
        stack.callback(engine.end)
        with Progress(console, "starting vLLM with the overlay (CPU, Triton's interpreter)") as progress:
            seconds = engine.wait_ready(progress.tick)
        console.print(
            f"worker and engine are up ({seconds:.0f} s); the deadline of a round is {options.deadline_ms} ms\n",
            style="dim",
            highlight=False,
        )
        drill = Drill(options.drill_round) if options.drill else None
        stage = _Stage(worker, engine, folder / "overlay-stats.json", drill)
        texts, generated_s = stage.generate(options)
        engine.quit()
        return Drafted(texts, generated_s, stage.stats(), drill)


def _identity(folder: Path) -> dict[str, str]:
    """What the engine must be configured with, from the worker's own command."""
    output = folder / "identity.json"
    command = [
        tool("x86-worker"),
        "identity",
        "--drafter",
        str(PAIR / "drafter"),
        "--target",
        str(PAIR / "target"),
        "--output",
        str(output),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IDENTITY_S, check=False)
    except subprocess.TimeoutExpired:
        raise DemoError(f"the drafter's identity was not read within {IDENTITY_S:.0f} s.") from None
    if done.returncode:
        raise DemoError(f"the drafter has no identity: {done.stderr.strip()}")
    record: dict[str, str] = json.loads(output.read_text(encoding="utf-8"))
    return record


def _engine(options: Options, folder: Path, endpoint: str, identity: dict[str, str]) -> Engine:
    """The engine of capacity policy: its drafter folder holds config.json and nothing else."""
    drafter = folder / "drafter-config-only"
    drafter.mkdir()
    shutil.copy(PAIR / "drafter" / "config.json", drafter)
    overlay = {
        "VLLM_DSPARK_REMOTE": endpoint,
        "VLLM_DSPARK_REMOTE_POLICY": "capacity",
        "VLLM_DSPARK_REMOTE_IDENTITY": identity["identity"],
        "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": identity["markov_identity"],
        "VLLM_DSPARK_REMOTE_TIMEOUT_MS": str(options.deadline_ms),
        "VLLM_DSPARK_REMOTE_STATS_FILE": str(folder / "overlay-stats.json"),
        "VLLM_DSPARK_REMOTE_LOG_EVERY": "1",
    }
    speculative = {
        "method": "dspark",
        "model": str(drafter),
        "num_speculative_tokens": DRAFTS,
        "draft_sample_method": "greedy",
    }
    extra = {"model": str(PAIR / "target"), "speculative_config": speculative}
    return Engine("drafting engine", folder, extra, engine_env() | overlay, overlay_launcher())


class _Stage:
    """Streams texts from the engine and, in a drill, does to the worker what the drill orders."""

    def __init__(self, worker: Worker, engine: Engine, stats_file: Path, drill: Drill | None) -> None:
        self._worker, self._engine, self._stats_file, self._drill = worker, engine, stats_file, drill
        self._done = False

    def generate(self, options: Options) -> tuple[list[Text], float]:
        """One text, or as many as the drill needs; seconds from first to last token, summed."""
        waiting = [options.prompt, *(text for text in prompts() if text != options.prompt)]
        max_tokens = DRILL_TEXT_TOKENS if self._drill else options.tokens
        texts: list[Text] = []
        seconds = 0.0
        while waiting and not self._done:
            text = Text(waiting.pop(0), ordered=max_tokens)
            texts.append(text)
            show(text.prompt, "\x1b[2m")
            self._engine.order(prompt=text.prompt, max_tokens=max_tokens)
            seconds += text.collect(self._engine.tokens(), lambda: self._told(texts))
            show("\n")
            self._done = self._done or self._drill is None
        return texts, seconds

    def stats(self) -> dict[str, Any]:
        """The overlay's statistics file as it stands; empty before the first round."""
        with contextlib.suppress(FileNotFoundError):
            stats: dict[str, Any] = json.loads(self._stats_file.read_text(encoding="utf-8"))
            return stats
        return {}

    def _told(self, texts: list[Text]) -> None:
        show(texts[-1].latest)
        if self._drill is None:
            return
        if self._drill.phase is Phase.RECOVERY:
            self._worker.ready()  # a worker that could not start again ends the drill with its own words
        counters = self.stats().get("counters", {})
        totals = [counters.get(name, 0) for name in ("rounds_ok", "rounds_failed", "resync_rows")]
        order = self._drill.watch(Seen(sum(len(text.ids) for text in texts), *totals))
        if order is Order.KILL:
            self._worker.kill()
            show("\n[the worker was killed]\n", "\x1b[33m")
        elif order is Order.START:
            self._worker.start()
            show("\n[the worker is started again]\n", "\x1b[33m")
        elif order is Order.STOP:
            self._engine.order(stop=True)
            texts[-1].cut = True
            self._done = True


def show(text: str, style: str = "") -> None:
    """Write text; on a terminal in the style, and without what would steer it."""
    if sys.stdout.isatty():
        text = "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)
        text = f"{style}{text}\x1b[0m" if style else text
    sys.stdout.write(text)
    sys.stdout.flush()
