"""Are drafts clamped to what still fits before the longest sequence, at each depth and in both modes of scheduling?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="near_cap_k4_k5_sync_async_clamp",
    asks="Are drafts clamped to what still fits below the longest sequence?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase("k5_synchronous", "Is it so with five drafts and synchronous scheduling?"),
        Subcase("k4_synchronous", "And with four?"),
        Subcase("k5_asynchronous", "And with five and asynchronous scheduling?", "asynchronous_hand_off"),
        Subcase("k4_asynchronous", "And with four?", "asynchronous_hand_off"),
    ),
    missing=(
        "It lacks arms for each depth of drafting and mode of scheduling, "
        "a record of each turn's allowance, and a barrier that fixes the batch near the cap."
    ),
)
