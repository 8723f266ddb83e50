"""Are rejected rows, and requests that are excluded from trimming, right in steps that mix them with others?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="mixed_rejected_rows_mm_logprobs_exclusions",
    asks="Are rejected rows and excluded requests right in mixed steps?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase(
            "rejected_beside_prefill", "Are rejected rows left out where a prompt is read in the same step?"
        ),
        Subcase(
            "prompt_logprobs",
            "Does a request that asks for log-probabilities of its prompt keep its rows?",
            "row_reduction",
        ),
        Subcase("multimodal", "Does a request with pictures keep its rows?", "multimodal"),
    ),
    missing=(
        "It lacks a model with pictures, requests with log-probabilities in the arms, "
        "and a record of which requests the target excluded from trimming."
    ),
)
