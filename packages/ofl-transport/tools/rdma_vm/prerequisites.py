"""What a machine must have to boot the VM, and the reason in one sentence where it cannot.

Owns the names of Debian's packages.  Must never leave a half-checked machine to fail later with something obscure.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

GUEST_PYTHON = Path("/usr/bin/python3")
"""Debian's own: python3-pyverbs is built for it and for no other."""
GUEST_PYTHON_MINIMUM = (3, 11)

INSTALLED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "cpio": "cpio",
    "strip": "binutils",
    "rdma": "iproute2",
    "setpriv": "util-linux",
    str(GUEST_PYTHON): "python3",
}
"""Programs that are run from where they are installed, and the package of each."""

KERNEL = "linux-image-amd64"
"""Names the kernel's package in its dependencies.  Debian's cloud kernel has neither soft-RoCE nor 9p."""

UNPACKED = (
    "busybox-static",
    "ibverbs-providers",
    "ibverbs-utils",
    "kmod",
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "libnl-3-dev",
    "libnl-route-3-dev",
    "libpci3",
    "librdmacm-dev",
    "librdmacm1",
    "pci.ids",
    "perftest",
    "python3-pyverbs",
)
"""Downloaded and unpacked for the guest, never installed: rdma-core's packages would bring another systemd along."""


class UnavailableError(Exception):
    """This machine cannot boot the VM; the message is one sentence that says what is missing and what would help."""


def require_platform() -> None:
    """Raises UnavailableError unless this is an amd64 Debian, whose root file system the guest can share."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise UnavailableError(
            "the VM boots this machine's own root file system under an amd64 kernel, "
            f"and this is {platform.system()} on {platform.machine()}"
        )
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if not shutil.which(program):
            raise UnavailableError(f"the VM is made of Debian's packages, and {program} is not here")


def require_programs() -> list[str]:
    """Have every program of INSTALLED: install the packages of those that are missing, and return their names.

    Raises UnavailableError where that takes root, or where apt could not.
    """
    missing = sorted({package for program, package in INSTALLED.items() if not shutil.which(program)})
    if missing:
        words = " ".join(missing)
        if os.geteuid() != 0:
            raise UnavailableError(
                f"the VM needs Debian's {words}, which only root can install: apt-get install {words}"
            )
        _install(missing)
    _require_guest_python()
    return missing


def apt(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run apt-get quietly in a folder; the caller judges the exit status."""
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", *words]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def apt_with_fresh_lists(*words: str, folder: Path | None = None) -> None:
    """Run apt-get; where it fails, once more after `apt-get update`.  Raises UnavailableError."""
    if apt(*words, folder=folder).returncode == 0:
        return
    if os.geteuid() == 0:
        apt("update")
    again = apt(*words, folder=folder)
    if again.returncode != 0:
        lines = again.stderr.strip().splitlines() or ["it said nothing"]
        raise UnavailableError(f"apt-get {words[0]} failed: {lines[-1]}")


def _install(packages: Iterable[str]) -> None:
    apt_with_fresh_lists("install", "--yes", "--no-install-recommends", *packages)
    if still := [program for program in INSTALLED if not shutil.which(program)]:
        raise UnavailableError(
            f"{still[0]} is not here although its package {INSTALLED[still[0]]} was installed"
        )


def _require_guest_python() -> None:
    command = [str(GUEST_PYTHON), "-c", "import sys; print(*sys.version_info[:2])"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise UnavailableError(f"{GUEST_PYTHON}, which runs the tests in the VM, does not work")
    version = tuple(int(word) for word in answer.stdout.split())
    if version < GUEST_PYTHON_MINIMUM:
        raise UnavailableError(
            f"{GUEST_PYTHON}, which runs the tests in the VM, is {version[0]}.{version[1]}; "
            f"{GUEST_PYTHON_MINIMUM[0]}.{GUEST_PYTHON_MINIMUM[1]} or newer is needed"
        )
