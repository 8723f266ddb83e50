"""The gather on a GPU brings exactly the bytes and facts that numpy takes from the same step.

Taps are random bits, so every byte that is off shows; buffers are poisoned between steps, so every byte that was
not written shows.
"""

import contextlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from spark_overlay.gather import Gathered, StepInputs, TapGather

pytestmark = pytest.mark.gpu

TAPS, HIDDEN, MAX_REQUESTS, MAX_TOKENS, DRAFTS, WINDOW = 3, 96, 6, 160, 5, 12
DTYPES = {torch.float32: np.uint32, torch.bfloat16: np.uint16}
POISON = 0xA5
SPIN_CYCLES = 200_000_000
"""A tenth of a second on a GPU of 2 GHz: far longer than a gather takes to be enqueued."""


@dataclass(frozen=True)
class Step:
    """One step on the host.  bits: [taps, tokens, hidden], the taps' elements as unsigned integers."""

    bits: np.ndarray
    positions: np.ndarray
    sampled: np.ndarray
    rejected: np.ndarray
    last_sampled: np.ndarray
    next_prefill: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    draft_counts: np.ndarray

    def on(self, device: torch.device, dtype: torch.dtype) -> StepInputs:
        """The same as a model runner holds it."""

        def there(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array.copy()).to(device)

        signed = np.int32 if dtype == torch.float32 else np.int16
        return StepInputs(
            taps=[there(tap.view(signed)).view(dtype) for tap in self.bits],
            positions=there(self.positions),
            num_sampled=there(self.sampled),
            num_rejected=there(self.rejected),
            last_sampled=there(self.last_sampled),
            next_prefill=there(self.next_prefill),
            slots=there(self.slots),
            starts=self.starts,
            draft_counts=self.draft_counts,
        )

    def check(self, gathered: Gathered, row_bytes: int, window: int) -> None:
        """Everything gathered, recomputed request by request."""
        for index, slot in enumerate(self.slots):
            start, end = int(self.starts[index]), int(self.starts[index + 1])
            if window:
                start = max(start, end - window - int(self.draft_counts[index]))
            valid = end - start - int(self.rejected[index])
            assert gathered.n_rows[index] == valid
            assert gathered.first_positions[index] == self.positions[start]
            assert gathered.num_sampled[index] == self.sampled[index]
            prompt = self.sampled[index] == 0
            anchor = self.next_prefill[0, slot] if prompt else self.last_sampled[slot, 0]
            assert gathered.anchors[index] == anchor
            rows = np.concatenate(list(self.bits[:, start : start + valid]), axis=-1)
            at = int(gathered.row_offsets[index]) * row_bytes
            assert bytes(gathered.rows[at : at + valid * row_bytes]) == rows.tobytes()


def random_step(random: np.random.Generator, dtype: torch.dtype) -> Step:
    """Some requests that decode with rejected drafts, some that read a prompt; the runner's buffers are longer than
    the step.
    """
    count = int(random.integers(1, MAX_REQUESTS + 1))
    decodes = random.random(count) < 0.6
    drafts = np.where(decodes, random.integers(0, DRAFTS + 1, count), 0)
    lengths = np.where(decodes, 1 + drafts, random.integers(1, MAX_TOKENS // MAX_REQUESTS + 1, count))
    rejected = random.integers(0, drafts + 1)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = int(starts[-1]) + 3
    firsts = random.integers(0, 100_000, count)
    positions = np.concatenate(
        [first + np.arange(length) for first, length in zip(firsts, lengths, strict=True)]
    )
    return Step(
        bits=random.integers(
            0, np.iinfo(DTYPES[dtype]).max, (TAPS, tokens, HIDDEN), dtype=DTYPES[dtype], endpoint=True
        ),
        positions=positions.astype(np.int64),
        sampled=np.where(decodes, 1 + drafts - rejected, 0).astype(np.int32),
        rejected=rejected.astype(np.int32),
        last_sampled=random.integers(0, 150_000, (MAX_REQUESTS, 1)),
        next_prefill=random.integers(0, 150_000, (2, MAX_REQUESTS)).astype(np.int32),
        slots=random.permutation(MAX_REQUESTS)[:count],
        starts=starts,
        draft_counts=drafts.astype(np.int32),
    )


def make_gather(device: torch.device, dtype: torch.dtype, window: int) -> TapGather:
    return TapGather(
        max_requests=MAX_REQUESTS,
        max_tokens=MAX_TOKENS,
        max_drafts=DRAFTS,
        tap_count=TAPS,
        hidden_size=HIDDEN,
        dtype=dtype,
        device=device,
        window=window,
    )


def poison(gather: TapGather) -> None:
    """Overwrite what earlier steps left in both buffers, and wait for it."""
    gather._stage.fill_(POISON)
    gather._host.fill_(POISON)
    if gather._stage.is_cuda:
        torch.cuda.synchronize(gather._stage.device)


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_steps_that_reuse_the_buffers_bring_the_bytes_that_numpy_takes(
    device: torch.device, dtype: torch.dtype, window: int
) -> None:
    gather, random = make_gather(device, dtype, window), np.random.default_rng(11)
    trimmed = cut = 0
    for _ in range(40):
        step = random_step(random, dtype)
        poison(gather)
        gathered = gather.gather(step.on(device, dtype))
        step.check(gathered, gather.row_bytes, window)
        trimmed += int(step.rejected.sum())
        cut += int(step.starts[-1]) - len(gathered.rows) // gather.row_bytes
    assert trimmed > 20  # rows of rejected drafts were there to be left out
    assert bool(cut) == bool(window)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_a_step_is_read_after_the_work_before_it_on_its_stream(
    device: torch.device, dtype: torch.dtype
) -> None:
    """The taps are written by a copy that waits behind a long kernel: a gather that did not follow the stream, or did
    not wait for its own copy, would read what was there before.
    """
    gather, random = make_gather(device, dtype, 0), np.random.default_rng(12)
    on_gpu = device.type == "cuda"
    for turn in range(4):
        step = random_step(random, dtype)
        arrived = step.on(device, dtype)
        stale = StepInputs(**{**vars(arrived), "taps": [torch.zeros_like(tap) for tap in arrived.taps]})
        poison(gather)
        stream = torch.cuda.Stream(device) if on_gpu and turn % 2 else None
        with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            if on_gpu:
                spun = torch.cuda.Event()
                torch.cuda._sleep(SPIN_CYCLES)
                spun.record()
            for tap, source in zip(stale.taps, arrived.taps, strict=True):
                tap.copy_(source, non_blocking=True)
            if on_gpu:
                assert not spun.query(), "the kernel ended before the gather began: it proves nothing"
            gathered = gather.gather(stale)
        step.check(gathered, gather.row_bytes, 0)


def test_a_gather_waits_for_nothing_but_its_own_copy(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it comes to its one wait, the kernel before it still runs: nothing on the way waited for the stream, which
    would have left the rest of the gather to be enqueued after the step's end.
    """
    if device.type != "cuda":
        pytest.skip("only a GPU has anything to wait for")
    gather, random = make_gather(device, torch.bfloat16, WINDOW), np.random.default_rng(13)
    step = random_step(random, torch.bfloat16)
    arrived = step.on(device, torch.bfloat16)
    gather.gather(arrived)  # kernels are loaded at their first use, which may wait
    spun, ended_at_wait = torch.cuda.Event(), []
    current_stream = torch.accelerator.current_stream

    def watched(of: torch.device) -> torch.Stream:
        ended_at_wait.append(spun.query())
        return current_stream(of)

    torch.cuda._sleep(SPIN_CYCLES)
    spun.record()
    monkeypatch.setattr(torch.accelerator, "current_stream", watched)
    gathered = gather.gather(arrived)
    assert ended_at_wait == [False]
    step.check(gathered, gather.row_bytes, WINDOW)


def test_the_host_buffer_is_pinned_where_the_device_is_a_gpu(device: torch.device) -> None:
    """A copy into pageable memory would stop the engine's thread for longer and go through a second buffer."""
    gather = make_gather(device, torch.bfloat16, 0)
    assert gather._host.is_pinned() == (device.type == "cuda")
