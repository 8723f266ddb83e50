"""The sans-IO round: descriptors and row bytes go in; frames, drafts and counters come out.

Nothing here knows a clock, socket, thread, torch or vLLM; numpy is the one dependency beside the contract.
"""

from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult

__all__ = ["Outcome", "RoundRequest", "RoundResult"]
