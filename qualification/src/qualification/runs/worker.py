"""The worker of an arm: the one that runs already, or one that is started for the arm and ended with it.

Owns its endpoint, its identity and the settings that an engine needs to draft with it.
"""

import json
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from qualification.runs.platform import Platform, Worker
from qualification.runs.processes import Process, ProcessError
from qualification.runs.supervisor import Supervisor
from qualification.runs.window import Window

SETTING = "VLLM_DSPARK_REMOTE"
IDENTITY_S = 120.0
LOOK_S = 0.1
"""How often the ready file is looked for; the worker's end is seen at once."""


@contextmanager
def worker_of(
    platform: Platform,
    logs: Path,
    start: str,
    environment: Mapping[str, str],
    supervisor: Supervisor,
    window: Window,
) -> Iterator[dict[str, str]]:
    """While it runs: the settings of an engine that drafts with it, none for a simulated engine.

    Raises ProcessError where there can be no worker.
    """
    if platform.engine == "simulator":
        yield {}
        return
    worker = platform.worker
    assert worker is not None, "the platform file was judged"
    own = {**environment, **worker.environment}
    settings = _identity(platform, worker, logs, own)
    if worker.key_file is not None:
        settings[f"{SETTING}_KEY_FILE"] = worker.key_file
    if worker.endpoint is not None:
        yield settings | {SETTING: worker.endpoint}
        return
    endpoint = f"tcp://127.0.0.1:{_free_port()}"
    ready = logs / f"{start}.worker.json"
    assert worker.command is not None, "the platform file was judged"
    places = {
        "python": platform.python,
        "target": platform.target or "",
        "drafter": platform.drafter or "",
        "endpoint": endpoint,
        "ready_file": str(ready),
        "key_file": worker.key_file or "",
    }
    command = [word.format_map(places) for word in worker.command]
    with Process("the worker", command, own, logs / f"{start}.worker.log", supervisor) as process:
        _wait_ready(process, ready, window.left_s(worker.start_s), supervisor)
        yield settings | {SETTING: endpoint}


def _identity(
    platform: Platform, worker: Worker, logs: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """From the file that the platform names, else from the worker's own command."""
    path = Path(worker.identity) if worker.identity else logs / "identity.json"
    if not path.is_file():
        command = [platform.python, "-m", "x86_worker", "identity", "--output", str(path)]
        command += ["--drafter", str(platform.drafter), "--target", str(platform.target)]
        try:
            done = subprocess.run(
                command,
                env=dict(environment),
                capture_output=True,
                text=True,
                timeout=IDENTITY_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProcessError(f"the drafter's identity cannot be read: {error}") from None
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:]
            raise ProcessError(f"the drafter's identity cannot be read: {said}")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        names = ("identity", "markov_identity")
        return {f"{SETTING}_{name.upper()}": str(record[name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProcessError(f"{path} holds no identity of a drafter: {error}") from None


def _wait_ready(process: Process, ready: Path, within_s: float, supervisor: Supervisor) -> None:
    ended = os.pidfd_open(process.child.pid)
    try:
        for _ in range(int(within_s / LOOK_S) + 1):
            if ready.is_file():
                return
            if select.select([ended], [], [], LOOK_S)[0]:
                raise ProcessError(f"the worker ended before it was ready: {process.last_words()}")
            supervisor.check()
    finally:
        os.close(ended)
    raise ProcessError(f"the worker was not ready within {within_s:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
