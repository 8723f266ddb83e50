"""The figures of the service, counted as it goes and shown by STATS as one JSON object.

Counters only rise; `docs/contract/dspark-v1.md` lists the keys.   The boot nonce is 16 hex digits.
"""

import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict

from ofl.contract.dspark_v1 import SERVICE, VERSION, Op, Status, StepReplyEntry
from ofl.contract.identity import hex_or_unstated

from x86_worker.drafters.base import Drafter
from x86_worker.session.directory import Session
from x86_worker.session.limits import Limits

RECENT_STEPS = 1024
"""How many of the latest drafting STEPs the latency figures cover."""


class Statistics:
    """Counts by reason, and the latest drafting times in microseconds."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._counts: Counter[str] = Counter()
        self._queue_us: deque[int] = deque(maxlen=RECENT_STEPS)
        self._draft_us: deque[int] = deque(maxlen=RECENT_STEPS)

    def served(self, op: Op) -> None:
        """A message was answered with OK."""
        self._counts[f"served_{op.name.lower()}"] += 1

    def refused(self, status: Status) -> None:
        """A message was refused."""
        self._counts[f"refused_{status.name.lower()}"] += 1

    def session(self, what: str) -> None:
        """A session was opened, replaced or closed."""
        self._counts[f"sessions_{what}"] += 1

    def entry(self, entry: StepReplyEntry) -> None:
        """One entry of a STEP was answered."""
        self._counts[f"entries_{entry.status.name.lower()}"] += 1
        self._counts["draft_tokens"] += len(entry.drafts)

    def drafted(self, queue_us: int, draft_us: int) -> None:
        """A STEP with drafts took so long."""
        self._queue_us.append(queue_us)
        self._draft_us.append(draft_us)

    def as_json(
        self,
        *,
        now_ns: int,
        worker_name: str,
        boot_nonce: int,
        draining: bool,
        drafter: Drafter,
        limits: Limits,
        sessions: tuple[Session, ...],
        transport: Mapping[str, int],
    ) -> str:
        """The whole as one JSON object."""
        return json.dumps(
            {
                "service": SERVICE,
                "version": VERSION,
                "worker_name": worker_name,
                "boot_nonce": f"{boot_nonce:016x}",
                "uptime_s": round((now_ns - self._started_ns) / 1e9, 3),
                "draining": draining,
                "drafter": _drafter(drafter),
                "limits": asdict(limits),
                "sessions": [_session(session, now_ns) for session in sessions],
                "counters": dict(sorted(self._counts.items())),
                "queue_us": percentiles(self._queue_us),
                "draft_us": percentiles(self._draft_us),
                "transport": dict(transport),
            },
            allow_nan=False,
        )


def percentiles(values: deque[int]) -> dict[str, int] | None:
    """p50, p99 (nearest rank) and maximum with the count; None where there is nothing yet."""
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    rank = {name: ordered[min(last, len(ordered) * part // 100)] for name, part in (("p50", 50), ("p99", 99))}
    return rank | {"max": ordered[-1], "count": len(ordered)}


def _drafter(drafter: Drafter) -> dict[str, object]:
    facts = drafter.facts
    identity, markov, binding = hex_or_unstated([facts.identity, facts.markov_identity, facts.target_binding])
    return {
        **drafter.describe(),
        "identity": identity,
        "markov_identity": markov,
        "target_binding": binding,
        "vocabulary": facts.vocabulary,
        "row_elements": {form.name.lower(): n for form, n in sorted(facts.row_elements.items())},
        "row_dtypes": [dtype.name.lower() for dtype in sorted(facts.row_dtypes)],
        "window": facts.window,
        "max_positions": facts.max_positions,
        "block_length": facts.block_length,
        "tap_count": facts.tap_count,
        "confidence": facts.has_confidence,
        "fake": facts.fake,
    }


def _session(session: Session, now_ns: int) -> dict[str, object]:
    slots = [slot for slot in session.slots.values() if slot.rows]
    return {
        "engine_id": session.name,
        "epoch": session.epoch,
        "policy": session.policy.name.lower(),
        "age_s": round((now_ns - session.opened_ns) / 1e9, 3),
        "slots_held": len(slots),
        "rows_held": sum(slot.rows for slot in slots),
        "rows_taken": session.rows_taken,
        "steps": session.steps,
        "draft_tokens": session.drafts,
        "reserved_bytes": session.reserved_bytes,
        "row_form": session.shape.row_form.name.lower(),
        "row_dtype": session.shape.row_dtype.name.lower(),
    }
