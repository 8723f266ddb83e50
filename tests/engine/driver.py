"""Drives engine processes from a test: a process per engine, JSON lines between, every wait bounded."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import engine_process
from preloaded import PreloadedProcess

ENGINE_SCRIPT = Path(__file__).with_name("engine_process.py")
START_S = 300.0
"""Importing vLLM and building a tiny engine on a busy machine."""
RUN_S = 150.0
END_S = 60.0
ELSEWHERE = ("PYTHONPATH", "LD_PRELOAD")
"""Where they differ from ours, a process may import other modules than we do."""
CPU_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
}


def engine_environment(**changes: str) -> dict[str, str]:
    """The environment of a CPU engine: nothing of the overlay's unless changes say so."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    return inherited | CPU_ENVIRONMENT | changes


def two_ranks() -> tuple[dict[str, str], dict[str, Any]]:
    """Changes to the environment and engine arguments for tensor parallel 2: a process per rank, a core each."""
    return (
        {"VLLM_CPU_OMP_THREADS_BIND": "0|1"},
        {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
    )


def dspark(folder: Path, drafts: int, **more: Any) -> dict[str, Any]:
    """A speculative configuration with the drafter in folder."""
    return {"method": "dspark", "model": str(folder), "num_speculative_tokens": drafts, **more}


class Engine:
    """An engine process.  log: where its stderr goes."""

    preloaded = False
    """Fork processes that have imported vLLM, where that makes no difference: not where there is CUDA."""

    def __init__(self, log: Path, environment: Mapping[str, str], front: Sequence[str] = ()) -> None:
        """front: a command that starts the process, such as the overlay's launcher with `--` at its end."""
        self.log = log
        self.process: subprocess.Popen[bytes] | PreloadedProcess
        same = all(environment.get(name) == os.environ.get(name) for name in ELSEWHERE)
        if self.preloaded and same and not front:
            self.process = PreloadedProcess(engine_process.main, environment, log)
        else:
            with log.open("ab") as stderr:
                self.process = subprocess.Popen(
                    [*front, sys.executable, str(ENGINE_SCRIPT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=dict(environment),
                )
        self._unread = b""

    def start(self, environment: Mapping[str, str | None] | None = None, **arguments: Any) -> dict[str, Any]:
        """Build the engine; its event `ready` or `refused`."""
        self.order(start=arguments, environment=dict(environment or {}))
        return self.event(START_S)

    def run(self, requests: Mapping[str, Mapping[str, Any]], pauses: Sequence[int] = ()) -> dict[str, Any]:
        """Begin a run; its first event, `paused` or `finished`."""
        self.order(run=requests, pauses=list(pauses))
        return self.event(RUN_S)

    def go(self) -> dict[str, Any]:
        """Go on after a pause; the next event."""
        self.order(go=True)
        return self.event(RUN_S)

    def stats(self) -> dict[str, Any]:
        """The drafter's figures now."""
        self.order(stats=True)
        return self.event(END_S)

    def on_ranks(self, function: str, *arguments: Any) -> list[Any]:
        """A function of `engine_ranks` on every rank; the results by rank."""
        self.order(ranks=function, arguments=list(arguments))
        results: list[Any] = self.event(END_S)["results"]
        return results

    def order(self, **order: Any) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def event(self, within_s: float) -> dict[str, Any]:
        """The next event; fails the test with the end of the log where none comes."""
        assert self.process.stdout is not None
        until = time.monotonic() + within_s
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 16) if readable else b""
            if not data:
                what = "ended" if readable else f"said nothing for {within_s:g} s"
                raise AssertionError(f"the engine {what}:\n{self.said()[-4000:]}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def said(self) -> str:
        """Everything that the process printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def quit(self) -> int:
        """Let it end itself; its exit status."""
        if self.process.poll() is None:
            self.order(quit=True)
        return self.process.wait(END_S)

    def end(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
