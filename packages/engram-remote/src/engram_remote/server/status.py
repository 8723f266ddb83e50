"""Asks a server for its figures, by STATS and outside any OPEN."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.client import connect
from ofl.contract import ContractError
from ofl.contract.engram_v1 import (
    SERVICE,
    VERSION,
    Envelope,
    Op,
    Refused,
    Stats,
    StatsReply,
    decode_reply,
    encode_request,
)
from ofl.contract.engram_v1.layout import HEADER, STATS_BYTES_MAX, STATS_REPLY

from engram_remote.problem import Problem

FRAME_BYTES = HEADER.size + STATS_REPLY.size + STATS_BYTES_MAX


@dataclass(frozen=True)
class ServerStatus:
    """figures: the server's STATS object.  round_trip_us: of that question.  wire: what carried it.

    authenticated: both sides proved that they hold the key.
    """

    endpoint: str
    figures: dict[str, Any]
    round_trip_us: float
    wire: str
    authenticated: bool


def ask(endpoint: str, timeout_s: float, key_file: Path | None = None) -> ServerStatus:
    """STATS of a server.  key_file: it must hold this key too.

    Raises TransportError when it cannot be reached, or the keys differ; Problem when it answers wrong.
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
        envelope, began = Envelope(Op.STATS, 1), time.monotonic_ns()
        body = client.call(encode_request(envelope, Stats()), deadline_ns=deadline_ns)
        round_trip_us = (time.monotonic_ns() - began) / 1000
        try:
            reply = decode_reply(body, envelope, Stats())
        except ContractError as error:
            raise Problem(f"{endpoint}: the server's reply breaks the contract: {error}") from error
    finally:
        client.close()
    if isinstance(reply, Refused):
        raise Problem(f"{endpoint}: {reply.status.name}: {reply.said}")
    assert isinstance(reply, StatsReply), "decode_reply gives what was asked for, or a refusal"
    figures = parsed(endpoint, reply.text)
    return ServerStatus(
        endpoint, figures, round(round_trip_us, 1), client.peer.wire, client.peer.authenticated
    )


def parsed(endpoint: str, text: str) -> dict[str, Any]:
    """A STATS text as an object.  Raises Problem where it is none."""
    try:
        figures = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{endpoint}: STATS is not JSON: {error}") from error
    if not isinstance(figures, dict):
        raise Problem(f"{endpoint}: STATS is not a JSON object")
    return figures
