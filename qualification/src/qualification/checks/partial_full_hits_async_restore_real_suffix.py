"""After hits in the prefix cache, is what is new computed and sent as real rows, while a peer goes on?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="partial_full_hits_async_restore_real_suffix",
    asks="Are rows after a prefix-cache hit real, also while KV is restored asynchronously?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase("partial_hit", "Is the rest of a prompt that is cached in part computed and sent?"),
        Subcase("full_hit", "And the last token of one that is cached whole?"),
        Subcase(
            "restore_with_ready_peer", "Does a peer go on while a restore is held?", "asynchronous_hand_off"
        ),
        Subcase("restored_suffix", "Are rows behind restored KV real and complete?", "asynchronous_hand_off"),
    ),
    missing=(
        "It lacks records of real hits and of a step's replayed range, "
        "and a KV connector whose restore the harness can hold and release."
    ),
)
