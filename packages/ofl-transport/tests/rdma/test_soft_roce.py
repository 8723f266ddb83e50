"""The rig itself: the device, other people's RDMA programs and bare verbs work here, so that a failure of the tests
beside this one is a failure of ours.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pyverbs.enums as e
from ofl import native, rdma_devices
from perftest_output import result_row
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
MAPPED_GID_INDEX = 1
"""Of the IPv4 address mapped into IPv6; index 0 is the link-local one."""
PERFTEST_PORT = 18515
STEP_S_MAX = 120.0
LISTENING = "0A"
"""The state's number in /proc/net/tcp."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """For what tells nobody that it has happened.  Fails with what was waited for."""
    limit = time.monotonic() + STEP_S_MAX
    while not condition():
        assert time.monotonic() < limit, f"waited {STEP_S_MAX:.0f} s for {what}"
        time.sleep(0.01)


@pytest.mark.smoke
def test_the_device_is_active_and_has_a_gid_of_its_address(rdma_device: str, rdma_address: str) -> None:
    port = Path("/sys/class/infiniband", rdma_device, "ports", str(PORT))
    numbers = [int(part) for part in rdma_address.split(".")]
    mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*numbers)
    assert (port / "state").read_text() == "4: ACTIVE\n"
    assert (port / "gids" / str(MAPPED_GID_INDEX)).read_text() == f"{mapped}\n"
    assert (port / "gid_attrs" / "types" / str(MAPPED_GID_INDEX)).read_text() == "RoCE v2\n"


def test_the_library_names_the_port_and_the_gid_that_it_uses(rdma_device: str, rdma_address: str) -> None:
    _, words = native.rdma_choice(rdma_address)
    assert rdma_devices.chosen(words) == (rdma_device, PORT, MAPPED_GID_INDEX)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("program", "bytes_sent", "iterations"), [("ib_send_lat", 8, 200), ("ib_write_bw", 1 << 20, 20)]
)
def test_perftest_loops_back(
    rdma_device: str, rdma_address: str, program: str, bytes_sent: int, iterations: int
) -> None:
    command = [program, "-d", rdma_device, "-x", str(MAPPED_GID_INDEX), "-p", str(PERFTEST_PORT)]
    command += ["-s", str(bytes_sent), "-n", str(iterations)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            wait_until(lambda: is_listened_to(PERFTEST_PORT) or server.poll() is not None, program)
            client = subprocess.run(
                [*command, rdma_address], capture_output=True, text=True, timeout=STEP_S_MAX, check=False
            )
            output, _ = server.communicate(timeout=STEP_S_MAX)
        finally:
            server.kill()
    assert (client.returncode, server.returncode) == (0, 0), f"{client.stdout}{client.stderr}\n{output}"
    row = result_row(client.stdout)
    assert row[:2] == [bytes_sent, iterations]
    assert row[2] > 0


def is_listened_to(port: int) -> bool:
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()
    ]
    return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows)


class End:
    """One end of a connection made with bare verbs: 4,096 bytes of memory and a queue pair."""

    def __init__(self, device: str) -> None:
        self.context = Context(name=device)
        self.domain = PD(self.context)
        self.queue = CQ(self.context, 8)
        self.memory = MR(self.domain, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        limits = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        initial = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=limits)
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        self.pair = QP(self.domain, initial, attributes)

    def connect_to(self, other: "End") -> None:
        """Up to ready-to-send, towards the other end."""
        gid: GID = other.context.query_gid(PORT, MAPPED_GID_INDEX)
        route = GlobalRoute(dgid=gid, sgid_index=MAPPED_GID_INDEX)
        attributes = QPAttr(port_num=PORT)
        attributes.dest_qp_num = other.pair.qp_num
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.min_rnr_timer = 12
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 18, 7, 7
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self.pair.to_rts(attributes)

    def entry(self) -> SGE:
        return SGE(self.memory.buf, 4096, self.memory.lkey)

    def completion(self) -> tuple[int, int]:
        """Status and bytes of the next completion."""
        found: list[tuple[int, int]] = []

        def poll() -> bool:
            count, completions = self.queue.poll()
            found.extend((one.status, one.byte_len) for one in completions)
            return bool(count > 0)

        wait_until(poll, "a completion")
        return found[0]


@pytest.mark.smoke
def test_bare_verbs_connect_a_queue_pair_and_send_over_it(rdma_device: str) -> None:
    sender, receiver = End(rdma_device), End(rdma_device)
    sender.connect_to(receiver)
    receiver.connect_to(sender)
    for end in (sender, receiver):
        attributes, _ = end.pair.query(e.IBV_QP_STATE)
        assert attributes.qp_state == e.IBV_QPS_RTS
    message = bytes(range(256)) * 16
    sender.memory.write(message, len(message))
    receiver.pair.post_recv(RecvWR(sg=[receiver.entry()], num_sge=1))
    sender.pair.post_send(SendWR(sg=[sender.entry()], num_sge=1))
    assert sender.completion()[0] == e.IBV_WC_SUCCESS
    assert receiver.completion() == (e.IBV_WC_SUCCESS, 4096)
    assert receiver.memory.read(4096, 0) == message
