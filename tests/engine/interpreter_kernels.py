"""Two kernels that need the CPU engine's repairs, run in the interpreter; prints what they computed as
JSON, and how often a second launch patched a part of the language.

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
    print(
        json.dumps({"log1p": log1p.tolist(), "masked": masked.tolist(), "patched": patched_again(x, log1p)})
    )


def patched_again(x: torch.Tensor, out: torch.Tensor) -> int:
    """How often a launch of a kernel that has run before patches a part of the language."""
    from triton.runtime import interpreter  # not there before TRITON_INTERPRET is judged

    patch, parts = interpreter._patch_builtin, []
    interpreter._patch_builtin = lambda *arguments: parts.append(patch(*arguments))
    log1p_kernel[(1,)](x, out, COUNT=4)
    return len(parts)


if __name__ == "__main__":
    main()
