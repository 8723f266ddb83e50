"""Shows that something is under way: a spinner on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status

PLAIN_INTERVAL_S = 10.0


class Progress:
    """A context manager; `tick` while waiting, `update` when there is more to say.  Both are cheap."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._status = Status(title, console=console) if console.is_terminal else None
        self._started = time.monotonic()
        self._next = self._started

    def __enter__(self) -> "Progress":
        if self._status is not None:
            self._status.start()
        self.tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, title: str) -> None:
        """Say something else from now on."""
        self._title = title
        self.tick()

    def tick(self) -> None:
        """Show the elapsed seconds."""
        now = time.monotonic()
        text = f"{self._title} ({now - self._started:.0f} s)"
        if self._status is not None:
            self._status.update(text)
        elif now >= self._next:
            self._console.print(text, markup=False, highlight=False)
            self._next = now + PLAIN_INTERVAL_S
