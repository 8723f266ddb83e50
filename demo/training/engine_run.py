"""Runs greedy continuations on a real vLLM engine, in a process of its own: `python -m demo.training.engine_run`.

Owns the engine's arguments for measuring.  Reads a job from standard input and writes its result to the file the
job names, both JSON, so that two engines never share a process.  Must observe rounds through the engine's public
outputs only.
"""

import json
import sys
from pathlib import Path
from typing import Any

from demo.training.settings import BLOCK_TOKENS

_SEQUENCES_MAX = 8
_BATCH_TOKENS_MAX = 512
_CACHE_BYTES = 64 << 20


def _make_engine(job: dict[str, Any]) -> Any:
    from vllm import LLM

    pair = Path(job["pair"])
    speculation = {
        "method": "dspark",
        "model": str(pair / "drafter"),
        "num_speculative_tokens": BLOCK_TOKENS,
        "draft_sample_method": "greedy",
    }
    return LLM(
        model=str(pair / "target"),
        dtype="float32",
        enforce_eager=True,
        max_model_len=job["context"],
        max_num_seqs=_SEQUENCES_MAX,
        max_num_batched_tokens=_BATCH_TOKENS_MAX,
        kv_cache_memory_bytes=_CACHE_BYTES,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
        disable_log_stats=False,
        speculative_config=speculation if job["drafting"] else None,
    )


def _generate(llm: Any, prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[list[int]]]:
    """Texts' new ids, and for each text how many tokens every step of the engine added to it."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    parameters = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), {"prompt_token_ids": prompt}, parameters)
    texts: list[list[int]] = [[] for _ in prompts]
    steps: list[list[int]] = [[] for _ in prompts]
    while engine.has_unfinished_requests():
        for output in engine.step():
            index = int(output.request_id)
            ids = list(output.outputs[0].token_ids)
            if len(ids) > len(texts[index]):
                steps[index].append(len(ids) - len(texts[index]))
                texts[index] = ids
    return texts, steps


def _counters(llm: Any) -> dict[str, Any]:
    """The engine's own speculative decoding counters."""
    found = {}
    for metric in llm.get_metrics():
        if "spec_decode" in metric.name:
            found[metric.name] = getattr(metric, "value", getattr(metric, "values", None))
    return found


def main() -> int:
    """Run the job on standard input: pair, drafting, context, prompts, new_tokens, result."""
    job = json.load(sys.stdin)
    llm = _make_engine(job)
    texts, steps = _generate(llm, job["prompts"], job["new_tokens"])
    import vllm

    result = {"texts": texts, "steps": steps, "counters": _counters(llm), "engine": vllm.__version__}
    Path(job["result"]).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
