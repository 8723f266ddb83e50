"""Two kernels that need the CPU engine's repairs, run in the interpreter; prints what they computed as
JSON.

A file of its own because Triton reads a kernel's source, and a process of its own because TRITON_INTERPRET
must be set before Triton is imported.
"""

import json

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton_cpu_interpreter.repairs import register

register()
register()  # vLLM may load a plugin more than once in a process


@triton.jit
def log1p_kernel(x, out, COUNT: tl.constexpr):
    """out = log(1 + x)."""
    offsets = tl.arange(0, COUNT)
    tl.store(out + offsets, libdevice.log1p(tl.load(x + offsets)))


@triton.jit
def mixed_mask_kernel(x, request, out, COUNT: tl.constexpr):
    """out = x where the request, a loaded scalar, is not negative; the last element is left alone."""
    offsets = tl.arange(0, COUNT)
    valid = tl.load(request) >= 0
    mask = (offsets < COUNT - 1) & valid
    tl.store(out + offsets, tl.load(x + offsets, mask=mask, other=-1.0), mask=mask)


def main() -> None:
    """Run both."""
    x = torch.tensor([0.0, 1e-7, -0.5, 3.0])
    log1p, masked = torch.zeros(4), torch.zeros(4)
    log1p_kernel[(1,)](x, log1p, COUNT=4)
    mixed_mask_kernel[(1,)](x, torch.tensor([2]), masked, COUNT=4)
    print(json.dumps({"log1p": log1p.tolist(), "masked": masked.tolist()}))


if __name__ == "__main__":
    main()
