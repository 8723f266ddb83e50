"""QEMU's command line for one VM: what the emulated machine is made of, and why.

Owns every option.  Must never ask for KVM: emulation is slower and works everywhere.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_vm.kit import Kit

KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check random.trust_cpu=on nokaslr"
)
NETWORK = "net"
"""The name of eth0's wire in QEMU."""


@dataclass(frozen=True)
class Ends:
    """Descriptors that QEMU inherits, each one end of a socket pair.  wire: leads to another VM's, or is not there."""

    agent: int
    monitor: int
    wire: int | None

    def all(self) -> list[int]:
        return [end for end in (self.agent, self.monitor, self.wire) if end is not None]


def qemu_command(
    kit: Kit,
    *,
    shared: Path,
    console: Path,
    ends: Ends,
    number: int,
    cpus: int,
    memory_mib: int,
    kernel_options: Sequence[str],
) -> list[str]:
    """The words of the command.  number: 1 to 254, of the network card.  console: a file for what the kernel says."""
    command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max"]
    command += ["-smp", str(cpus), "-m", f"{memory_mib}M"]
    command += ["-kernel", str(kit.kernel), "-initrd", str(kit.initramfs)]
    command += ["-append", " ".join([KERNEL_OPTIONS, *kernel_options])]
    command += ["-serial", f"file:{_quoted(console)}"]
    command += ["-chardev", f"socket,id=monitor,fd={ends.monitor}", "-mon", "chardev=monitor,mode=control"]
    command += ["-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={ends.agent}"]
    command += ["-device", "virtserialport,chardev=agent,name=agent"]
    for tag, path, more in (
        ("host", Path("/"), ",readonly=on"),
        ("kit", kit.overlay, ",readonly=on"),
        ("share", shared, ""),
    ):
        value = f"local,path={_quoted(path)},mount_tag={tag},security_model=none,multidevs=remap{more}"
        command += ["-virtfs", value]
    # `stream` loses nothing; `dgram` loses bursts, and then nothing gets through any more.
    wire = (
        "user,restrict=on,ipv6=off"
        if ends.wire is None
        else f"stream,server=off,addr.type=fd,addr.str={ends.wire}"
    )
    # Without the status feature the guest does not see that its link is down: packets are lost, and nothing says so.
    card = (
        f"virtio-net-pci,netdev={NETWORK},mac=52:54:00:77:00:{number:02x},status=off,speed=1000,duplex=full"
    )
    return [*command, "-netdev", f"{wire},id={NETWORK}", "-device", card]


def _quoted(path: Path) -> str:
    """A path as a value in an option of QEMU's, where commas are doubled."""
    return os.fspath(path).replace(",", ",,")
