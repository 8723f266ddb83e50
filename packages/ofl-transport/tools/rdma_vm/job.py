"""A command in the guest, from its start until what it wrote is read.

Owns no connection: what happens to the job is told by the VM's agent (guest/agent), its output lies in its folder.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdma_vm.vm import Vm

ANSWER_S_MARGIN = 120.0
"""How much longer than a command's own limit its end is waited for: the guest has a clock of its own."""
SHOW_S_INTERVAL = 0.5


@dataclass(frozen=True)
class Completed:
    """A command that has ended.  status: 124 where its time ran out, 128 + signal where it was ended by one."""

    command: str
    status: int
    stdout: str
    stderr: str

    def check(self) -> "Completed":
        """Itself.  Raises subprocess.CalledProcessError, with what it wrote as a note, where the status is not 0."""
        if self.status != 0:
            error = subprocess.CalledProcessError(self.status, self.command, self.stdout, self.stderr)
            error.add_note(f"stdout:\n{self.stdout}\nstderr:\n{self.stderr}")
            raise error
        return self


@dataclass
class Job:
    """A command in the guest.  pid: its process group there, once it has started; status: once it has ended."""

    vm: "Vm"
    number: int
    command: str
    timeout_s: float
    folder: Path
    pid: int | None = None
    status: int | None = None

    def wait(self, show: Callable[[str], object] | None = None) -> Completed:
        """Until it has ended.  show: is called with what stdout has grown by, while waiting.  Raises VmError."""
        shown = 0
        limit = time.monotonic() + self.timeout_s + ANSWER_S_MARGIN
        while True:
            step = limit if show is None else min(limit, time.monotonic() + SHOW_S_INTERVAL)
            ended = self.vm.wait_for(lambda: self.status is not None, step)
            stdout = self._read("stdout")
            if show is not None:
                show(stdout[shown:])
                shown = len(stdout)
            if ended:
                break
            if time.monotonic() >= limit:
                raise self.vm.error(f"does not tell the end of: {self.command}")
        assert self.status is not None
        return Completed(self.command, self.status, stdout, self._read("stderr"))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to all of its processes.  One that has ended gets none.  Raises VmError."""
        limit = time.monotonic() + ANSWER_S_MARGIN
        if not self.vm.wait_for(lambda: self.pid is not None or self.status is not None, limit):
            raise self.vm.error(f"does not start: {self.command}")
        if self.status is None:
            self.vm.tell(f"signal {self.pid} {number.name.removeprefix('SIG')}")

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        self.signal(signal.SIGKILL)

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""
