"""Calls between two hosts over every kind of GID, who chose it and why, and what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rdma_vm.two_vms import TwoVms
from rdma_vm.vm import Vm
from two_vms import steps
from two_vms.rig import DEFAULT, Rig, gid_address

SIZES = (0, 1, 64, 4096, 16_360, 16_361, 75_000, 1_000_000)
"""A segment of 16,384 bytes holds a header and 16,360."""
MIB = 1 << 20


@pytest.mark.smoke
def test_calls_and_a_placed_reply_between_two_hosts_come_back_right(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server)
    wire = a.do(steps.facts, client)["wire"]
    assert wire.startswith(f"rdma: rxe0 port 1 GID 1 {two_vms.a.address} (RoCE v2 on eth0)"), wire
    for nbytes in SIZES:
        a.do(steps.echo, client, nbytes)
    a.do(steps.lay_memory, client, MIB)
    a.do(steps.echo_placed, client, MIB)


@pytest.mark.parametrize(("index", "zone"), [(2, ""), (0, "%eth0")], ids=["ipv6", "link_local"])
def test_a_connection_uses_the_gid_of_the_address_that_it_goes_over(
    two_vms: TwoVms, index: int, zone: str
) -> None:
    rig = Rig(two_vms)
    server = rig.serve(f"rdma://[{gid_address(two_vms.b, index)}{zone}]:0")
    a, client = rig.connected(server)
    own = gid_address(two_vms.a, index)
    wire = a.do(steps.facts, client)["wire"]
    assert wire.startswith(f"rdma: rxe0 port 1 GID {index} {own} (RoCE v2 on eth0)"), wire
    for nbytes in (64, 75_000):
        a.do(steps.echo, client, nbytes)
    a.do(steps.lay_memory, client, MIB)
    a.do(steps.echo_placed, client, MIB)


def test_probe_says_which_device_carries_the_way_and_why(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.echo_serve(f"rdma://{two_vms.b.address}:0", f"rdma://[{two_vms.b.address6}]:0")
    said = two_vms.a.run(connecting_probe(rig, server.endpoint), timeout_s=120).check().stdout
    chosen = (
        f"rxe0 port 1 GID 1 {two_vms.a.address} (RoCE v2 on eth0) is the GID of {two_vms.a.address} (eth0)"
    )
    assert f"RDMA from {two_vms.a.address}: {chosen}, path MTU 1024" in said
    assert f"connect: ofl-echo version 1 accepted over rdma: {chosen}" in said
    assert f"alive for {2000 * DEFAULT.loss_s:.0f} ms over RDMA" in said


def test_probe_tells_a_way_that_carries_tcp_and_no_rdma(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.echo_serve(f"rdma://{two_vms.b.address}:0")
    with dropping_roce(two_vms.b):
        ended = two_vms.a.run(connecting_probe(rig, server.endpoint), timeout_s=120)
    assert ended.status == 1, ended
    assert f"connect: failed: {server.endpoint}: the negotiation over TCP succeeded" in ended.stdout
    assert "a firewall drops UDP port 4791" in ended.stdout


def connecting_probe(rig: Rig, endpoint: str) -> str:
    """With the times of this machine."""
    times = f"OFL_HEARTBEAT_MS={1000 * DEFAULT.heartbeat_s:.0f} OFL_LOSS_MS={1000 * DEFAULT.loss_s:.0f}"
    return f"export {times}; {rig.ofl('probe', endpoint, '--connect', '--timeout-ms', '60000')}"


@contextmanager
def dropping_roce(vm: Vm) -> Iterator[None]:
    """Meanwhile the VM drops what comes to RoCE v2's port, as a firewall would: by a rule before the local table's."""
    local, drop = "pref 1 lookup local", f"pref 0 iif eth0 ipproto udp dport {steps.ROCE_PORT} blackhole"
    vm.run(f"ip rule add {local} && ip rule del pref 0 && ip rule add {drop}").check()
    try:
        yield
    finally:
        vm.run("ip rule del pref 0 && ip rule add pref 0 lookup local && ip rule del pref 1").check()


def test_an_address_without_an_rdma_device_is_refused_by_name(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    two_vms.b.run("ip link add nordma0 type dummy && ip addr add 10.99.0.1/24 dev nordma0").check()
    try:
        two_vms.b.run("ip link set nordma0 up").check()
        for address, interface in (("10.99.0.1", "nordma0"), ("127.0.0.1", "lo")):
            ended = two_vms.b.run(rig.ofl("echo", "serve", f"rdma://{address}:0"))
            assert ended.status == 2, ended
            assert f"no RDMA device carries {address} ({interface})" in ended.stderr
            assert f"rxe0 port 1 GID 1 {two_vms.b.address}" in ended.stderr, "what there is instead"
    finally:
        two_vms.b.run("ip link del nordma0").check()
