"""The kit: a folder with the kernel, the guest's packages and the initial RAM disk, built once and kept.

Owns the folder and its stamps.  A kit is complete or not there: it is built beside its place and renamed into it, under
a lock, so that two sessions at once share one.  Must never install what can be unpacked.
"""

import contextlib
import fcntl
import json
import lzma
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rdma_vm.initramfs import pack_initramfs, sources_digest
from rdma_vm.prerequisites import (
    KERNEL,
    UNPACKED,
    UnavailableError,
    apt_with_fresh_lists,
    require_platform,
    require_programs,
)

LAYOUT = 1
"""Counted up when this file lays a kit out in another way."""

KERNEL_PARTS = (
    "boot/vmlinuz*",
    "lib/modules/*/modules.*",
    "lib/modules/*/kernel/crypto/crc32*",
    "lib/modules/*/kernel/drivers/char/virtio_console.ko*",
    "lib/modules/*/kernel/drivers/infiniband/core*",
    "lib/modules/*/kernel/drivers/infiniband/sw*",
    "lib/modules/*/kernel/drivers/net/*.ko*",
    "lib/modules/*/kernel/drivers/virtio*",
    "lib/modules/*/kernel/fs/9p*",
    "lib/modules/*/kernel/fs/configfs*",
    "lib/modules/*/kernel/fs/fscache*",
    "lib/modules/*/kernel/fs/netfs*",
    "lib/modules/*/kernel/fs/overlayfs*",
    "lib/modules/*/kernel/net/9p*",
    "lib/modules/*/kernel/net/core*",
    "lib/modules/*/kernel/net/ipv4/udp_tunnel.ko*",
    "lib/modules/*/kernel/net/ipv6/ip6_udp_tunnel.ko*",
    "lib/modules/*/kernel/net/sched/sch_netem.ko*",
)
"""Of the kernel's package, what the guest can use; the whole would take ten times the space."""

XZ_MAGIC = b"\xfd7zXZ\0"


@dataclass(frozen=True)
class Kit:
    """Where the parts lie.  overlay: what the guest sees over the machine's root file system."""

    folder: Path

    @property
    def overlay(self) -> Path:
        return self.folder / "overlay"

    @property
    def kernel_tree(self) -> Path:
        return self.folder / "kernel"

    @property
    def kernel(self) -> Path:
        """The kernel to boot: uncompressed, which takes 3 s of emulated time less."""
        return self.folder / "vmlinux"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs.cpio"

    @property
    def verbs_headers(self) -> Path:
        """An include folder with infiniband/verbs.h."""
        return self.overlay / "usr" / "include"

    @property
    def release(self) -> str:
        """The kernel's version as its modules' folder says it."""
        [modules] = (self.kernel_tree / "lib" / "modules").iterdir()
        return modules.name


def ensure_kit(base: Path) -> tuple[Kit, str]:
    """A complete kit in base, and in a few words what it took.  Raises UnavailableError with the reason."""
    require_platform()
    done = [f"installed {', '.join(installed)}"] if (installed := require_programs()) else []
    base.mkdir(parents=True, exist_ok=True)
    with _locked(base / "lock"):
        kit = Kit(base / "kit")
        kept, newest = _kept_kernel(kit), _newest_kernel()
        if kept is None or newest not in (kept, None):
            package = newest or _newest_kernel_after_update()
            size = _build(base / "kit.part", package)
            shutil.rmtree(kit.folder, ignore_errors=True)
            (base / "kit.part").rename(kit.folder)
            done.append(f"unpacked {size / 1e6:.0f} MB of packages")
        digest = sources_digest()
        stamp = kit.folder / "initramfs.sha256"
        if not stamp.is_file() or stamp.read_text() != digest:
            pack_initramfs(kit.kernel_tree, kit.release, kit.overlay, kit.initramfs)
            stamp.write_text(digest)
            done.append("packed the initial RAM disk")
    return kit, ", ".join(done) or "kept from before"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(kernel_package: str) -> dict[str, object]:
    """What a kit is built from; another stamp means another kit."""
    return {"layout": LAYOUT, "kernel": kernel_package, "unpacked": [*UNPACKED], "parts": [*KERNEL_PARTS]}


def _kept_kernel(kit: Kit) -> str | None:
    """The kernel's package and version in a kit that is there, if this file would build it the same way today."""
    path = kit.folder / "stamp.json"
    if not path.is_file():
        return None
    stamp = json.loads(path.read_text())
    kernel = str(stamp.get("kernel"))
    return kernel if stamp == _stamp(kernel) else None


def _newest_kernel() -> str | None:
    """The package and version that KERNEL stands for now, as `package=version`, or None where apt has no lists."""
    depends = _output("apt-cache", "depends", KERNEL)
    names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line]
    if not names:
        return None
    policy = _output("apt-cache", "policy", names[0])
    versions = [line.split()[-1] for line in policy.splitlines() if line.strip().startswith("Candidate:")]
    return f"{names[0]}={versions[0]}" if versions and versions[0] != "(none)" else None


def _newest_kernel_after_update() -> str:
    apt_with_fresh_lists("update")
    found = _newest_kernel()
    if found is None:
        raise UnavailableError(f"apt knows no package {KERNEL}, whose kernel the VM boots")
    return found


def _build(folder: Path, kernel_package: str) -> int:
    """Download and unpack everything into a new folder.  Returns how many bytes were downloaded."""
    shutil.rmtree(folder, ignore_errors=True)
    packages = folder / "packages"
    packages.mkdir(parents=True)
    apt_with_fresh_lists("download", kernel_package, *UNPACKED, folder=packages)
    kit = Kit(folder)
    kit.overlay.mkdir()
    for name in UNPACKED:
        _run("dpkg-deb", "--extract", str(_archive(packages, name)), str(kit.overlay))
    _merge_usr(kit.overlay)
    kernel = _archive(packages, kernel_package.partition("=")[0])
    _extract_parts(kernel, kit.kernel_tree)
    [compressed] = (kit.kernel_tree / "boot").iterdir()
    kit.kernel.write_bytes(_uncompressed(compressed.read_bytes()))
    for name in ("modprobe", "depmod"):
        (folder / name).symlink_to("overlay/usr/bin/kmod")
    _run(str(folder / "depmod"), "--basedir", str(kit.kernel_tree), kit.release)
    size = sum(path.stat().st_size for path in packages.iterdir())
    shutil.rmtree(packages)
    (folder / "stamp.json").write_text(json.dumps(_stamp(kernel_package)))
    return size


def _archive(folder: Path, package: str) -> Path:
    [path] = folder.glob(f"{package}_*.deb")
    return path


def _merge_usr(tree: Path) -> None:
    """Move /lib, /bin and /sbin below /usr: laid over the root file system they would hide its links of those names."""
    for name in ("lib", "bin", "sbin"):
        old = tree / name
        if old.is_dir():
            shutil.copytree(old, tree / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)


def _extract_parts(archive: Path, folder: Path) -> None:
    folder.mkdir()
    patterns = [f"./{part}" for part in KERNEL_PARTS]
    source = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE)
    with source:
        subprocess.run(
            ["tar", "-x", "-C", str(folder), "--wildcards", *patterns], stdin=source.stdout, check=True
        )
    if source.returncode != 0:
        raise UnavailableError(f"dpkg-deb could not read {archive.name}")


def _uncompressed(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage; the bzImage itself where it is not compressed by xz, as it can be booted too."""
    start = image.find(XZ_MAGIC)
    return lzma.LZMADecompressor().decompress(image[start:]) if start >= 0 else image


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def _output(*words: str) -> str:
    return subprocess.run(words, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
