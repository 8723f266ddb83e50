"""What the engine's seam and the rounds behind it know of each other.

Owns the facts that an engine states about itself and the interface it calls once per step.  No torch, vLLM or
socket.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from ofl.contract.dspark_v1 import RowDtype, RowForm
from ofl.contract.identity import UNSTATED
from ofl.contract.records import Buffer

from spark_overlay.round.messages import RoundRequest, RoundResult


@dataclass(frozen=True)
class EngineFacts:
    """What the engine knows of its drafter's shape without any weights.

    vocabulary: the target's.  row_elements: taps concatenated.  window: context rows that drafting
    attends to, 0 for all.  max_positions: the engine's longest sequence.  block_length: draft positions
    K. max_slots: request slots.  pipeline_depth: rounds under way at once, 1 for synchronous rounds.
    target_binding: 32 bytes of `ofl.contract.identity.target_binding`, zeros where it is not stated.
    draft_schedule: draft positions that the engine verifies at most, by number of running requests (index 0: none
    running); empty where it has no schedule and always verifies K.
    """

    vocabulary: int
    row_elements: int
    row_dtype: RowDtype
    tap_count: int
    window: int
    max_positions: int
    block_length: int
    max_slots: int
    row_form: RowForm = RowForm.RAW
    pipeline_depth: int = 1
    target_binding: bytes = UNSTATED
    draft_schedule: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one context row."""
        return self.row_elements * self.row_dtype.itemsize


@dataclass(frozen=True)
class LocalDrafts:
    """One step of the local drafter.  drafts: int64 [n, K] on the host.  propose_us: what it took; NaN if unknown."""

    drafts: NDArray[np.int64]
    propose_us: float


class RemoteUnavailableError(Exception):
    """The operator asked that the engine stop without a worker (ON_FAIL=raise), and there is none."""


class Drafter(Protocol):
    """A remote drafter as the seam uses it; one thread calls it.  `rounds.RemoteDrafter` is the real one.

    `RemoteDrafter(settings, facts)` builds it; nothing touches the network before `start`.

    memory: what remote drafting frees and holds on this host, in bytes or counts by name, once the seam has measured
    it; part of the figures.
    """

    memory: Mapping[str, int] | None

    depth_note: str
    """Why the engine verifies all draft positions whatever is asked for; "" where it verifies fewer.  From the seam."""

    @property
    def depth_max(self) -> int | None:
        """Draft positions of a request to ask for and to verify, at most, as operators ask; None without a cap."""

    def start(self, wait_ready_s: float = 0.0) -> bool:
        """Begin connecting.  Waits at most wait_ready_s for a session; returns whether there is one.

        Raises RemoteUnavailableError where ON_FAIL=raise and none came.
        """

    def round(self, requests: Sequence[RoundRequest], rows: Buffer, gather_us: float = 0.0) -> RoundResult:
        """One step: keep the rows, fetch drafts where n_out > 0.

        Never raises, and never waits past the round's deadline.
        rows: contiguous bytes, row i at i * row_bytes; may be reused on return.
        gather_us: what bringing them to the host took, for the figures.
        """

    def abort(self, n_requests: int, error: Exception) -> RoundResult:
        """This step's round could not be begun for a defect of the seam: counted as an internal error.

        Never raises.  Nothing that slots or session knew is trusted afterwards.
        """

    def record_acceptance(self, accepted: int, drafted: int, position: int) -> None:
        """One request's verification: accepted of drafted tokens.  position: of the anchor.

        Only for requests whose round was ok and whose remote drafts were the ones verified.
        """

    def record_local(self, local: LocalDrafts, requests: Sequence[RoundRequest], result: RoundResult) -> None:
        """Shadow: what the local drafter drafted from the same state, for the agreement.

        requests, result: of this step's `round`.
        """

    def record_local_fallback(self, requests: int) -> None:
        """Resilience: in this step local drafts stood in for so many requests."""

    def must_raise(self, result: RoundResult) -> bool:
        """Whether the operator asked for the engine to stop on this result (ON_FAIL=raise)."""

    def stats(self) -> dict[str, object]:
        """The figures of docs/operations/stats.md, as written to the stats file."""

    def close(self) -> None:
        """End the session and every thread of it, within a bound.  Safe to call twice."""
