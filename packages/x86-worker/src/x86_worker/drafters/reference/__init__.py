"""The reference drafter: Qwen3-DSpark in plain torch, written to be read and to be right.

It is the oracle that faster drafters are compared with, and it serves.  Only this package of the worker's
imports torch.  docs/drafters/reference.md holds the mathematics in prose and what was compared.
"""

from x86_worker.drafters.reference.drafter import ReferenceDrafter, load_reference_drafter

__all__ = ["ReferenceDrafter", "load_reference_drafter"]
