"""Two VMs joined by one wire: what one machine cannot show, such as a peer that is cut off."""

import socket
from dataclasses import dataclass
from pathlib import Path

from rdma_vm.kit import Kit
from rdma_vm.stage import Stage
from rdma_vm.vm import Vm


@dataclass(frozen=True)
class TwoVms:
    """a is 10.77.0.1 and fd77::1, b is 10.77.0.2 and fd77::2.

    shared: a folder that both VMs and this side read and write, at the same path.
    stage: what runs our code in them: `a.start(stage.python("-m", "ofl", ...))`.
    """

    a: Vm
    b: Vm
    shared: Path
    stage: Stage


def boot_pair(kit: Kit, shared: Path) -> tuple[Vm, Vm]:
    """Two machines, a and b, whose eth0 are joined by one wire; both are booting when this returns.

    One processor each, which two cores can keep up with.  The kernels are preemptible, so that a program that polls
    cannot keep the device from its work.
    """
    first, second = socket.socketpair()
    with first, second:
        options = ("preempt=full",)
        a = Vm(kit, shared, name="a", number=1, cpus=1, memory_mib=1536, wire=first, kernel_options=options)
        try:
            b = Vm(
                kit, shared, name="b", number=2, cpus=1, memory_mib=1536, wire=second, kernel_options=options
            )
        except BaseException:
            a.close()
            raise
    return a, b
