"""Serves a metrics registry over HTTP on one address.  Owns the listening socket and its threads; knows no file.

The pages are prometheus_client's own.  Its ready-made server is not used because it sets no deadline: a client that
connects and says nothing would hold a thread of it for ever.
"""

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

CLIENT_TIMEOUT_S = 10.0
CLOSE_JOIN_S = 2.0


def parse_listen(text: str) -> tuple[str, int]:
    """Address and port of `127.0.0.1:9477` or `[::1]:9477`.

    Raises ValueError where the address is not stated as numbers: which interface listens is never left to a name.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:9477")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not ADDRESS:PORT with a port of 0 to 65535")
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        raise ValueError(f"{text!r}: {host!r} is not an IP address; 0.0.0.0 is every interface") from None


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # their clients have a timeout; the process's end does not wait for it
    allow_reuse_port = False  # two exporters never share a port unnoticed

    def server_bind(self) -> None:
        """As http.server does, without asking a resolver for the name of this host."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def handle(self) -> None:
        """One request; a client that fell silent or went away is its own affair."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """A line per scrape is noise."""


@contextmanager
def serving(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve the registry while open; gives the URL, with the port that was taken where 0 was asked for.

    Raises OSError where the address cannot be listened on.
    """
    kind = _Server6 if ":" in host else _Server
    with kind((host, port), _Handler) as server:
        server.set_app(make_wsgi_app(registry))
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="spark-overlay-metrics")
        thread.start()
        shown = f"[{host}]" if ":" in host else host
        try:
            yield f"http://{shown}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join(CLOSE_JOIN_S)
