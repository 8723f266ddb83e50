"""Whether the tables fit before the first byte of them is read: free memory, the cgroup's limit, locked memory.

Reads /proc and /sys alone.  A limit that cannot be read limits nothing.
"""

import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
HUGE_PAGE_BYTES = 2 << 20
UNLIMITED_BYTES = 1 << 60
"""cgroups of version 1 say a number that nobody reaches where there is no limit."""


class PreflightError(ValueError):
    """The host lacks something that the tables need; one sentence with need and have."""


@dataclass(frozen=True)
class Room:
    """What one limit leaves.  have: bytes.  where: names the limit and where it is set."""

    have: int
    where: str


def check_memory(tables: int, buffers: int, *, huge: bool = False, root: Path = Path("/")) -> None:
    """Raises PreflightError where a limit leaves less than is needed.

    tables, buffers: bytes of table memory and of reply buffers.  huge: tables lie in explicit huge pages.
    """
    if huge:
        pages = -(-tables // HUGE_PAGE_BYTES)
        free = _number(root / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") or 0
        if pages > free:
            raise PreflightError(
                f"--huge-pages: the tables need {pages} pages of 2 MiB, and {free} are free (vm.nr_hugepages)"
            )
    need = buffers if huge else tables + buffers
    for room in rooms(root):
        if need > room.have:
            what = f"tables of {_gib(tables)} and reply buffers of {_gib(buffers)}"
            raise PreflightError(f"{what} do not fit: {room.where} leaves {_gib(room.have)}")


def check_staging(size: int, root: Path = Path("/")) -> None:
    """Raises PreflightError where a limit leaves less than the `size` bytes that one lookup's rows need.

    Memory that is only reserved comes late: without this, the kernel ends the process as it writes to it.
    """
    for room in rooms(root):
        if size > room.have:
            raise PreflightError(
                f"the rows of one lookup need {_gib(size)}, and {room.where} leaves {_gib(room.have)}"
            )


def check_locked(buffers: int, limit: int | None = None) -> None:
    """Raises PreflightError where the limit of locked memory does not hold the reply buffers; for RDMA listeners.

    limit: bytes; None: this process's own.
    """
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if limit is None else limit
    if soft != resource.RLIM_INFINITY and soft < buffers:
        raise PreflightError(
            f"an RDMA listener registers reply buffers of {_gib(buffers)}, and the limit of locked memory is"
            f" {_gib(soft)} (ulimit -l, LimitMEMLOCK=)"
        )


def rooms(root: Path = Path("/")) -> list[Room]:
    """What free memory and every cgroup above this process leave."""
    found = []
    available = _meminfo(root).get("MemAvailable")
    if available is not None:
        found.append(Room(available, "free memory (MemAvailable)"))
    return found + _cgroup_rooms(root)


def _meminfo(root: Path) -> dict[str, int]:
    """Bytes by name."""
    found = {}
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found


def _cgroup_rooms(root: Path) -> list[Room]:
    lines = []
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = ("memory.max", "memory.current", "inactive_file")
            found += _rooms_up(root / "sys/fs/cgroup", path, files)
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += _rooms_up(root / "sys/fs/cgroup/memory", path, files)
    return found


def _rooms_up(mount: Path, path: str, files: tuple[str, str, str]) -> list[Room]:
    """Of a cgroup and of those above it: inside a container only the mount's own may be there."""
    limit_file, used_file, cache = files
    parts = Path(path.lstrip("/")).parts
    found = []
    for depth in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:depth])
        limit, used = _number(folder / limit_file), _number(folder / used_file)
        if limit is None or used is None or limit >= UNLIMITED_BYTES:
            continue
        # File pages that nobody used lately go when memory is asked for.
        reclaimable = _stat(folder / "memory.stat").get(cache, 0)
        found.append(Room(max(limit - used + reclaimable, 0), f"the cgroup's limit ({folder / limit_file})"))
    return found


def _number(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def _stat(file: Path) -> dict[str, int]:
    found = {}
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            name, value = line.split()
            found[name] = int(value)
    return found


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB // 100 else f"{size} bytes"
