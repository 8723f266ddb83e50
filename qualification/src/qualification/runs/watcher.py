"""The supervisor's process: `python -I -S watcher.py SETTINGS`, started by `supervisor`, which says what it is for.

A process and not a thread, for what a thread of the runner could not do: end the arms when the runner is killed, and
end the runner when it hangs in a call that never comes back.  It looks at processes and files from outside, so it
believes nobody.  Standard library only: it is started by its path, and nothing that an environment brings may change
it.

Its stdin says which groups exist ("group N", "gone N") and which start's observations lie where ("start ID FOLDER",
"over FOLDER"), and at last "done"; the end of stdin without that word means that the runner is gone.  Its stdout says,
once, why it stopped the run.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOOK_S = 0.2
"""How often folders are looked at; words from the runner and its end are seen at once."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL; and for the runner, from the arms' end to its own."""


@dataclass
class Watch:
    """What there is to watch.  deadline_s: of CLOCK_MONOTONIC.  guard: a command, empty for none.

    groups: process groups of arms and workers.  starts: start id by folder.
    """

    runner: int
    deadline_s: float
    guard: list[str]
    guard_every_s: float
    guard_limit_s: float
    groups: set[int] = field(default_factory=set)
    starts: dict[Path, str] = field(default_factory=dict)
    done: bool = False

    def follow(self, line: str) -> None:
        """One line from the runner."""
        word, _, rest = line.partition(" ")
        if word == "group":
            self.groups.add(int(rest))
        elif word == "gone":
            self.groups.discard(int(rest))
        elif word == "start":
            name, _, folder = rest.partition(" ")
            self.starts[Path(folder)] = name
        elif word == "over":
            self.starts.pop(Path(rest), None)
        elif word == "done":
            self.done = True

    def wrong(self) -> str:
        """Why the run must stop now, as far as time and files say; empty where it need not."""
        if time.monotonic() >= self.deadline_s:
            return "the window's hard bound has passed"
        for folder, start in self.starts.items():
            for path in sorted(folder.glob("*.jsonl")):
                found = start_of(path)
                if found not in ("", start):
                    return f"{path.name} is of the start {found[:80]}, and {start} is running: the engine started again"
        return ""

    def end_groups(self) -> None:
        """SIGTERM to every group, and SIGKILL to what is left."""
        for group in self.groups:
            _signal(group, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while self.groups and time.monotonic() < until:
            self.groups = {group for group in self.groups if _signal(group, 0)}
            time.sleep(0.05)
        for group in self.groups:
            _signal(group, signal.SIGKILL)


def start_of(path: Path) -> str:
    """The start id that a file of observations begins with, empty where it does not say so yet."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        line = file.readline(1 << 20)
        if line.endswith(b"\n"):
            values: Any = json.loads(line)
            return str(values.get("start_id", "")) if isinstance(values, dict) else ""
    return ""


class Guard:
    """The guard command, run now and then beside everything else."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._process: subprocess.Popen[bytes] | None = None
        self._since_s = self._due_s = time.monotonic()

    def wrong(self) -> str:
        """Why the run must stop, empty where it need not; never waits."""
        now_s = time.monotonic()
        if self._process is None:
            if not self._watch.guard or now_s < self._due_s:
                return ""
            self._since_s, self._due_s = now_s, now_s + self._watch.guard_every_s
            try:
                self._process = subprocess.Popen(
                    self._watch.guard,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                return f"the guard command cannot be started: {error.strerror}"
        status = self._process.poll()
        if status is None:
            if now_s - self._since_s < self._watch.guard_limit_s:
                return ""
            self.end()
            return f"the guard command did not end within {self._watch.guard_limit_s:g} s"
        self._process = None
        return f"the guard command ended with status {status}" if status else ""

    def end(self) -> None:
        """End it, where it runs."""
        if self._process is not None:
            _signal(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def main(settings: dict[str, Any]) -> int:
    """Watch until the runner is done or gone, or something is wrong."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the runner gets them too, and says what becomes of us
    watch = Watch(**settings)
    guard = Guard(watch)
    unread = b""
    while not watch.done:
        readable, _, _ = select.select([0], [], [], LOOK_S)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                guard.end()
                watch.end_groups()
                return 1
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                watch.follow(line.decode())
        if not watch.done and (reason := watch.wrong() or guard.wrong()):
            guard.end()
            stop(watch, reason)
            return 1
    guard.end()
    return 0


def stop(watch: Watch, reason: str) -> None:
    """Say why, end the arms, and give the runner some time to say so before it is ended too."""
    os.write(1, reason.encode() + b"\n")
    os.close(1)
    watch.end_groups()
    until = time.monotonic() + GRACE_S
    while (left := until - time.monotonic()) > 0:
        readable, _, _ = select.select([0], [], [], left)
        if readable and not os.read(0, 1 << 16):
            return
    with suppress(ProcessLookupError):
        os.kill(watch.runner, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether there is such a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
