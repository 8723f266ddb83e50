"""What doctor asks about a worker's checkpoint and GPU, as facts: plain JSON values.

A GPU is asked of its driver's own tool, within a bound, so that nothing is allocated on it.
"""

import importlib.util
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from x86_worker.checkpoint import CheckpointError, identity_of, read_drafter
from x86_worker.checkpoint.folder import read_json_object

GPU_WAIT_S = 20.0
"""A driver that wakes up a GPU takes seconds."""
GPU_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,memory.free,driver_version",
    "--format=csv,noheader,nounits",
)
VISIBLE = "CUDA_VISIBLE_DEVICES"
IDENTITIES = ("identity", "markov_identity")


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver lists it; memory in MiB."""

    index: int
    name: str
    total_mib: int
    free_mib: int
    driver: str


@dataclass(frozen=True)
class Gpus:
    """All of them, or why they cannot be listed."""

    found: tuple[Gpu, ...]
    error: str = ""


def list_gpus() -> Gpus:
    """What nvidia-smi lists."""
    try:
        done = subprocess.run(
            GPU_COMMAND,
            capture_output=True,
            text=True,
            timeout=GPU_WAIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Gpus((), "nvidia-smi is not installed")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Gpus((), f"nvidia-smi: {error}")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return Gpus((), f"nvidia-smi: {said[0] if said else f'status {done.returncode}'}")
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> Gpus:
    """What GPU_COMMAND printed."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 5 or not all(cells[at].isdecimal() for at in (0, 2, 3)):
            return Gpus((), f"nvidia-smi said {line[:80]!r}")
        found.append(Gpu(int(cells[0]), cells[1], int(cells[2]), int(cells[3]), cells[4]))
    return Gpus(tuple(found), "" if found else "nvidia-smi lists no GPU")


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    return importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class WorkerAsks:
    """The questions.  Each is a field, so that a test can answer it otherwise."""

    list_gpus: Callable[[], Gpus] = list_gpus
    has_torch: Callable[[], bool] = has_torch


@dataclass(frozen=True)
class Examined:
    """What is to be served.  digest: read every byte of the weights for the identities."""

    environ: Mapping[str, str]
    drafter: Path
    target: Path
    device: str = "cpu"
    digest: bool = True
    identity_file: Path | None = None


def worker_facts(asks: WorkerAsks, examined: Examined) -> dict[str, Any]:
    """The facts "worker" and "identities".  Raises CheckpointError on an identity file that is none."""
    said = None
    if examined.identity_file is not None:
        values = read_json_object(examined.identity_file)
        said = {name: str(values.get(name, "")) for name in IDENTITIES}
    on_gpu = examined.device != "cpu"
    gpus = asks.list_gpus() if on_gpu else Gpus(())
    checkpoint = read_checkpoint(examined)
    identities = checkpoint.pop("identities")
    worker = {
        "drafter": str(examined.drafter),
        "target": str(examined.target),
        "checkpoint": checkpoint,
        "identity_file": said,
        "torch": asks.has_torch(),
        "device": examined.device,
        "gpu_index": gpu_index(examined.device, examined.environ.get(VISIBLE)) if on_gpu else None,
        "gpus": [asdict(gpu) for gpu in gpus.found],
        "gpus_error": gpus.error,
    }
    return {"worker": worker, "identities": identities}


def read_checkpoint(examined: Examined) -> dict[str, Any]:
    """Whether the folders hold a drafter that can be served, how large it is, and what it is."""
    found: dict[str, Any] = {"error": "", "tensor_bytes": 0, "identities": {}}
    try:
        opened = read_drafter(examined.drafter, examined.target)
        found["tensor_bytes"] = sum(tensor.byte_count for tensor in opened.tensors.values())
        if examined.digest:
            record = identity_of(opened)
            found["identities"] = {name: getattr(record, name).hex() for name in IDENTITIES}
    except CheckpointError as error:
        found["error"] = str(error)
    except OSError as error:
        found["error"] = f"{error.filename or examined.drafter}: {error.strerror or error}"
    return found


def gpu_index(device: str, visible: str | None) -> int:
    """The driver's number of a device such as cuda or cuda:1; -1 where it is hidden or named otherwise."""
    number = device.partition(":")[2] or "0"
    if not number.isdecimal():
        return -1
    if visible is None:
        return int(number)
    shown = [word.strip() for word in visible.split(",")]
    if int(number) >= len(shown) or not shown[int(number)].isdecimal():
        return -1
    return int(shown[int(number)])
