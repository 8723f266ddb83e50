"""Does nothing of a request outlive it in its slot, after a cancel, a preemption or a step back?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="cancel_slot_reuse_preempt_backtrack",
    asks="Does nothing of a request reach the next owner of its slot, or itself after a preemption?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase(
            "cancel_then_reuse",
            "Is the next owner of a cancelled request's slot a new generation without its rows?",
        ),
        Subcase(
            "preempt_then_resume",
            "Is a preempted request, when it resumes, a new life with a complete context?",
        ),
        Subcase(
            "backtrack_below_ring",
            "Is a step back below what the ring holds answered by a partial window that is called so?",
        ),
    ),
    missing=(
        "It lacks a switch that makes the scheduler preempt a named request at a known moment, "
        "and one that moves a request back below what the ring holds."
    ),
)
