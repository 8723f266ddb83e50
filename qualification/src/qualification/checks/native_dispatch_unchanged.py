"""Do the very kernels run that run without the overlay, shape by shape?"""

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks.model import Check, Subcase

CHECK = Check(
    name="native_dispatch_unchanged",
    asks="Are kernels, graphs and backends those that run without remote drafting?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase("same_kernels", "Are kernels the same for equal shapes?", "cuda_graphs"),
        Subcase("same_graphs", "Are steps replayed from graphs as before?", "cuda_graphs"),
        Subcase("no_new_fallback", "Is there no fallback to an eager step that was none?", "cuda_graphs"),
    ),
    missing=(
        "It lacks a record of what a step dispatched (path, backend, kernel), "
        "which needs a device trace with an overhead that was measured."
    ),
)
