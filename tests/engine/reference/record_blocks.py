"""Run a real vLLM engine with its own DSpark speculator and write down what the speculator saw and said.

python record_blocks.py DRAFTER TARGET OUTPUT.npz

Nothing of this project is imported here: this is the other side of the comparison.  Run it in a process of
its own with `ENGINE_ENVIRONMENT`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TRITON_INTERPRET": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
}
DRAFTS = 5
PROMPT_LENGTHS = (1, 7, 23, 24, 25, 49, 90, 150)
"""Around a window of 24, and beyond the tokens of a step: the longer ones are prefilled in chunks."""
NEW_TOKENS = 28
STEP_TOKENS_MAX = 64


class Recorder:
    """Wraps `DSparkSpeculator`: one record per call of `propose`, arrays only."""

    def __init__(self) -> None:
        self.records: list[dict[str, np.ndarray]] = []

    def install(self) -> None:
        """Wrap the speculator's methods, before the engine is built."""
        from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

        propose, sample = DSparkSpeculator.propose, DSparkSpeculator._sample_sequential
        recorder = self
        heads: dict[str, np.ndarray] = {}

        def recorded_sample(self: Any, num_reqs: int, head_hidden: Any) -> None:
            sample(self, num_reqs, head_hidden)
            heads.clear()
            heads.update(_heads(self, num_reqs, head_hidden))

        def recorded_propose(self: Any, input_batch: Any, *arguments: Any, **named: Any) -> Any:
            drafts = propose(self, input_batch, *arguments, **named)
            if not named.get("dummy_run", False):
                record = _inputs(input_batch, arguments)
                # vLLM 0.33 asks for no drafts where nobody could use them: only the rows count then.
                if named.get("num_speculative_tokens") != 0:
                    record |= heads | {"drafts": drafts.numpy().copy()}
                recorder.records.append(record)
            return drafts

        DSparkSpeculator._sample_sequential = recorded_sample
        DSparkSpeculator.propose = recorded_propose


def _inputs(input_batch: Any, arguments: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """What the contract carries: taps, spans, positions, anchors.  arguments: propose's, after input_batch."""
    _, _, _, taps, num_sampled, num_rejected, last_sampled, next_prefill_tokens = arguments[:8]
    count, tokens = input_batch.num_reqs, input_batch.num_tokens
    slots = input_batch.idx_mapping[:count]
    sampled = num_sampled[:count]
    anchors = (last_sampled.flatten()[slots], next_prefill_tokens.flatten()[slots])
    return {
        "taps": np.concatenate([tap[:tokens].float().numpy() for tap in taps], -1),
        "starts": input_batch.query_start_loc[: count + 1].numpy().copy(),
        "positions": input_batch.positions[:tokens].numpy().copy(),
        "slots": slots.numpy().copy(),
        "rejected": num_rejected[:count].numpy().copy(),
        "anchors": np.where(sampled.numpy() > 0, anchors[0].numpy(), anchors[1].numpy()),
    }


def _heads(speculator: Any, num_reqs: int, head_hidden: Any) -> dict[str, np.ndarray]:
    """The model's own confidence head and logits on the model's own states, for the drafts that it just
    made.
    """
    import torch

    steps, model = speculator.num_speculative_steps, speculator.model
    hidden = head_hidden[speculator.sample_indices[: num_reqs * steps]]
    anchors = speculator.input_buffers.input_ids[speculator._anchor_idx[:num_reqs]]
    drafts = speculator.draft_tokens[:num_reqs]
    previous = torch.cat((anchors[:, None].to(drafts.dtype), drafts[:, :-1]), 1).flatten()
    embedding = model.markov_embed(previous)
    logits = model.compute_draft_logits(hidden) + model.markov_bias(embedding)
    top = logits.float().topk(2).values
    return {
        "confidences": model.compute_confidence(hidden, embedding).view(num_reqs, steps).numpy(),
        "margins": (top[:, 0] - top[:, 1]).view(num_reqs, steps).numpy(),
    }


def main(drafter: str, target: str, output: Path) -> None:
    """Generate from prompts of all lengths at once, half greedy and half sampled, and save the records."""
    recorder = Recorder()
    recorder.install()
    from vllm import LLM, SamplingParams
    from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model

    engine = LLM(
        model=target,
        speculative_config={"method": "dspark", "model": drafter, "num_speculative_tokens": DRAFTS},
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        distributed_executor_backend="uni",
        kv_cache_memory_bytes=64 << 20,
        block_size=32,
        max_model_len=256,
        max_num_seqs=len(PROMPT_LENGTHS),
        max_num_batched_tokens=STEP_TOKENS_MAX,
        # Cached positions have no taps: they would have to be left out of the comparison.
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    random = np.random.default_rng(1)
    prompts = [{"prompt_token_ids": random.integers(3, 500, length).tolist()} for length in PROMPT_LENGTHS]
    sampling = [
        SamplingParams(
            temperature=0.0 if index % 2 else 0.7,
            seed=index,
            max_tokens=NEW_TOKENS,
            ignore_eos=True,
            detokenize=False,
        )
        for index in range(len(prompts))
    ]
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    arrays = {
        f"{step:05d}.{name}": array
        for step, one in enumerate(recorder.records)
        for name, array in one.items()
    }
    repair = DFlashQwen3Model._normalize_context_k.__module__
    assert all(len(one.outputs[0].token_ids) == NEW_TOKENS for one in outputs)
    np.savez(output, repair=np.array(repair), **arrays)


def record_alone(drafter: str, target: str, output: Path) -> None:
    """`main` in a process that owns its descriptors, and whose stdout nobody reads."""
    os.dup2(2, 1)
    main(drafter, target, output)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
