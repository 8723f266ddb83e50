"""The project's own worker with real weights, `x86-worker serve`, as a test sees it: started, killed, frozen, started
again.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker_process import START_S, WorkerProcess


class ServedWorker(WorkerProcess):
    """`x86-worker serve`.  identity: what `identity` says of the drafter."""

    def __init__(self, folder: Path, drafter: Path, target: Path, options: Sequence[str] = ()) -> None:
        """options: of `serve`, beside the folders and where to listen."""
        super().__init__()
        self._folder, self._options = folder, options
        self._folders = ["--drafter", str(drafter), "--target", str(target)]
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
        self._await(ready, self._folder / "served.log")
