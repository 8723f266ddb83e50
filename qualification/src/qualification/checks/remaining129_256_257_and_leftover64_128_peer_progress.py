"""Does a peer make progress while a prompt is left with a remainder that does not fit what a step has left?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="remaining129_256_257_and_leftover64_128_peer_progress",
    asks="Do peers progress while remainders of a prompt meet small leftovers of a step?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase("remaining_129_leftover_64", "Is it so with 129 tokens left and room for 64?"),
        Subcase("remaining_129_leftover_128", "Is it so with 129 tokens left and room for 128?"),
        Subcase("remaining_256_leftover_64", "Is it so with 256 tokens left and room for 64?"),
        Subcase("remaining_256_leftover_128", "Is it so with 256 tokens left and room for 128?"),
        Subcase("remaining_257_leftover_64", "Is it so with 257 tokens left and room for 64?"),
        Subcase("remaining_257_leftover_128", "Is it so with 257 tokens left and room for 128?"),
    ),
    missing=(
        "It lacks a barrier that pins what the scheduler offers in each turn, "
        "and records of a turn's budget, readiness and leftovers."
    ),
)
