"""What a client in a VM does, step by step.  Run there by `remote_loop`; imported by tests for its names alone.

Owns the clients and the memory of one process.  Seconds are those of the machine; the tests scale them.  Every wait has
a limit.
"""

import functools
import json
import random
import socket
import time
from typing import TypedDict

from ofl.client import Client
from ofl.client import connect as ofl_connect
from ofl.echo import SERVICE, VERSION
from ofl.errors import DeadlineError, TransportError
from ofl.memory import Buffer
from ofl.reconnect import Backoff, NotYetError, Reconnector

SECOND = 10**9
MAX_FRAME_BYTES = 1 << 26
MARGIN = 4096
POISON, MINE = b"\xcc", b"\x5a"
LONG_S = 300.0
"""A limit that a healthy test never meets."""

ROCE_PORT = 4791
UDP = 17
RDMA_WRITES = range(0x06, 0x0C)
"""Operation codes of an RC queue pair: WRITE first, middle, last, last with immediate, only, only with immediate."""

clients: list[Client] = []
memory: list[Buffer] = []
reconnectors: list[Reconnector] = []


class Facts(TypedDict):
    """What a client knows of its connection."""

    wire: str
    boot_nonce: int
    authenticated: bool


class Attempt(TypedDict):
    """One attempt of a reconnector.

    waited_s: until it was allowed.  error: its type, or empty.  left_s: where it did not connect, until the next one.
    """

    waited_s: float
    error: str
    text: str
    left_s: float
    boot_nonce: int


def after(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * SECOND)


def connect(endpoint: str, heartbeat_s: float, loss_s: float, key_file: str | None = None) -> int:
    """Returns the number by which the other steps know the client."""
    client = ofl_connect(
        endpoint,
        service=SERVICE,
        version_min=VERSION,
        version_max=VERSION,
        max_frame_bytes=MAX_FRAME_BYTES,
        deadline_ns=after(LONG_S),
        heartbeat_ns=int(heartbeat_s * SECOND),
        loss_ns=int(loss_s * SECOND),
        key_file=key_file,
    )
    clients.append(client)
    return len(clients) - 1


def facts(client: int) -> Facts:
    peer = clients[client].peer
    return {"wire": peer.wire, "boot_nonce": peer.boot_nonce, "authenticated": peer.authenticated}


def echo(client: int, nbytes: int, seconds: float = LONG_S) -> None:
    """A call whose reply must be its request, of bytes that are drawn."""
    body = random.Random(nbytes).randbytes(nbytes)
    reply = clients[client].call([body], deadline_ns=after(seconds))
    assert reply == body, f"{len(reply)} bytes came back for {nbytes}, and they differ"


def ask(client: int, request: str, seconds: float = LONG_S) -> str:
    """A call in text."""
    return clients[client].call([request.encode()], deadline_ns=after(seconds)).decode()


def counters(client: int) -> dict[str, int]:
    """The server's."""
    read: dict[str, int] = json.loads(ask(client, "!counters"))
    return read


def close(client: int) -> None:
    clients[client].close()


def submit(client: int, request: str, seconds: float = LONG_S) -> int:
    return clients[client].submit([request.encode()], deadline_ns=after(seconds))


def wait(client: int, sequence: int, seconds: float = LONG_S) -> int:
    """Returns how many bytes the reply has."""
    return len(clients[client].wait(sequence, deadline_ns=after(seconds)))


def submit_until_full(client: int, request: str, seconds: float) -> list[int]:
    """As many requests as can be sent until one finds no room for that long."""
    sequences = []
    while True:
        try:
            sequences.append(submit(client, request, seconds))
        except DeadlineError:
            return sequences


def wait_for_loss(client: int, seconds: float = LONG_S) -> str:
    """Without asking for anything, until the connection is lost; returns why."""
    end = time.monotonic() + seconds
    while clients[client].alive:
        assert time.monotonic() < end, f"still alive after {seconds} s"
        time.sleep(0.01)
    return clients[client].reason


def is_alive(client: int) -> bool:
    return clients[client].alive


# Placement: the one buffer of the process, a margin, the room of a reply, a margin.


def lay_memory(client: int, room: int) -> None:
    """Register a poisoned buffer for replies of at most `room` bytes; where there is one already, that."""
    if not memory:
        memory.append(Buffer(room + 2 * MARGIN))
    assert memory[0].nbytes == room + 2 * MARGIN
    memory[0].view[:] = POISON * memory[0].nbytes
    clients[client].register(memory[0])


def echo_placed(client: int, nbytes: int) -> None:
    """A call of bytes that are drawn, whose reply must land in the room, whole, and nowhere else."""
    body = random.Random(nbytes).randbytes(nbytes)
    view = memory[0].view
    into = memory[0].range(MARGIN, memory[0].nbytes - 2 * MARGIN)
    sequence = clients[client].submit([body], deadline_ns=after(LONG_S), into=into)
    placed = clients[client].wait(sequence, deadline_ns=after(LONG_S))
    assert placed == body, f"{len(placed)} bytes were placed for {nbytes}, and they differ"
    assert view[MARGIN : MARGIN + nbytes] == body, "the reply is not where it was asked for"
    assert view[:MARGIN] == POISON * MARGIN, "something was written in front of the room"
    assert view[-MARGIN:] == POISON * MARGIN, "something was written behind the room"


def place_until_it_comes(client: int, request: str) -> int:
    """Submit a placed call and watch its memory until the first byte is there; returns its number."""
    view = memory[0].view
    into = memory[0].range(MARGIN, memory[0].nbytes - 2 * MARGIN)
    sequence = clients[client].submit([request.encode()], deadline_ns=after(LONG_S), into=into)
    end = time.monotonic() + LONG_S
    while view[MARGIN] == POISON[0]:
        assert time.monotonic() < end, "not a byte of the reply came"
    return sequence


def wait_placed(client: int, sequence: int) -> list[int]:
    """How many bytes the reply has, and how many of them are what peers/serve.py fills it with."""
    placed = clients[client].wait(sequence, deadline_ns=after(LONG_S))
    return [len(placed), bytes(placed).count(b"\xa5")]


def has_come_whole() -> bool:
    """Whether the last byte of the room was written."""
    return memory[0].view[-MARGIN - 1] != POISON[0]


def submit_into_room(client: int) -> int:
    """A placed call into the last byte of the room."""
    into = memory[0].range(memory[0].nbytes - MARGIN - 1, 1)
    return clients[client].submit([b"x"], deadline_ns=after(LONG_S), into=into)


def cancel(client: int, sequence: int) -> bool:
    return clients[client].cancel(sequence)


def settled(client: int, sequence: int, seconds: float) -> bool:
    return clients[client].settled(sequence, deadline_ns=after(seconds))


def take_memory() -> None:
    """Write bytes of our own all over the memory, as whoever was given it next would."""
    memory[0].view[:] = MINE * memory[0].nbytes


def changed_bytes() -> int:
    """How many bytes of the memory are not ours."""
    return memory[0].nbytes - bytes(memory[0].view).count(MINE)


# Packets: what arrives at the network card, whatever the RDMA device makes of it.


@functools.cache
def card() -> socket.socket:
    """Everything that the card receives from now on."""
    listened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(0x0800))
    listened.bind(("eth0", 0x0800))
    return listened


def listen_to_card() -> None:
    card()


def is_write(packet: bytes) -> bool:
    """Whether it is an RDMA WRITE of RoCE v2 over IPv4."""
    header_bytes = (packet[0] & 0xF) * 4
    transport = packet[header_bytes:]
    return (
        packet[9] == UDP
        and int.from_bytes(transport[2:4], "big") == ROCE_PORT
        and transport[8] in RDMA_WRITES
    )


def wait_for_write(seconds: float) -> None:
    """Until the card has received an RDMA WRITE."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        card().settimeout(left)
        packet, address = card().recvfrom(2048)
        if address[2] != socket.PACKET_OUTGOING and is_write(packet):
            return
    raise AssertionError(f"no WRITE came within {seconds} s")


# Coming back.


def keep_connected(
    endpoint: str, heartbeat_s: float, loss_s: float, first_s: float, longest_s: float
) -> None:
    """Make the process's reconnector; it does nothing yet."""
    made = Reconnector(
        endpoint,
        service=SERVICE,
        version_min=VERSION,
        version_max=VERSION,
        max_frame_bytes=MAX_FRAME_BYTES,
        connect=functools.partial(
            ofl_connect, heartbeat_ns=int(heartbeat_s * SECOND), loss_ns=int(loss_s * SECOND)
        ),
        backoff=Backoff(int(first_s * SECOND), int(longest_s * SECOND), seed=1),
    )
    reconnectors.append(made)


def attempt(seconds: float) -> Attempt:
    """As soon as there may be one: get a client and call through it."""
    keeper = reconnectors[0]
    made: Attempt = {"waited_s": 0.0, "error": "", "text": "", "left_s": 0.0, "boot_nonce": 0}
    while True:
        try:
            client = keeper.client(deadline_ns=after(seconds))
            made["boot_nonce"] = client.peer.boot_nonce
            client.call([b"there again"], deadline_ns=after(seconds))
        except NotYetError as error:
            made["waited_s"] += error.left_ns / SECOND
            time.sleep(error.left_ns / SECOND)
            continue
        except TransportError as error:
            made["error"], made["text"] = type(error).__name__, str(error)
            if not made["boot_nonce"]:
                made["left_s"] = left_s(keeper)
        return made


def left_s(keeper: Reconnector) -> float:
    """Right after an attempt that failed: until the next one is allowed."""
    try:
        keeper.client(deadline_ns=0)
    except NotYetError as error:
        return error.left_ns / SECOND
    except DeadlineError:  # so long did this process stand still
        return 0.0
    raise AssertionError("it connected at once")
