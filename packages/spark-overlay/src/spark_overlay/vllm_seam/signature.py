"""The proof that this vLLM calls speculators as the version's module states.

Runners pass some of `propose`'s arguments by position and some by name, so all names and their order are compared,
before an engine runs.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from spark_overlay.vllm_seam.errors import SeamError


def check_propose(version: str, stated: Sequence[str], *owners: Any) -> None:
    """Raises SeamError where `propose` of one of vLLM's classes takes other parameters.

    version: the one that the seam's module was written against.  stated: names after self.
    """
    for owner in owners:
        found = tuple(inspect.signature(owner.propose).parameters)[1:]
        if found != tuple(stated):
            raise SeamError(
                f"{owner.__name__}.propose of this vLLM takes {', '.join(found)}: not vLLM {version}'s signature"
            )
