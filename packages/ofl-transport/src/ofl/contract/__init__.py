"""The service contracts that two packages share, each defined once.

Pure: bytes in, messages or a `ContractError` out.  No socket, clock, thread, numpy or torch; the standard
library alone.  Both ends, the tables in docs/contract and the golden vectors come from these definitions.
"""

from ofl.contract.records import ContractError

__all__ = ["ContractError"]
