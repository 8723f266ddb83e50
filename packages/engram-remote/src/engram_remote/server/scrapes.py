"""The HTTP behind `--metrics`: one request at a time, each with an end, and none that outlives the server.

Whoever sends a byte now and then keeps every limit of a single read; so the whole of a request has one.
"""

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

REQUEST_S = 10.0
"""From when a connection is taken up until it is ended, whatever came of it."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is no news."""


def _end(connection: socket.socket) -> None:
    """Reads and writes of its handler end at once; that one closes it."""
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


class ScrapeServer(WSGIServer):
    """Serves an application from a thread of its own for as long as the context lasts.  Raises OSError."""

    def __init__(self, host: str, port: int, application: Application) -> None:
        self._lock = threading.Lock()  # of the next two
        self._connection: socket.socket | None = None
        self._ending = False
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Quiet)
        self.set_app(application)
        self._thread = threading.Thread(target=self.serve_forever, name="engram-metrics", daemon=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer one connection and close it."""
        with self._lock:
            if self._ending:
                self.shutdown_request(request)
                return
            self._connection = request
        limit = threading.Timer(REQUEST_S, _end, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request(request, client_address)
        finally:
            limit.cancel()
            with self._lock:
                self._connection = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who broke off, or was too slow, is no news either."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._ending = True
            if self._connection is not None:
                _end(self._connection)
        self.shutdown()
        self._thread.join()
        self.server_close()
