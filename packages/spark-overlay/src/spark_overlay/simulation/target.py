"""The simulated target model's step: rows for what was scheduled, verification of drafts, the next tokens.

Owns which rows are valid, as a real step leaves them: zeros where the engine trims a long prefill (a windowed
drafter needs only the last rows), junk where drafts were rejected.  Of a windowed drafter's long prefill only the
last rows are given either way.
"""

from collections.abc import Sequence

from spark_overlay.simulation.model import Model
from spark_overlay.simulation.ranks import Entry, Step
from spark_overlay.simulation.scheduler import Scheduled

TRIMMED_SHOWN = 2
"""Trimmed rows of a request that stand before its valid ones in the step's buffer, at most."""


class SimulatedTarget:
    """Runs steps one after the other; each is a computation of its own, numbered from 1.

    trims: rows that are not given are zeros, instead of true ones that only the local drafter sees.
    """

    def __init__(self, model: Model, *, trims: bool) -> None:
        self._model, self._trims = model, trims
        self._zeros, self._junk = bytes(model.row_bytes), b"\xee" * model.row_bytes
        self.steps = 0

    def run(self, scheduled: Sequence[Scheduled], wanted: int) -> Step:
        """Compute the step; its requests' tokens grow.  wanted: drafts that will be verified next, at most."""
        self.steps += 1
        buffer: list[bytes] = []
        entries = [self._run(entry, wanted, buffer) for entry in scheduled]
        return Step(entries, b"".join(buffer))

    def _run(self, scheduled: Scheduled, wanted: int, buffer: list[bytes]) -> Entry:
        request = scheduled.request
        start, before = request.computed, len(request.tokens)
        accepted = n_sampled = 0
        if start + scheduled.n_tokens >= before:
            accepted = self._verify(scheduled)
            n_sampled = accepted + 1
        rejected = scheduled.n_drafts - accepted
        end = start + scheduled.n_tokens - rejected
        first = start
        if self._model.window:
            kept = self._model.window + scheduled.n_drafts
            first = max(start, start + scheduled.n_tokens - kept)
        buffer += [self._zeros] * min(first - start, TRIMMED_SHOWN)
        row_offset = len(buffer)
        self._keep(scheduled, first, end)
        buffer += request.rows[first:end]
        buffer += [self._junk] * rejected
        request.computed = end
        request.rounds += 1
        return Entry(
            request=request,
            slot=request.slot,
            start=start,
            first_position=first,
            n_rows=end - first,
            row_offset=row_offset,
            anchor=request.tokens[end] if n_sampled else 0,
            n_drafts=scheduled.n_drafts,
            n_sampled=n_sampled,
            wanted=wanted,
        )

    def _verify(self, scheduled: Scheduled) -> int:
        """Say what the target says; how many drafts that took."""
        request, model = scheduled.request, self._model
        accepted = 0
        for draft in request.drafts[: scheduled.n_drafts]:
            request.say(model.choose(request.path[-1]), model)
            if request.tokens[-1] != draft:
                return accepted
            accepted += 1
        request.say(model.choose(request.path[-1]), model)
        return accepted

    def _keep(self, scheduled: Scheduled, first: int, end: int) -> None:
        """The true rows of this computation, where it trims: from first on."""
        request, model = scheduled.request, self._model
        start = request.computed
        first = first if self._trims else start
        request.rows[start:] = [self._zeros] * (first - start)
        request.digests[start:] = [b""] * (first - start)
        for position in range(first, end):
            row = model.row(request.path[position], self.steps)
            request.rows.append(row)
            request.digests.append(model.digest(position, row))
