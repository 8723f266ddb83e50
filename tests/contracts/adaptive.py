"""What the seam relies on in stock's adaptive verification, where a version has it: a check for `checks.CHECKS`."""

import ast
from collections.abc import Iterator

from release import CLASSES, RUNNER, Release

STEP = {
    "get_num_tokens": (
        "draft_cost_ms, verify_cost_ms = self.cost_tables",
        "costs = draft_cost_ms[len(req_ids)] + verify_cost_ms[",
        "draft_budget = int(np.argmax(num_tokens_to_estimated_accepted_tokens / costs))",
    ),
    "set_cost_curves": ("self.cost_tables = build_cost_tables_from_curves(draft_curve, verify_curve",),
    "record_confidences": (
        "self._confidence_probs[input_batch.idx_mapping] = confidence_probs[:num_reqs]",
        "write_slot.gpu.copy_(self._confidence_probs)",
    ),
    "reallocate_drafts": ("out=self.query_start_loc[1:num_reqs + 1]",),
}
"""By method of stock's manager, what it must say: which tables are used and what they mean; that confidences are taken
in the batch's order; that a request's true tokens stand in `query_start_loc`.
"""
RUNNER_SAYS = (
    "self.adaptive_verification.record_confidences(self.speculator.draft_token_confidence_probs, input_batch)",
    "self.adaptive_verification.set_initial_cost_curves(timings)",
    "enable_adaptive_verification=getattr(self.speculator, 'enable_adaptive_verification', False)",
    "num_scheduled_tokens_upper_bound = num_scheduled_tokens_np",
    "num_scheduled_tokens=num_scheduled_tokens_upper_bound",
)
DRAFTER = "vllm.model_executor.models.qwen3_dspark"


def adaptive_verification(release: Release) -> Iterator[str]:
    """Stock's manager prices, ranks and trims as the seam expects, or this version has none and the seam says so."""
    module = release.sources.find(CLASSES["AdaptiveVerificationManager"])
    if (module is not None) != release.seam.adaptive:
        yield f"the seam says adaptive={release.seam.adaptive}, and {CLASSES['AdaptiveVerificationManager']} differs"
    if module is None:
        return
    manager = release.theirs("AdaptiveVerificationManager")
    for method, wanted in STEP.items():
        said = ast.unparse(manager.method(method))
        yield from (f"{method} no longer says {text!r}" for text in wanted if text not in said)
    runner = ast.unparse(release.sources.module(RUNNER).tree)
    yield from (f"the runner no longer says {text!r}" for text in RUNNER_SAYS if text not in runner)
    if "getattr(config, 'enable_confidence_head', False)" not in ast.unparse(
        release.sources.module(DRAFTER).tree
    ):
        yield "the drafter's config says by another name whether it has a confidence head"
