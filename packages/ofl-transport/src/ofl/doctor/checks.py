"""The checks of one host: its build, kernel, memory, clock and key.  Pure."""

import re

from ofl.doctor import link_checks, table_checks
from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped, warned

KERNEL_MIN = (5, 4)
"""waitid(2) on a pidfd; memfd_create(2) and its seals are older."""
IO_URING_MIN = (5, 6)
"""IORING_OP_READ; the tables' local shard is read through it."""
SHM_BYTES_MIN = 1 << 30
"""vLLM's ranks hand tensors to each other there, and NCCL its buffers; containers give 64 MiB unless told otherwise."""

REINSTALL = "pip install --force-reinstall --no-deps ofl-transport=={version}"
ONE_COPY = (
    "take the other copy off PYTHONPATH, or pip install ofl-transport=={version}; "
    "python -c 'import ofl; print(ofl.__file__)' shows which one is used"
)
OTHER_WHEEL = "pip install --force-reinstall --no-deps the wheel of ofl-transport for linux_{machine}"
NEWER_KERNEL = "boot kernel {needed} or newer (uname -r shows {kernel})"
ALLOW_IO_URING = "sysctl -w kernel.io_uring_disabled=0"
LARGER_SHM = (
    "docker run --shm-size={mib}m (or --ipc=host); outside a container: mount -o remount,size={mib}m /dev/shm"
)
SYNCHRONISE = "timedatectl set-ntp true, or start chrony on this host"
REPAIR_KEY = "{repair}"


def package_version(facts: Facts) -> Verdict:
    """The code that runs is the code that pip knows."""
    installed, running = facts["packages"].get("ofl-transport"), facts["code_version"]
    if installed is None:
        return passed(f"ofl-transport {running}, copied rather than installed")
    if installed != running:
        return failed(
            f"version {running} is imported, and {installed} is installed", ONE_COPY, version=installed
        )
    return passed(", ".join(f"{name} {version}" for name, version in facts["packages"].items()))


def native_library(facts: Facts) -> Verdict:
    """libofl.so is there, loads, is of this machine and as it was installed."""
    library = facts["library"]
    machine, built, version = facts["machine"], library["machine"], facts["code_version"]
    if built and built != machine:
        seen = f"{library['path']} was built for {built}, and this host is {machine}"
        return failed(seen, OTHER_WHEEL, machine=machine)
    if library["error"]:
        return failed(library["error"], REINSTALL, version=version)
    if library["recorded"] and library["recorded"] != library["sha256"]:
        seen = f"{library['path']} has sha256 {library['sha256']}, and {library['recorded']} was installed"
        return failed(seen, REINSTALL, version=version)
    return passed(f"{library['path']}, sha256 {library['sha256']}")


def kernel(facts: Facts) -> Verdict:
    """Processes are watched by pidfd, and memory is shared by memfd."""
    found = _release(facts["kernel"])
    if found is None:
        return skipped(f"/proc/sys/kernel/osrelease says {facts['kernel']!r}")
    if found < KERNEL_MIN:
        seen = f"kernel {facts['kernel']} cannot wait for a process by pidfd"
        return failed(seen, NEWER_KERNEL, needed=_dotted(KERNEL_MIN), kernel=facts["kernel"])
    return passed(f"kernel {facts['kernel']} on {facts['machine']}")


def io_uring(facts: Facts) -> Verdict:
    """Only the tables use it, and read with threads where it is not there."""
    found = _release(facts["kernel"])
    if found is None:
        return skipped(f"/proc/sys/kernel/osrelease says {facts['kernel']!r}")
    if found < KERNEL_MIN:
        return skipped("the kernel is too old anyway: see kernel")
    cost = "the tables' local shard is read by threads"
    if found < IO_URING_MIN:
        seen = f"kernel {facts['kernel']} has no io_uring that reads: {cost}"
        return warned(seen, NEWER_KERNEL, needed=_dotted(IO_URING_MIN), kernel=facts["kernel"])
    if facts["io_uring_disabled"] in ("1", "2"):
        seen = f"kernel.io_uring_disabled is {facts['io_uring_disabled']}: {cost}"
        return warned(seen, ALLOW_IO_URING)
    return passed("the kernel has it")


def shm_size(facts: Facts) -> Verdict:
    """/dev/shm has room."""
    shm = facts["shm"]
    if shm["error"]:
        return skipped(f"/dev/shm: {shm['error']}")
    total = shm["total_bytes"] >> 20
    if shm["total_bytes"] < SHM_BYTES_MIN:
        seen = f"/dev/shm has {total} MiB, and an engine needs {SHM_BYTES_MIN >> 20}"
        judged = failed if facts["role"] == "engine" else warned
        return judged(seen, LARGER_SHM, mib=SHM_BYTES_MIN >> 20)
    return passed(f"/dev/shm has {total} MiB, {shm['free_bytes'] >> 20} of them free")


def clock_sync(facts: Facts) -> Verdict:
    """Nothing here needs it to run; logs, stats and receipts of several hosts are read side by side."""
    clock = facts["clock"]
    if clock["error"]:
        return skipped(f"adjtimex: {clock['error']}")
    if not clock["synchronised"]:
        seen = "nothing keeps the clock in step: times of several hosts cannot be compared"
        return warned(seen, SYNCHRONISE)
    return passed(f"kept in step, off by {clock['error_us'] / 1000:.1f} ms at most")


def key_file(facts: Facts) -> Verdict:
    """Nobody else can have read or changed it."""
    found = facts["key_file"]
    if found is None:
        return skipped("no key file is set: nothing is proved between the ends")
    if not found["error"]:
        return passed(found["path"])
    # The sentence is "key file NAME RULE: REPAIR"; without a repair in it the rule stands for itself.
    named = f"key file {found['path']} "
    rule, _, repair = found["error"].removeprefix(named).partition(": ")
    return failed(f"{found['path']} {rule}", REPAIR_KEY, repair=repair or "ofl keygen FILE makes another")


def _release(text: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


HOST_CHECKS = (
    Check(
        "package-version",
        "the `ofl` that is imported is the one that is installed",
        (ONE_COPY,),
        package_version,
    ),
    Check(
        "native-library",
        "`libofl.so` is there, loads, is for this machine, and has the digest of its installation",
        (OTHER_WHEEL, REINSTALL),
        native_library,
    ),
    Check("kernel", "the kernel has pidfd and memfd as they are used (5.4)", (NEWER_KERNEL,), kernel),
    Check(
        "io-uring",
        "io_uring can be used (5.6); a warning, as the tables can do without",
        (NEWER_KERNEL, ALLOW_IO_URING),
        io_uring,
    ),
    Check(
        "shm-size",
        "`/dev/shm` has at least 1 GiB; a warning where no engine is to run",
        (LARGER_SHM,),
        shm_size,
    ),
    Check("clock-sync", "the clock is kept in step; a warning", (SYNCHRONISE,), clock_sync),
    Check("key-file", "the key file may be used: mode, owner, kind, size", (REPAIR_KEY,), key_file),
    *link_checks.LINK_CHECKS,
    *table_checks.TABLE_CHECKS,
)
"""In the order in which they are shown."""
