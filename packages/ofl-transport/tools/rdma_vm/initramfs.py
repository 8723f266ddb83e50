"""The initial RAM disk: busybox, the modules that the guest needs in the order of loading, and the guest's scripts.

Owns the list of modules.  All are loaded at boot: the guest finds no others afterwards.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

MODULES = (
    "9p",
    "9pnet_virtio",
    "overlay",
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "crc32_generic",
    "rdma_rxe",
    "rdma_ucm",
    "dummy",
    "veth",
    "sch_netem",
)
GUEST = Path(__file__).parent / "guest"
SCRIPTS = ("init", "start", "agent")


def sources_digest() -> str:
    """Of everything that a RAM disk is made of, the packages left out."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name in SCRIPTS:
        digest.update((GUEST / name).read_bytes())
    return digest.hexdigest()


def pack_initramfs(kernel_tree: Path, release: str, overlay: Path, target: Path) -> None:
    """Write the archive that the kernel unpacks first.  kernel_tree: holds lib/modules/<release>, after depmod."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        tree = Path(name)
        (tree / "bin").mkdir()
        (tree / "modules").mkdir()
        shutil.copy(overlay / "usr" / "bin" / "busybox", tree / "bin")
        (tree / "bin" / "sh").symlink_to("busybox")
        files = _modules_in_order(kernel_tree, release, target.parent / "modprobe")
        for file in files:
            stripped = tree / "modules" / file.name
            subprocess.run(["strip", "--strip-debug", "-o", str(stripped), str(file)], check=True)
        (tree / "modules" / "order").write_text("".join(f"{file.name}\n" for file in files))
        for script in SCRIPTS:
            shutil.copy(GUEST / script, tree)
            (tree / script).chmod(0o755)
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        command = ["cpio", "--create", "--format=newc", "--quiet"]
        archive = subprocess.run(command, cwd=tree, input=names.encode(), stdout=subprocess.PIPE, check=True)
    target.write_bytes(archive.stdout)


def _modules_in_order(kernel_tree: Path, release: str, modprobe: Path) -> list[Path]:
    """The files of MODULES and of what they depend on, each after its dependencies."""
    files: dict[Path, None] = {}
    # Without a configuration: this machine's own is about its own hardware.
    where = ["--config", "/dev/null", "--dirname", str(kernel_tree), "--set-version", release]
    for module in MODULES:
        command = [str(modprobe), *where, "--show-depends", module]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        for line in answer.stdout.splitlines():
            if line.startswith("insmod "):
                files[Path(line.removeprefix("insmod ").strip())] = None
    return list(files)
