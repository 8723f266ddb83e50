"""The arm process of vLLM: `python -m qualification.arms.vllm_engine CONFIG`, run by vLLM's own Python.

The only file of this package that names vLLM.  The hooks live in the engine (`spark_overlay.observe`); here requests
are sent, counted and watched from outside.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ofl.contract import observation_v1 as seen
from ofl.contract.observation_v1 import Blind

from qualification.arms.config import ArmConfig, first_facts, hook_places, read_config
from qualification.arms.fault_plan import write_plan
from qualification.arms.harness import HARNESS_FILE, ObservationFile
from qualification.arms.prompts import Prompts
from qualification.arms.protocol import FaultOrder
from qualification.arms.serve import ArmFailedError, ArmServer, Progress, own_stdout

SPECULATIVE = {"method": "dspark", "draft_sample_method": "greedy"}


class VllmBackend:
    """Implements `serve.Backend`."""

    def __init__(self, config: ArmConfig) -> None:
        self._config = config
        self._places = hook_places()
        self.blind = Blind(self._places.key)
        self._engine: Any = None

    @property
    def busy(self) -> bool:
        """See `Backend`."""
        return bool(self._engine.has_unfinished_requests())

    def start(self) -> seen.Facts:
        """See `Backend`."""
        # Its requests have the names that we give: no two are alike, and observations are found by them.
        os.environ["VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"] = "1"
        from vllm import EngineArgs, LLMEngine

        try:
            self._engine = LLMEngine.from_engine_args(EngineArgs(**self._arguments()))
        except Exception as error:
            # Not narrower: whatever vLLM does not like, the runner is told in a sentence.
            raise ArmFailedError(" ".join(f"{type(error).__name__}: {error}".split())[:500]) from error
        try:
            facts = first_facts(self._places.folder)
        except (OSError, seen.ObservationError) as error:
            raise ArmFailedError(f"the hooks left no facts of rank 0: {error}") from error
        self.prompts = Prompts(self._engine.model_config.get_vocab_size(), self._text())
        return facts

    def harness(self, facts: seen.Facts) -> ObservationFile:
        """See `Backend`."""
        return ObservationFile(self._places.folder / HARNESS_FILE, facts)

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """See `Backend`."""
        if self._places.fault_plan is not None:
            write_plan(self._places.fault_plan, case, faults)

    def add(self, request: str, prompt: list[int], max_tokens: int) -> None:
        """See `Backend`."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(request, {"prompt_token_ids": prompt}, sampling)

    def abort(self, request: str) -> None:
        """See `Backend`."""
        self._engine.abort_request([request])

    def step(self) -> list[Progress]:
        """See `Backend`."""
        return [
            Progress(
                output.request_id,
                list(output.outputs[0].token_ids),
                (output.outputs[0].finish_reason or "error") if output.finished else "",
            )
            for output in self._engine.step()
        ]

    def close(self) -> None:
        """See `Backend`."""
        shutdown = getattr(self._engine.engine_core, "shutdown", None)
        if shutdown is not None:
            shutdown()

    # --- inside ---

    def _arguments(self) -> dict[str, Any]:
        config = self._config
        arguments = {"model": config.target, "tensor_parallel_size": config.ranks, **config.arguments}
        if config.speculation != "none":
            given = arguments.get("speculative_config", {})
            own = {"model": config.drafter, "num_speculative_tokens": config.drafts}
            arguments["speculative_config"] = {**SPECULATIVE, **own, **given}
        return arguments

    def _text(self) -> list[int]:
        """The prompts' text as tokens of the target; none without a text."""
        if not self._config.prompt_text:
            return []
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(Path(self._config.target, "tokenizer.json")))
        text = Path(self._config.prompt_text).read_text(encoding="utf-8")
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def main() -> int:
    """Serve one start; the exit status."""
    config = read_config(sys.argv[1])
    with own_stdout() as events:
        return ArmServer(VllmBackend(config), sys.stdin.buffer, events).serve()


if __name__ == "__main__":
    sys.exit(main())
