"""`x86-worker status`: asks a worker for its figures, outside any session, and shows them."""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.client import Client, connect
from ofl.contract.dspark_v1 import (
    SERVICE,
    VERSION,
    Envelope,
    Op,
    Ping,
    Refused,
    Reply,
    Request,
    Stats,
    StatsReply,
    decode_reply,
    encode_request,
)
from ofl.contract.dspark_v1.layout import HEADER, STATS_BYTES_MAX, STATS_REPLY
from ofl.contract.records import ContractError
from rich.console import Console
from rich.table import Table

from x86_worker.problem import Problem

PINGS = 20
FRAME_BYTES = HEADER.size + STATS_REPLY.size + STATS_BYTES_MAX


@dataclass(frozen=True)
class WorkerStatus:
    """ping_us: median of a few round trips.  figures: the worker's STATS object.

    wire: what carried them.  authenticated: both sides proved that they hold the key.
    """

    endpoint: str
    ping_us: float
    figures: dict[str, Any]
    wire: str = ""
    authenticated: bool = False


def ask(endpoint: str, timeout_s: float, key_file: Path | None = None) -> WorkerStatus:
    """PING and STATS.  key_file: the worker must hold this key too.

    Raises TransportError when the worker cannot be reached, or the keys differ; Problem when it answers wrong.
    """
    deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
    client = connect(
        endpoint,
        service=SERVICE,
        version_min=VERSION,
        version_max=VERSION,
        max_frame_bytes=FRAME_BYTES,
        deadline_ns=deadline_ns,
        key_file=key_file,
    )
    try:
        ping_us = statistics.median(_ping(client, number, deadline_ns) for number in range(PINGS))
        reply = _call(client, Envelope(Op.STATS, 0, PINGS), Stats(), deadline_ns)
    finally:
        client.close()
    assert isinstance(reply, StatsReply), "decode_reply gives what was asked for, or a refusal"
    figures = parsed(endpoint, reply.text)
    return WorkerStatus(endpoint, round(ping_us, 1), figures, client.peer.wire, client.peer.authenticated)


def _ping(client: Client, number: int, deadline_ns: int) -> float:
    start_ns = time.monotonic_ns()
    _call(client, Envelope(Op.PING, 0, number), Ping(number), deadline_ns)
    return (time.monotonic_ns() - start_ns) / 1000


def _call(client: Client, envelope: Envelope, request: Request, deadline_ns: int) -> Reply:
    body = client.call(encode_request(envelope, request), deadline_ns=deadline_ns)
    try:
        reply = decode_reply(body, envelope, request)
    except ContractError as error:
        raise Problem(f"{client.peer.endpoint}: the worker's reply breaks the contract: {error}") from error
    if isinstance(reply, Refused):
        raise Problem(f"{client.peer.endpoint}: {reply.status.name}: {reply.said}")
    return reply


def parsed(endpoint: str, text: str) -> dict[str, Any]:
    """A STATS text as an object.  Raises Problem where it is none."""
    try:
        figures = json.loads(text)
    except ValueError as error:
        raise Problem(f"{endpoint}: STATS is not JSON: {error}") from error
    if not isinstance(figures, dict):
        raise Problem(f"{endpoint}: STATS is not a JSON object")
    return figures


def show(status: WorkerStatus, console: Console) -> None:
    """The figures as tables: the worker, its sessions, its counters."""
    worker = Table(
        title=f"worker {status.figures.get('worker_name')} at {status.endpoint}", show_header=False
    )
    worker.add_column()
    worker.add_column(overflow="fold")
    worker.add_row("ping", f"{status.ping_us} us")
    worker.add_row("wire", status.wire)
    worker.add_row("key", "proved by both sides" if status.authenticated else "none")
    for name in ("uptime_s", "draining", "boot_nonce", "queue_us", "draft_us", "limits"):
        worker.add_row(name, _shown(status.figures.get(name)))
    for name, value in _items(status.figures.get("drafter")):
        worker.add_row(f"drafter {name}", _shown(value))
    console.print(worker)
    sessions = status.figures.get("sessions")
    if isinstance(sessions, list) and sessions:
        console.print(_sessions(sessions))
    counters = Table("counter", "value", title="counters")
    for group in ("counters", "transport"):
        for name, value in _items(status.figures.get(group)):
            counters.add_row(name, _shown(value))
    console.print(counters)


def _sessions(sessions: list[Any]) -> Table:
    """A row for each figure and a column for each session: the figures are many, the sessions few."""
    table = Table("session", *(str(number) for number in range(1, len(sessions) + 1)), title="sessions")
    for name in dict.fromkeys(name for session in sessions for name, _ in _items(session)):
        table.add_row(name, *(_shown(dict(_items(session)).get(name)) for session in sessions))
    return table


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "-" if value is None else str(value)
