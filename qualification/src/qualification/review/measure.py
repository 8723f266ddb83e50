"""Figures of one engine start, from its observations alone.  Pure.

A step's time is from one call of the drafter to the next; where no request is in both steps the engine was idle between
them, and that is no step.  A round's time is from the call to the moment at which drafts leave.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ofl.contract import observation_v1 as seen

NS_PER_MS = 1e6
QUANTILES = (0.5, 0.9, 0.99)
BUCKET_LEAST = 32


@dataclass
class Accepted:
    """Drafts of one bucket of prompt lengths."""

    drafted: int = 0
    accepted: int = 0

    @property
    def share(self) -> float:
        """0 .. 1; 0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True)
class Measured:
    """step_ms, round_ms: in order.  acceptance: by the bucket's lower end, in tokens of the prompt."""

    step_ms: tuple[float, ...] = ()
    round_ms: tuple[float, ...] = ()
    acceptance: Mapping[int, Accepted] = field(default_factory=dict)

    @property
    def drafted(self) -> int:
        """Drafts that were verified."""
        return sum(bucket.drafted for bucket in self.acceptance.values())


Files = Sequence[Sequence[seen.Observation]]
"""One start's: of its ranks and of the harness."""


def requests_of(files: Files) -> frozenset[str]:
    """Requests that ended."""
    return frozenset(line.record.request for line in _lines(files) if isinstance(line.record, seen.Completed))


def measure(files: Files, requests: frozenset[str]) -> Measured:
    """Times and acceptance on rank 0, of these requests and of steps that are theirs alone.

    requests: those that both arms had, since figures of different work compare nothing.
    """
    lines = _lines(files)
    left = {line.record.step: line.time_ns for line in lines if isinstance(line.record, seen.Published)}
    scheduled = [(line.time_ns, line.record) for line in lines if isinstance(line.record, seen.Scheduled)]
    steps = [
        (later - earlier) / NS_PER_MS
        for (earlier, before), (later, after) in pairwise(scheduled)
        if _names(before) & _names(after) and _names(before) | _names(after) <= requests
    ]
    rounds = [
        (left[record.step] - at) / NS_PER_MS
        for at, record in scheduled
        if record.step in left and _names(record) <= requests
    ]
    return Measured(tuple(steps), tuple(rounds), _acceptance(lines, requests))


def bucket_of(prompt_tokens: int) -> int:
    """Lower end of its bucket: 0, then powers of two from BUCKET_LEAST on."""
    if prompt_tokens < BUCKET_LEAST:
        return 0
    return 1 << (prompt_tokens.bit_length() - 1)


def bucket_name(least: int) -> str:
    """As people read it."""
    return f"below {BUCKET_LEAST}" if least < BUCKET_LEAST else f"{least} to {2 * least - 1}"


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all values does not exceed.  values: at least one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def _lines(files: Files) -> list[seen.Observation]:
    return [line for file in files if _of_rank_0(file) for line in file]


def _of_rank_0(file: Sequence[seen.Observation]) -> bool:
    facts = file[0].record if file else None
    return isinstance(facts, seen.Facts) and facts.rank == 0


def _names(record: seen.Scheduled) -> set[str]:
    return {entry.request for entry in record.requests}


def _acceptance(lines: Iterable[seen.Observation], requests: frozenset[str]) -> dict[int, Accepted]:
    """Drafts that somebody drafted; zeros and padding that the engine verified are left out."""
    records = [line.record for line in lines]
    prompts = {
        record.request: record.prompt_tokens for record in records if isinstance(record, seen.Completed)
    }
    found: dict[int, Accepted] = {}
    for record in records:
        if isinstance(record, seen.Verified) and record.source != "none" and record.request in requests:
            bucket = found.setdefault(bucket_of(prompts[record.request]), Accepted())
            bucket.drafted += record.drafted
            bucket.accepted += record.accepted
    return dict(sorted(found.items()))
