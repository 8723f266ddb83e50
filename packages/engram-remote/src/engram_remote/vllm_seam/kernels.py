"""The seam's own kernels.  Stock's lookup kernel, which reads the rows, is stock's."""

# Triton reads the annotations of a kernel's parameters, so they cannot be Python's types.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

SPLIT_BLOCK = 256
"""Rows of one program of `split_ids`."""


@triton.jit(do_not_specialize=["vocab_start", "vocab_end", "num_rows", "stride_token", "stride_head"])
def split_ids(
    indices,
    wanted,
    staged,
    rows_word,
    vocab_start,
    vocab_end,
    num_rows,
    stride_token,
    stride_head,
    HEAD_START: tl.constexpr,
    LOCAL_HEADS: tl.constexpr,
    TOTAL_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """This rank's part of the hash ids, in the order in which stock's kernel visits rows: token, then local head.

    indices: [tokens, TOTAL_HEADS] integers.  wanted: i32 [num_rows] in pinned memory, the id, or -1 where this rank
    holds no such row (a padded head, an id out of its range).  staged: i32 [num_rows], where the row will lie in
    staging, its own number, or -1, at which stock's kernel gives zeros as it does for that id.  rows_word: i32 [1] in
    pinned memory, num_rows.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = row < num_rows
    head = HEAD_START + row % LOCAL_HEADS
    token = (row // LOCAL_HEADS).to(tl.int64)
    asked = valid & (head < TOTAL_HEADS)
    index = tl.load(indices + token * stride_token + head * stride_head, mask=asked, other=-1).to(tl.int64)
    owned = asked & (index >= vocab_start) & (index < vocab_end)
    tl.store(wanted + row, tl.where(owned, index, -1).to(tl.int32), mask=valid)
    tl.store(staged + row, tl.where(owned, row, -1).to(tl.int32), mask=valid)
    if tl.program_id(0) == 0:
        tl.store(rows_word, num_rows)


@triton.jit
def request_and_wait(request, done):
    """request = 1, then wait for done == 1, where the stream has no memory operations for it.

    Kernels of the same stream before this one have ended, so what they wrote is visible to whoever sees the request.
    One thread asks: a second store could ask again after the first was taken up.  Loads and stores of system scope, no
    atomic operations: those need PCIe atomics, which not every host has.
    """
    one = tl.full((1,), 1, tl.int32)
    request_address = (request + tl.arange(0, 1)).to(tl.int64)
    done_address = (done + tl.arange(0, 1)).to(tl.int64)
    _store_release(request_address, one)
    seen = _load_acquire(done_address)
    while tl.sum(seen, 0) != 1:
        seen = _load_acquire(done_address)


@triton.jit
def rearm(done):
    """done = 0.  A kernel of its own: every thread of the one before has seen the 1 by now."""
    tl.store(done, 0)


@triton.jit
def _load_acquire(address):
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.u32 $0, [$1];", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _store_release(address, value):
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred first;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            @first st.release.sys.global.u32 [$1], $2;
            mov.u32 $0, 0;
        }
        """,
        "=r,l,r",
        [address, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
