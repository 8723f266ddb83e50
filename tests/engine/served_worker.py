"""The project's own worker with real weights, `x86-worker serve`, as a test sees it: started, killed, frozen, started
again.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker_process import START_S, free_port


class ServedWorker:
    """One worker process at a time, always at the same endpoint.  identity: what `identity` says of the drafter."""

    def __init__(self, folder: Path, drafter: Path, target: Path, options: Sequence[str] = ()) -> None:
        """options: of `serve`, beside the folders and where to listen."""
        self._folder, self._options = folder, options
        self._folders = ["--drafter", str(drafter), "--target", str(target)]
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        output = folder / "identity.json"
        command = [sys.executable, "-m", "x86_worker", "identity", *self._folders, "--output", str(output)]
        subprocess.run(command, check=True, timeout=START_S)
        self.identity: dict[str, Any] = json.loads(output.read_text())

    def settings(self, policy: str, **more: str) -> dict[str, str]:
        """Settings of an engine that drafts with it."""
        own = {
            "": self.endpoint,
            "_POLICY": policy,
            "_IDENTITY": self.identity["identity"],
            "_MARKOV_IDENTITY": self.identity["markov_identity"],
        }
        return {f"VLLM_DSPARK_REMOTE{name}": value for name, value in (own | more).items()}

    def start(self) -> None:
        """Start it and wait until it listens."""
        assert self._process is None
        ready = self._folder / "served-ready.json"
        ready.unlink(missing_ok=True)
        arguments = [*self._folders, *self._options, "--listen", self.endpoint, "--ready-file", str(ready)]
        with (self._folder / "served.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "x86_worker", "serve", *arguments], stderr=log, stdout=log
            )
        ended = os.pidfd_open(self._process.pid)
        try:
            for _ in range(int(START_S / 0.02)):
                if ready.exists():
                    return
                assert not select.select([ended], [], [], 0.02)[0], (self._folder / "served.log").read_text()
        finally:
            os.close(ended)
        raise AssertionError("the worker does not come up")

    def kill(self) -> None:
        """SIGKILL; also where it is not there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: its connections stay up and say nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
