"""Stock's embedding out of a vLLM release, without the rest of vLLM: the text is taken from the release at run time.

Of the release's files only what is named below is kept; what it calls of vLLM is stood in for.  The module is written
to a folder of the caller's and imported from there, since Triton reads the source of its kernels.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

COMMON = "vllm/models/deepseek_v41/common/engram.py"
NVIDIA = "vllm/models/deepseek_v41/nvidia/engram.py"
ROOT = Path(__file__).parents[4]

KEPT = (
    "DEAD_ID",
    "_engram_lookup_thresholds",
    "_is_prime",
    "find_next_prime",
    "EngramLayout",
    "_engram_head_shard_weight_loader",
    "_SORTED_IS_CONSTEXPR",
    "_engram_lookup_kernel",
    "engram_head_shard_rank",
    "DPSharedEngramStorage",
    "ParallelEngramEmbedding",
)

HEADER = """
import ctypes, logging, mmap, os, sys, tempfile, types, weakref
from contextlib import ExitStack
import numpy as np
import torch
import triton
import triton.language as tl
from torch import nn

TP = types.SimpleNamespace(rank=0, size=1)
DP = types.SimpleNamespace(size=1)
GroupCoordinator = object
logger = logging.getLogger(__name__)
get_tensor_model_parallel_rank = lambda: TP.rank
get_tensor_model_parallel_world_size = lambda: TP.size
get_engram_dp_size = lambda: DP.size
get_engram_dp_group = lambda: None
is_uva_available = lambda: True
get_accelerator_view_from_cpu_tensor = lambda tensor: tensor
current_platform = types.SimpleNamespace(
    is_cuda=torch.cuda.is_available, is_rocm=lambda: False, is_device_capability_family=lambda *_: False
)
if not torch.cuda.is_available():
    device = types.SimpleNamespace(multi_processor_count=4)
    torch = types.SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch)})
    torch.cuda = types.SimpleNamespace(get_device_properties=lambda index: device, cudart=None)
    torch.accelerator = types.SimpleNamespace(current_device_index=lambda: 0)

def set_weight_attrs(weight, attributes):
    for name, value in attributes.items():
        assert not hasattr(weight, name), name
        setattr(weight, name, value)

"""


def releases() -> dict[str, Path]:
    """Folders with an unpacked release each, by version.

    Below VLLM_RELEASES and VLLM_RELEASES_ENGRAM, or where `nox -s contracts` leaves them.
    """
    found: dict[str, Path] = {}
    for name, default in (("VLLM_RELEASES", "vllm"), ("VLLM_RELEASES_ENGRAM", "vllm-engram")):
        folder = Path(os.environ.get(name) or ROOT / ".nox" / default)
        trees = sorted(folder.iterdir()) if folder.is_dir() else []
        found |= {path.name: path for path in trees if (path / COMMON).is_file()}
    return dict(sorted(found.items()))


def stock_module(release: Path, into: Path, name: str) -> ModuleType:
    """The release's embedding as a module called `name`, written below `into`."""
    parts = [HEADER, *_kept(release / COMMON)]
    if (release / NVIDIA).is_file():
        # There stock derives the class that its Engram constructs, under the same name, from the common one.
        parts.append("BaseParallelEngramEmbedding = ParallelEngramEmbedding\n")
        parts += _kept(release / NVIDIA)
    file = into / f"{name}.py"
    file.write_text("\n\n".join(parts), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _kept(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if _names(node) & set(KEPT):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            assert node.end_lineno is not None
            yield "\n".join(lines[first - 1 : node.end_lineno])


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
