"""One reliable-connected queue pair with pyverbs: its memory, its receives, and what has completed.

Owns verbs objects and nothing of ofl: no frame, no credit.  Every wait is the caller's; `fileno` says when to look.
"""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
POSTS_MAX = 64
MTU_BYTES = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048}
MTU_BYTES[4096] = e.IBV_MTU_4096
ACK_TIMEOUT = 18
"""4.096 us times 2**18, one second: an emulated machine takes a break now and then."""
RETRIES = 5
REMOTE_WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


@dataclass(frozen=True)
class Route:
    """Where the other end's queue pair is, and what both agreed on."""

    gid: bytes
    queue_pair: int
    packet_sequence: int
    mtu_bytes: int


@dataclass(frozen=True)
class Completion:
    """One of them.  post: what `post` returned, or None of a receive.  immediate: None where there was none.

    placed: the receive was used up by a write with immediate, and its data lies elsewhere.
    """

    post: int | None
    status: int
    immediate: int | None = None
    data: bytes = b""
    nbytes: int = 0
    placed: bool = False

    @property
    def good(self) -> bool:
        return self.status == int(e.IBV_WC_SUCCESS)


class QueuePair:
    """All its receives are posted.

    region_bytes: that the other end may write.  ack_timeout: as verbs have it.  mtu_bytes: what this end says of its
    path, None for what its port has.
    """

    def __init__(
        self,
        device: str,
        address: str,
        *,
        receives: int,
        segment_bytes: int,
        region_bytes: int,
        ack_timeout: int = ACK_TIMEOUT,
        mtu_bytes: int | None = None,
    ) -> None:
        self.ack_timeout = ack_timeout
        self.receives, self.segment_bytes = receives, segment_bytes
        self.context = Context(name=device)
        self.mtu_bytes = mtu_bytes or self._active_mtu_bytes()
        self._domain = PD(self.context)
        before = _completion_descriptors()
        self._channel = CompChannel(self.context)
        [self._descriptor] = _completion_descriptors() - before
        self._queue = CQ(self.context, receives + POSTS_MAX + 1, None, self._channel)
        self._gid_index, self.gid = self._find_gid(address)
        self.packet_sequence = int.from_bytes(os.urandom(3), "little")
        self._incoming = MR(self._domain, receives * segment_bytes, e.IBV_ACCESS_LOCAL_WRITE)
        self.region = MR(self._domain, max(region_bytes, 1), REMOTE_WRITE)
        limits = QPCap(max_send_wr=POSTS_MAX, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1)
        initial = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self._queue, rcq=self._queue, cap=limits)
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = REMOTE_WRITE
        self._pair = QP(self._domain, initial, attributes)
        self.number: int = self._pair.qp_num
        self._spare: list[MR] = []
        self._staged: dict[int, MR] = {}
        self._posts = 0
        for index in range(receives):
            self._post_receive(index)

    @property
    def full(self) -> bool:
        """As many posts are under way as there may be."""
        return len(self._staged) >= POSTS_MAX

    def connect_to(self, other: Route) -> None:
        """Up to ready-to-send."""
        attributes = QPAttr(port_num=PORT)
        attributes.dest_qp_num, attributes.path_mtu = other.queue_pair, MTU_BYTES[other.mtu_bytes]
        attributes.rq_psn, attributes.sq_psn = other.packet_sequence, self.packet_sequence
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = self.ack_timeout, RETRIES, 7
        gid = GID(str(ipaddress.IPv6Address(other.gid).exploded))
        route = GlobalRoute(dgid=gid, sgid_index=self._gid_index, hop_limit=64)
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        attributes.qp_access_flags = REMOTE_WRITE
        self._pair.to_rts(attributes)

    def send(self, data: bytes, immediate: int | None) -> int:
        """Post a SEND, and copy the data first.  Returns its number."""
        opcode = e.IBV_WR_SEND if immediate is None else e.IBV_WR_SEND_WITH_IMM
        return self._post(opcode, data, immediate, None)

    def write(self, data: bytes, address: int, key: int, immediate: int | None = None) -> int:
        """Post an RDMA WRITE, and copy the data first.  Returns its number."""
        opcode = e.IBV_WR_RDMA_WRITE if immediate is None else e.IBV_WR_RDMA_WRITE_WITH_IMM
        return self._post(opcode, data, immediate, (key, address))

    def _post(
        self, opcode: object, data: bytes, immediate: int | None, remote: tuple[int, int] | None
    ) -> int:
        assert not self.full, "as many posts are under way as there may be"
        self._posts += 1
        memory = self._memory(len(data))
        memory.write(data, len(data))
        request = SendWR(
            self._posts,
            opcode=opcode,
            num_sge=1,
            imm_data=socket.htonl(immediate or 0),
            sg=[SGE(memory.buf, len(data), memory.lkey)],
            send_flags=e.IBV_SEND_SIGNALED,
        )
        if not data:  # pyverbs makes none without a part, and devices may read a part of 0 bytes as 2**31
            request.num_sge = 0
        if remote is not None:
            request.set_wr_rdma(*remote)
        self._staged[self._posts] = memory
        self._pair.post_send(request)
        return self._posts

    def poll(self) -> list[Completion]:
        """What has completed.  Where that is nothing, `fileno` becomes readable once something has."""
        if not (found := self._take()):
            self._queue.req_notify()
            found = self._take()
        return found

    def fileno(self) -> int:
        return self._descriptor

    def acknowledge(self) -> None:
        """After `fileno` was readable."""
        self._channel.get_cq_event(self._queue)
        self._queue.ack_events(1)

    def fail(self) -> None:
        """Into the error state, as a device does that has given up."""
        attributes = QPAttr()
        attributes.qp_state = e.IBV_QPS_ERR
        self._pair.modify(attributes, e.IBV_QP_STATE)

    def close(self) -> None:
        self._pair.close()
        self.context.close()

    def _memory(self, nbytes: int) -> MR:
        if nbytes <= self.segment_bytes and self._spare:
            return self._spare.pop()
        return MR(self._domain, max(nbytes, self.segment_bytes), e.IBV_ACCESS_LOCAL_WRITE)

    def _take(self) -> list[Completion]:
        _, entries = self._queue.poll(num_entries=16)
        return [self._completion(entry) for entry in entries]

    def _completion(self, entry: WC) -> Completion:
        if entry.wr_id & _OF_A_RECEIVE:
            return self._received(entry.wr_id ^ _OF_A_RECEIVE, entry)
        memory = self._staged.pop(entry.wr_id)
        if memory.length == self.segment_bytes:
            self._spare.append(memory)
        return Completion(entry.wr_id, int(entry.status))

    def _received(self, index: int, entry: WC) -> Completion:
        if int(entry.status) != int(e.IBV_WC_SUCCESS):
            return Completion(None, int(entry.status))
        has_immediate = entry.wc_flags & int(e.IBV_WC_WITH_IMM)
        immediate = socket.ntohl(entry.imm_data) if has_immediate else None
        placed = int(entry.opcode) == int(e.IBV_WC_RECV_RDMA_WITH_IMM)
        size = 0 if placed else entry.byte_len
        data = bytes(self._incoming.read(size, index * self.segment_bytes)) if size else b""
        self._post_receive(index)
        return Completion(None, int(entry.status), immediate, data, entry.byte_len, placed)

    def _post_receive(self, index: int) -> None:
        start = self._incoming.buf + index * self.segment_bytes
        entry = SGE(start, self.segment_bytes, self._incoming.lkey)
        self._pair.post_recv(RecvWR(_OF_A_RECEIVE | index, num_sge=1, sg=[entry]))

    def _active_mtu_bytes(self) -> int:
        active = int(self.context.query_port(PORT).active_mtu)
        return next(size for size, number in MTU_BYTES.items() if int(number) == active)

    def _find_gid(self, address: str) -> tuple[int, bytes]:
        wanted = ipaddress.ip_address(address)
        mapped = wanted if wanted.version == 6 else ipaddress.IPv6Address(f"::ffff:{wanted}")
        for entry in self.context.query_gid_table(64):
            found = ipaddress.IPv6Address(entry.gid_str())
            if found == mapped and int(entry.gid_type) == int(e.IBV_GID_TYPE_ROCE_V2):
                return entry.gid_index, found.packed
        raise LookupError(f"no RoCE v2 GID of {address}")


_OF_A_RECEIVE = 1 << 63


def _completion_descriptors() -> set[int]:
    """This process's completion channels: pyverbs does not tell their descriptors."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if "infinibandevent" in str(entry.readlink()):
                found.add(int(entry.name))
        except OSError:  # the listing's own descriptor
            continue
    return found
