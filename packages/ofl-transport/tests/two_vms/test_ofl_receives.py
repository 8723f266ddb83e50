"""A receive is always there: no device ever says that it has none (RNR), however slow the process behind it is.

The counters hold everything that these two VMs did before.  So the load of this file is the worst, and comes last.
"""

import time

from rdma_vm.two_vms import TwoVms
from rdma_vm.vm import Vm
from transport_times import scaled
from two_vms import steps
from two_vms.remote import freeze, thaw
from two_vms.rig import Rig, hw_counters

RECEIVES = 64
"""What each end posts."""
RESERVE = 2
"""Receives that data leaves to credit updates."""
REPLY_BYTES = 300_000
REPLIES = 20
FULL_PACKETS = 600
"""More than half of what 62 segments of 16,384 bytes are, over a path of 1,024."""
STILL_S_MAX = 120.0


def wait_until_still(vm: Vm, packets_min: int) -> None:
    """Until the device has sent so many packets, and sends no more."""
    limit, last = time.monotonic() + STILL_S_MAX, -1
    while (sent := hw_counters(vm)["sent_pkts"]) < packets_min or sent != last:
        assert time.monotonic() < limit, f"{sent} packets were sent, and {packets_min} expected"
        last = sent


def test_no_device_has_ever_been_without_a_receive(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server)
    # A server that stands still: its client stops by itself, with nothing lost.
    freeze(server.job)
    stopped = a.do(steps.submit_until_full, client, "small", scaled(0.1))
    assert RECEIVES // 2 - RESERVE <= len(stopped) <= RECEIVES - RESERVE
    thaw(server.job)
    assert [a.do(steps.wait, client, sequence) for sequence in stopped] == [len("small")] * len(stopped)
    # A client that stands still, with more on its way to it than it has receives.
    sent = hw_counters(two_vms.b)["sent_pkts"]
    asked = [a.do(steps.submit, client, f"!bytes {REPLY_BYTES}") for _ in range(REPLIES)]
    freeze(a.job)
    wait_until_still(two_vms.b, sent + FULL_PACKETS)
    thaw(a.job)
    assert [a.do(steps.wait, client, sequence) for sequence in asked] == [REPLY_BYTES] * len(asked)
    a.do(steps.echo, client, 8 << 20)
    for vm in (two_vms.a, two_vms.b):
        counters = hw_counters(vm)
        assert counters["sent_pkts"] > len(asked) * REPLY_BYTES / 1024 / 10, "they count"
        rnr = {name: counters[name] for name in ("send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err")}
        assert not any(rnr.values()), (vm.name, rnr)
