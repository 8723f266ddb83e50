"""Starts an engine and proves from outside that the remote drafter, or remote tables, are in place in it.

vLLM can lose a plugin without a word: `VLLM_PLUGINS` leaves it out, or its import fails and is logged.  So
the engine writes a readiness record when the remote speculator is in place, and the launcher waits for one of
this very start.  Where none comes, the whole process group is ended.  Owns the child's process group; must
never outlive it nor leave it behind: a launcher that is killed takes the command with it.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_overlay import group_guard, tables_ready
from spark_overlay.first_host import outlived
from spark_overlay.parent_death import end_with_parent
from spark_overlay.readiness import READY_FILE, START_ID, ReadinessError, ReadinessRecord, read_record
from spark_overlay.refusal import forget_refusal, read_refusal
from spark_overlay.supervisor import SOCKET
from spark_overlay.tables_ready import TablesRecord, read_tables

SWITCH = "VLLM_DSPARK_REMOTE"
PLUGINS = "VLLM_PLUGINS"
PLUGIN_NAME = "spark_overlay"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READY_TIMEOUT_S = 900.0
"""A large model takes minutes to load."""
POLL_S = 0.05
"""Longest time between a record's appearance and its being seen; the child's end is seen at once."""
END_GRACE_S = 15.0
"""From SIGTERM to SIGKILL."""
TABLES_TIMEOUT_S = 60.0
"""From the drafter's record to the tables': both are written at the end of the same step of a start."""
NOT_READY_STATUS = 3
"""Exit status where the engine ran without the remote drafter, or without remote tables."""
USAGE_STATUS = 2
"""Exit status where nothing was started."""


class LaunchError(RuntimeError):
    """The engine was not started, or ended before the remote drafter was in place; the text is one sentence.

    status: the exit status that says the same.
    """

    def __init__(self, sentence: str, status: int = NOT_READY_STATUS) -> None:
        super().__init__(sentence)
        self.status = status


def check_plugins(environ: Mapping[str, str], *, drafter: bool = True) -> None:
    """Raises LaunchError where VLLM_PLUGINS leaves out what was asked for.  drafter: whether the overlay was."""
    allowed = environ.get(PLUGINS)
    needed = [PLUGIN_NAME] if drafter else []
    needed += [tables_ready.PLUGIN_NAME] if tables_ready.asked(environ) else []
    for name in needed if allowed is not None else ():
        if name not in str(allowed).split(","):
            raise LaunchError(
                f"{PLUGINS} is {allowed!r} and leaves out {name!r}: the engine would serve without it",
                USAGE_STATUS,
            )


class Launched:
    """A started engine command.  Use as a context manager, or call `end`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        start_id: str | None = None,
        drafter: bool = True,
        **popen: Any,
    ) -> None:
        """Start command in a process group of its own, told where to write its readiness record.

        environ: the command's environment; its settings are taken as checked.  start_id: names this start, a
        random one by default.  drafter: whether it is to draft remotely; tables are as environ says.  popen: further
        arguments of subprocess.Popen.  Raises LaunchError where it cannot be started.  The command is ended when the
        calling thread ends.
        """
        check_plugins(environ, drafter=drafter)
        self.start_id = start_id or uuid.uuid4().hex
        given = environ.get(READY_FILE)
        self._folder = None if given else tempfile.mkdtemp(prefix="spark-overlay-launch-")
        self.record_path = Path(given) if given else Path(self._folder or "", "ready.json")
        self.record_path.unlink(missing_ok=True)  # an older start's; this one's carries our start id
        forget_refusal(self.record_path)
        given_tables = environ.get(tables_ready.READY_FILE)
        self.tables_path = (
            Path(given_tables)
            if given_tables
            else self.record_path.with_name(f"{self.record_path.name}.tables")
        )
        try:
            self.process = subprocess.Popen(
                command,
                env=self._environment(environ),
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509  # loads nothing, takes no lock
                **popen,
            )
        except OSError as error:
            self._forget_folder()
            raise LaunchError(f"{command[0]!r} cannot be started: {error.strerror}", USAGE_STATUS) from error
        self._pidfd = os.pidfd_open(self.process.pid)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", group_guard.__file__, str(self.process.pid), str(END_GRACE_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> ReadinessRecord:
        """Wait for the record of this start by a live process.  On failure the process group is ended first.

        Raises LaunchError where the command ended before, or wrote none in time, with what it refused where it said so.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            ended = self.ended(max(0.0, min(left, POLL_S)))
            record = self._record(ended)
            if record is not None:
                return record
            if ended:
                status, refusal = self.status(), self.refusal()
                said = f": {refusal}" if refusal else ""
                self.end()
                raise LaunchError(
                    f"the command ended with status {status} before the remote drafter was in place{said}",
                    status or NOT_READY_STATUS,
                )
            if left <= 0:
                refusal = self.refusal() or "it did not load the remote drafter"
                self.end()
                raise LaunchError(
                    f"the engine wrote no readiness record within {timeout_s:g} s and was ended: {refusal}"
                )

    def wait_tables(self, ranks: int = 1, timeout_s: float = TABLES_TIMEOUT_S) -> list[TablesRecord]:
        """Wait for the tables' records of so many ranks of this start, as `wait_ready` does for the drafter's.

        Raises LaunchError with what came instead; the process group is ended first.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            ended = self.ended(max(0.0, min(left, POLL_S)))
            holds = (lambda pid: True) if ended else _alive
            records = read_tables(self.tables_path, self.start_id, holds)
            if len(records) >= ranks:
                return records
            if ended:
                status, refusal = self.status(), self.refusal()
                said = f": {refusal}" if refusal else ""
                self.end()
                raise LaunchError(
                    f"the command ended with status {status} before its tables were remote{said}",
                    status or NOT_READY_STATUS,
                )
            if left <= 0:
                self.end()
                raise LaunchError(
                    f"{len(records)} of {ranks} ranks said within {timeout_s:g} s that they read Engram tables "
                    "remotely, and the engine was ended: is engram-remote installed beside it?"
                )

    def refusal(self) -> str:
        """The sentence with which a process of this start refused, empty where none did; not after `end`."""
        return read_refusal(self.record_path, self.start_id)

    def ended(self, timeout_s: float | None) -> bool:
        """Whether the command has ended, waiting at most timeout_s for it; None: until it has."""
        if self._pidfd < 0:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))

    def status(self) -> int:
        """Wait for the command's end; its exit status as a shell gives it, 128 + n after signal n.

        The dead process is left unreaped until `end`, so that its number still names its group.
        """
        if self._pidfd >= 0:
            self.ended(None)
            found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
            if found is not None:
                return found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Pass a signal on to the command itself, which knows best how to end its children."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def end(self, grace_s: float = END_GRACE_S) -> None:
        """End the whole process group: SIGTERM, and SIGKILL for what is left of it.  Safe to call again."""
        if self._pidfd < 0:
            return
        if not self.ended(0):
            self._signal_group(signal.SIGTERM)
            self.ended(grace_s)
        self._signal_group(signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):  # a guard that somebody ended
            self._guard.communicate(b"x")
        self.process.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        self._forget_folder()

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        own = {READY_FILE: str(self.record_path), START_ID: self.start_id}
        if tables_ready.asked(environ):
            own |= {tables_ready.READY_FILE: str(self.tables_path), tables_ready.START_ID: self.start_id}
        return {name: value for name, value in environ.items() if name != SOCKET} | own

    def _record(self, ended: bool) -> ReadinessRecord | None:
        """This start's record; while the command runs, only that of a live process.

        Anything else that lies there is not ours and is waited out.  A command that has ended may have been
        ready all the same, and quick.
        """
        with contextlib.suppress(ReadinessError):
            record = read_record(self.record_path)
            if record is not None and record.start_id == self.start_id and (ended or _alive(record.pid)):
                return record
        return None

    def _signal_group(self, number: int) -> None:
        # Its leader, dead or alive, is not reaped yet, so the number can name no other group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _forget_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    start_id: str | None,
    timeout_s: float,
    on_ready: Callable[[ReadinessRecord], None],
    drafter: bool = True,
    tables: int = 0,
    on_tables: Callable[[list[TablesRecord]], None] = lambda records: None,
    on_up: Callable[[], None] = lambda: None,
    first_host: tuple[str, int] | None = None,
) -> int:
    """Launch to the end: start, wait for readiness, then for the command, passing signals on; its exit
    status.

    drafter: whether the remote drafter must be in place.  tables: of how many ranks the tables must be remote.
    on_up: called once everything that was asked for is in place.  first_host: address and master port of rank 0's
    host, where that is another; this part of the engine is ended once nobody answers there any more.  Call on the
    main thread.  Raises LaunchError as `Launched`, `wait_ready` and `wait_tables` do.
    """
    early: list[int] = []
    passing: Callable[[int], None] = early.append
    before = {number: signal.signal(number, lambda got, _: passing(got)) for number in PASSED_ON}
    try:
        with Launched(command, environ=environ, start_id=start_id, drafter=drafter) as launched:
            passing = launched.signal
            for number in early:
                launched.signal(number)
            if drafter:
                on_ready(launched.wait_ready(timeout_s))
            if tables:
                on_tables(launched.wait_tables(tables, TABLES_TIMEOUT_S if drafter else timeout_s))
            on_up()
            # Records come once all ranks are there; without one, the first host may be started later.
            met = drafter or bool(tables)
            if first_host is not None and outlived(*first_host, launched.ended, met=met):
                launched.end()
                raise LaunchError(
                    f"rank 0 at {first_host[0]}, port {first_host[1]}, answers no more: this host's part was ended"
                )
            return launched.status()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
