"""Many lives and deaths: connects both ways at once, and a thousand clients that are killed at any step."""

import json
import os
import random
import subprocess
from pathlib import Path

from transport_backends import Backend
from transport_harness import Harness, said, tell
from transport_times import SCALE, eventually, scaled, soon

KILL_CYCLES = int(os.environ.get("OFL_TEST_KILL_CYCLES", "1000"))


def test_two_processes_connect_to_each_other_at_once(harness: Harness) -> None:
    rounds = 50
    peers = [harness.peer_process("both_ways", harness.backend.fresh(), str(rounds)) for _ in range(2)]
    endpoints = [said(peer, "listening on ") for peer in peers]
    for peer, endpoint in zip(peers, reversed(endpoints), strict=True):
        tell(peer, endpoint)
    for peer in peers:
        assert said(peer, "done ") == f"{rounds} with 1"  # every connection met the same life of the other
    for peer in peers:
        tell(peer, "end")
        assert peer.wait(scaled(20)) == 0


def held(process: "subprocess.Popen[str]", backend: Backend) -> dict[str, int]:
    """What a process holds of the kernel's: descriptors, threads, shared mappings; and what the RDMA devices hold."""
    folder = Path("/proc", str(process.pid))
    maps = (folder / "maps").read_text().splitlines()
    counts = {
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": len(os.listdir(folder / "task")),
        "shared mappings": sum(line.split()[1].endswith("s") for line in maps),
    }
    if backend.name == "rdma":
        for kind in ("qp", "cq", "mr", "pd"):
            command = ["rdma", "-j", "resource", "show", kind]
            listed = subprocess.run(
                command,
                capture_output=True,
                check=True,
                text=True,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            )
            counts[kind] = len(json.loads(listed.stdout or "[]"))
    return counts


def mappings(process: "subprocess.Popen[str]") -> int:
    return Path("/proc", str(process.pid), "maps").read_text().count("\n")


def doomed(harness: Harness, endpoint: str, count: int, seed: int) -> None:
    """So many clients are born and killed."""
    process = harness.peer_process("doomed", endpoint, str(count), str(seed), str(SCALE))
    assert said(process, "done ") == str(count)
    assert process.wait(scaled(20)) == 0


def test_a_thousand_killed_clients_leave_nothing_in_the_server(harness: Harness) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    server, endpoint = harness.served_process()
    client = harness.client(endpoint)

    def counters() -> dict[str, int]:
        reply: dict[str, int] = json.loads(client.call([b"!counters"], deadline_ns=soon()))
        return reply

    def quiet() -> bool:
        counts = counters()
        return counts["accepted"] - counts["disconnects"] == 1

    doomed(harness, endpoint, 20, seed)  # what is made once is made now
    eventually(quiet, "the first twenty are gone")
    before, mapped = held(server, harness.backend), mappings(server)
    doomed(harness, endpoint, KILL_CYCLES, seed + 1)
    eventually(quiet, "all are gone")

    def no_more() -> bool:
        now = held(server, harness.backend)
        return all(now[kind] <= count for kind, count in before.items())

    eventually(no_more, f"the server holds no more than {before}")
    assert counters()["accepted"] > KILL_CYCLES // 2, "most of them got as far as a connection"
    # Private mappings are the allocator's too: a few more or fewer arenas and stacks, never one for each client.
    assert abs(mappings(server) - mapped) < 40
    assert client.call([b"served all the while"], deadline_ns=soon()) == b"served all the while"
