"""One progress bar on stderr for a command that moves many bytes; results go to stdout and never mix with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from engram_remote.commands.consoles import plain_console

GIB = 1 << 30


class Bar:
    """Bytes done of bytes in all, for one step of a command after another.  May be told from any thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lock = progress, Lock()
        self._steps: dict[str, TaskID] = {}

    def step(self, name: str, done: int, total: int) -> None:
        """`done` bytes more of `total` are through step `name`."""
        with self._lock:
            if name not in self._steps:
                self._steps[name] = self._progress.add_task(name, total=total)
            self._progress.update(self._steps[name], advance=done)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar that is drawn while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=plain_console(stderr=True)) as progress:
        yield Bar(progress)
