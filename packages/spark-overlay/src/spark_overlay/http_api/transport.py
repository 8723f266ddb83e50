"""One request and its reply over HTTP/1.1 under one deadline, with what arrived when.  Knows no API.

Each call has a connection of its own, closed at its end: whoever goes away leaves nothing, and an engine notices a
caller that gave up.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spark_overlay.http_api.address import Address
from spark_overlay.http_api.deadline import DeadlineSocket, remaining_s
from spark_overlay.http_api.errors import (
    EngineRefused,
    EngineReplyInvalid,
    EngineTimedOut,
    EngineUnreachable,
    said,
)

REPLY_BYTES_MAX = 256 << 20
LINE_BYTES_MAX = 16 << 20
"""Of a stream: one event."""
REFUSAL_BYTES_MAX = 1 << 16
OK = 200
CUT = "the connection was lost in the middle of the reply"


@dataclass(frozen=True)
class Call:
    """What to ask.  body: sent as JSON by POST; None: GET.  timeout_s: for all of it, the reply included."""

    path: str
    timeout_s: float
    body: Mapping[str, Any] | None = None
    key: str | None = None


def fetch(address: Address, call: Call) -> bytes:
    """The whole reply.  Raises EngineApiError."""
    with _opened(address, call) as (response, _):
        data = response.read(REPLY_BYTES_MAX + 1)
        if len(data) > REPLY_BYTES_MAX:
            raise EngineReplyInvalid(
                f"{address}{call.path}: the reply is longer than {REPLY_BYTES_MAX} bytes"
            )
        if response.length:
            raise EngineUnreachable(f"{address}{call.path}: {CUT}")
        return data


def lines(address: Address, call: Call) -> Iterator[tuple[float, bytes]]:
    """Lines of the reply as they come, each with the seconds since just before the request was sent.

    Raises EngineApiError.  A caller that stops early closes the connection, which cancels a request in vLLM.
    """
    with _opened(address, call) as (response, sent_s):
        while line := response.readline(LINE_BYTES_MAX + 1):
            arrived_s = time.monotonic() - sent_s
            if len(line) > LINE_BYTES_MAX:
                raise EngineReplyInvalid(
                    f"{address}{call.path}: a line of the reply is longer than {LINE_BYTES_MAX} bytes"
                )
            yield arrived_s, line


@contextmanager
def _opened(address: Address, call: Call) -> Iterator[tuple[http.client.HTTPResponse, float]]:
    """The reply, its status being 200, and when the request began to leave (time.monotonic).  Closes all at the end."""
    url = f"{address}{call.path}"
    deadline_s = time.monotonic() + call.timeout_s
    connection = http.client.HTTPConnection(address.host, address.port)
    try:
        connection.sock = _connected(address, deadline_s)
        sent_s = time.monotonic()
        response = _sent(connection, address, call)
        try:
            if response.status != OK:
                words = said(response.read(REFUSAL_BYTES_MAX).decode("utf-8", "replace"))
                raise EngineRefused(f"{url}: HTTP {response.status}: {words}", response.status)
            yield response, sent_s
        finally:
            response.close()
    except TimeoutError:
        raise EngineTimedOut(f"{url}: no whole answer within {call.timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise EngineUnreachable(f"{url}: TLS failed: {said(str(error))}") from None
    except OSError as error:
        raise EngineUnreachable(f"{url}: {error.strerror or said(str(error))}") from None
    except http.client.IncompleteRead:
        raise EngineUnreachable(f"{url}: {CUT}") from None
    except (http.client.HTTPException, ValueError) as error:
        words = said(f"{type(error).__name__} {error}")
        raise EngineReplyInvalid(f"{url}: the reply is not HTTP as it should be ({words})") from None
    finally:
        connection.close()


def _connected(address: Address, deadline_s: float) -> Any:
    """A connected socket; with TLS, where the address says https, verified against the host's authorities."""
    plain = socket.create_connection((address.host, address.port), remaining_s(deadline_s))
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.scheme == "https":
            plain.settimeout(remaining_s(deadline_s))
            return DeadlineSocket(
                ssl.create_default_context().wrap_socket(plain, server_hostname=address.host), deadline_s
            )
    except BaseException:
        plain.close()
        raise
    return DeadlineSocket(plain, deadline_s)


def _sent(connection: http.client.HTTPConnection, address: Address, call: Call) -> http.client.HTTPResponse:
    headers = {"Accept": "*/*", "Connection": "close"}
    if call.key:
        headers["Authorization"] = f"Bearer {call.key}"
    data = None
    if call.body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(call.body).encode()
    connection.request("GET" if data is None else "POST", address.path + call.path, data, headers)
    return connection.getresponse()
