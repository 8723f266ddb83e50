"""Does the target write KV of every row that it was given, also of those whose further rows it trims?"""

from qualification.checks._arms import QUICK_RETRY, REMOTE
from qualification.checks.model import Arm, Check, Subcase

CHECK = Check(
    name="source_kv_writes_retained",
    asks="Is KV written for every original row before the target trims rows?",
    arm_variable="whether the target trims rows of a prompt (ON) or not (OFF)",
    off=REMOTE,
    on=Arm("remote_trimming", "remote", settings={**QUICK_RETRY, "TARGET_TRIMS_ROWS": "1"}),
    subcases=(
        Subcase(
            "all_rows_written",
            "Does every row that is no padding have its write, without a hole?",
            "row_reduction",
        ),
        Subcase(
            "mixed_requests", "Also where requests with and without trimming share a step?", "row_reduction"
        ),
        Subcase("excluded_requests", "Also for requests that are excluded from trimming?", "row_reduction"),
        Subcase(
            "same_values",
            "Are the values the same, within a stated bound, as without trimming?",
            "row_reduction",
        ),
    ),
    missing=(
        "It lacks a target that trims rows, and a hook where such a target writes KV: "
        "the hooks see rows at the drafter, after that."
    ),
)
