"""A cap on the drafts that the engine verifies, where its scheduler asks the workers how many there are.

Owns one hook on rank 0's model runner.  A scheduler that does not run ahead of its workers asks rank 0's for the drafts
of each request, and verifies as many as it is told, on every rank.  One that runs ahead (asynchronous scheduling)
counts on all positions before a worker could say anything; there is no hook then, and the figures say why.  Imports no
vLLM; must never lengthen what the engine would verify.
"""

from typing import Any

from spark_overlay.interface import Drafter

AHEAD = "asynchronous scheduling plans all draft positions in advance: fewer are asked for, all are verified"
NO_WORD = "this vLLM's model runner tells no drafts to the scheduler: fewer are asked for, all are verified"


def cap_verification(model_runner: Any, drafter: Drafter) -> None:
    """Let operators' cap on draft positions bound what is verified, or note on the drafter why it cannot."""
    if model_runner.vllm_config.scheduler_config.async_scheduling:
        drafter.depth_note = AHEAD
        return
    original = getattr(model_runner, "take_draft_token_ids", None)
    if original is None:
        drafter.depth_note = NO_WORD
        return

    def take_draft_token_ids() -> Any:
        drafts, cap = original(), drafter.depth_max
        if drafts is not None and cap is not None:
            drafts.draft_token_ids = [ids[:cap] for ids in drafts.draft_token_ids]
        return drafts

    model_runner.take_draft_token_ids = take_draft_token_ids
    drafter.depth_note = ""
