"""Measures the shipped pair on a real engine: acceptance, and text with and without speculation.

Owns the job for the two engines and the counting of their rounds.  Must count rounds by the same rules as the
plain-torch measurement, so that the two figures can be compared.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from demo.training.corpus import load_tokens, spans
from demo.training.counting import Round, summary
from demo.training.settings import Settings

_HELD_OUT_SEED = 7  # the same prompts as in training's own measurement
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
}


def rounds_from_steps(steps: list[list[int]], prompt_tokens: int, new_tokens: int) -> list[Round]:
    """Rounds from how many tokens each engine step added to each text.

    The first step is the prefill, which drafts nothing.  The last is left out where it filled the text: the limit
    may have cut it short.
    """
    rounds = []
    for row, added in enumerate(steps):
        done = added[0]
        for count in added[1:]:
            if done + count < new_tokens:
                rounds.append(Round(row, prompt_tokens + done - 1, count - 1))
            done += count
    return rounds


def _run_engine(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run(
            [sys.executable, "-m", "demo.training.engine_run"],
            input=json.dumps(job | {"result": str(result)}),
            text=True,
            check=True,
            env=_ENVIRONMENT | os.environ,
            stdout=sys.stderr,
        )
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def differing_rounds(
    pair: Path, settings: Settings, texts: np.ndarray[Any, Any], rounds: list[Round]
) -> dict[str, int]:
    """How many of the engine's rounds accept another number of drafts than plain torch does on the same texts.

    texts int64 [rows, positions].  Rounds whose block reaches beyond the text are not compared.
    """
    import torch

    from demo.training.acceptance import accepted_everywhere
    from demo.training.layers import rotations
    from demo.training.weights import load_pair

    target, drafter = load_pair(pair, settings)
    first = settings.eval_prompt_tokens
    rotation = rotations(texts.shape[1], settings.target.head_dim, "cpu")
    accepted, _ = accepted_everywhere(drafter, target, rotation, torch.from_numpy(texts), first)
    inside = [item for item in rounds if item.anchor - first < accepted.shape[1]]
    differing = sum(int(accepted[item.row, item.anchor - first]) != item.accepted for item in inside)
    return {"compared": len(inside), "differing": differing}


def measure_pair(pair: Path, data: Path, settings: Settings, prompts: int, new_tokens: int) -> dict[str, Any]:
    """Greedy texts after held-out prompts on two engines, drafting and not; returns the record's `engine` entry."""
    first = settings.eval_prompt_tokens
    ids = spans(load_tokens(data).held_out, prompts, first, _HELD_OUT_SEED)
    job = {
        "pair": str(pair.resolve()),
        "context": settings.context,
        "prompts": ids.tolist(),
        "new_tokens": new_tokens,
    }
    drafting = _run_engine(job | {"drafting": True})
    plain = _run_engine(job | {"drafting": False})
    texts = np.concatenate([ids, np.array(drafting["texts"], dtype=np.int64)], axis=1)
    rounds = rounds_from_steps(drafting["steps"], first, new_tokens)
    same = sum(one == other for one, other in zip(drafting["texts"], plain["texts"], strict=True))
    return {
        "vllm": drafting["engine"],
        "dtype": "float32",
        "prompts": prompts,
        "prompt_tokens": first,
        "new_tokens": new_tokens,
        "texts_equal": same,
        "acceptance": summary(rounds, texts, first),
        "against_torch": differing_rounds(pair, settings, texts, rounds),
        "counters": drafting["counters"],
    }
