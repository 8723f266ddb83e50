"""The demo's processes: the worker, and an engine child behind pipes.  Everything that waits has a deadline.

Owns starting, watching and ending them.  Must never leave one behind: who starts them ends them on the way out, and
where the demo is killed the system ends them.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_overlay.parent_death import end_with_parent

Tick = Callable[[], None]
"""Called a few times a second while something is waited for, to show progress."""
WORKER_START_S = 120.0
ENGINE_START_S = 300.0
EVENT_S = 120.0
END_S = 20.0
POLL_S = 0.2
"""How often a file or a silent engine is looked at; ends of processes and events are waited for."""


class DemoError(Exception):
    """The demo cannot go on; the text is one sentence for the terminal."""


class Process:
    """A child process with a log file, and pipes to its stdin and stdout where asked; `end` ends it for certain."""

    def __init__(
        self, name: str, command: list[str], log: Path, env: dict[str, str], *, pipes: bool = False
    ) -> None:
        self.name, self.log = name, log
        self._log = log.open("ab")
        self._child: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=end_with_parent(),  # noqa: PLW1509  # loads nothing, takes no lock
        )
        self.pid = self._child.pid
        self.stdin = self._child.stdin

    def stdout_fd(self) -> int:
        """Descriptor of the pipe that stdout=PIPE made."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def wait_end(self, seconds: float) -> bool:
        """Whether the process ended within seconds."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self._child.poll()

    def kill(self) -> None:
        """SIGKILL to the whole group, and reap."""
        self._signal(signal.SIGKILL)
        self._child.wait()

    def end(self) -> None:
        """SIGTERM, and SIGKILL to what is left of the group after a bounded wait."""
        if self.status is None:
            self._signal(signal.SIGTERM)
            try:
                self._child.wait(END_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._signal(signal.SIGKILL)
        self._log.close()

    def wait(self, seconds: float) -> int:
        """Exit status; raises DemoError when it does not come."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} did not end within {seconds:.0f} s; see {self.log}.") from None

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return


class Server:
    """A server as its own process, with a ready file for each start; can be killed and started again.

    name: for sentences.  folder: of ready files and the log, STEM-N.json and STEM.log.  start_s: how long a start may
    take, in seconds.
    """

    def __init__(self, name: str, folder: Path, stem: str, start_s: float) -> None:
        self._name, self._folder, self._stem, self._start_s = name, folder, stem, start_s
        self._starts = 0
        self._process: Process | None = None

    @property
    def ready_file(self) -> Path:
        """Of the start that was last."""
        return self._folder / f"{self._stem}-{self._starts}.json"

    def launch(self, command: list[str], env: dict[str, str]) -> None:
        """Start it; `ready` says when it listens.  command: to which the option of the ready file is added."""
        self._starts += 1
        words = [*command, "--ready-file", str(self.ready_file)]
        self._process = Process(self._name, words, self._folder / f"{self._stem}.log", env)

    def ready(self) -> bool:
        """Whether it listens; raises DemoError once it has ended instead."""
        assert self._process is not None
        if self.ready_file.is_file():
            return True
        if self._process.status is not None:
            said = last_line(self._process.log)
            raise DemoError(f"{self._name} ended with status {self._process.status}: {said}")
        return False

    def wait_ready(self, tick: Tick = lambda: None) -> None:
        """Wait until it listens, at most so long as a start may take.  Raises DemoError."""
        assert self._process is not None
        deadline = time.monotonic() + self._start_s
        while not self.ready():
            if time.monotonic() > deadline:
                raise DemoError(
                    f"{self._name} was not ready within {self._start_s:.0f} s; see {self._process.log}."
                )
            self._process.wait_end(POLL_S)
            tick()

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        assert self._process is not None
        self._process.kill()

    def end(self) -> None:
        """Stop it in order."""
        if self._process is not None:
            self._process.end()


class Worker(Server):
    """The x86-worker process, always on the same port."""

    def __init__(self, folder: Path, pair: Path, port: int) -> None:
        super().__init__("the worker", folder, "worker", WORKER_START_S)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._pair = pair

    def start(self) -> None:
        """Start it; `ready` says when it listens."""
        command = [
            tool("x86-worker"),
            "serve",
            "--drafter",
            str(self._pair / "drafter"),
            "--target",
            str(self._pair / "target"),
            "--dtype",
            "float32",
            "--listen",
            self.endpoint,
        ]
        self.launch(command, os.environ | {"OMP_NUM_THREADS": "1"})


class Engine:
    """An engine child: orders go in, events come out."""

    def __init__(
        self, name: str, folder: Path, extra: dict[str, Any], env: dict[str, str], launch: list[str]
    ) -> None:
        command = [*launch, sys.executable, "-m", "demo.engine_child", json.dumps(extra)]
        log = folder / f"{name.replace(' ', '-')}.log"
        self._process = Process(name, command, log, env, pipes=True)
        self.name, self._buffer = name, b""
        self._read = self._process.stdout_fd()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ)

    def order(self, **fields: object) -> None:
        """Send one order."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def events(self, tick: Tick, seconds: float = EVENT_S) -> Iterator[dict[str, Any]]:
        """Events as they come; raises DemoError when none comes within seconds or the engine ended."""
        last = time.monotonic()
        while True:
            for line in self._lines():
                last = time.monotonic()
                yield json.loads(line)
            if time.monotonic() - last > seconds:
                raise DemoError(f"{self.name} said nothing for {seconds:.0f} s; see {self._process.log}.")
            tick()

    def tokens(self, tick: Tick = lambda: None) -> Iterator[dict[str, Any]]:
        """The tokens of the request that was ordered, as they come, up to its end."""
        for event in self.events(tick):
            if event["event"] == "finished":
                return
            yield event

    def wait_ready(self, tick: Tick) -> float:
        """Seconds that the engine took to start."""
        event = next(self.events(tick, ENGINE_START_S))
        return float(event["seconds"])

    def quit(self) -> None:
        """Let it end by itself, so that its last statistics are written."""
        self.order(quit=True)
        if status := self._process.wait(END_S):
            raise DemoError(f"{self.name} ended with status {status}: {last_line(self._process.log)}")

    def end(self) -> None:
        """End it whatever it does."""
        self._process.end()
        self._selector.close()

    def _lines(self) -> list[bytes]:
        if not self._selector.select(POLL_S):
            return []
        data = os.read(self._read, 1 << 16)
        if not data:
            raise self._ended()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return lines

    def _ended(self) -> DemoError:
        status = self._process.wait(END_S)
        return DemoError(f"{self.name} ended with status {status}: {last_line(self._process.log)}")


def engine_env() -> dict[str, str]:
    """The environment of an engine child: vLLM on a CPU, in one process, offline, and nothing of the overlay's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    # Engine and worker share what may be two cores: a peer that waits for its turn is not lost.
    inherited.setdefault("OFL_LOSS_MS", "2000")
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1",
    }


def tool(name: str) -> str:
    """A command of the environment that runs the demo."""
    return str(Path(sys.executable).parent / name)


def overlay_launcher(*options: str) -> list[str]:
    """The overlay's launcher, as the front of a command line."""
    return [tool("spark-overlay"), "launch", *options, "--"]


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return (lines[-1].strip() if lines else "it said nothing") + f" (log: {log})"
