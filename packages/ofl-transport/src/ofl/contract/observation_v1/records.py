"""The records.  Values only: what each means is stated here and nowhere else.

Steps are counted per rank and start, from 1; ranks of one engine take the same steps in the same order, so equal
numbers name the same step.  A request is named by the harness that sent it, never by a user.  A *life* is one stay of
a request in a slot.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

SCHEMA = "observation-v1"
BlindTag = Annotated[str, "^([0-9a-f]{32})?$"]
"""32 hex digits of HMAC-SHA-256 under the run's blinding key, or `NO_TAG`: equal tags, equal content."""
NO_TAG = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the engine says of itself, from inside, before its first step.

    schema: `SCHEMA`.  start_id: random per engine start, the same on every rank.  arm: as the harness named it.
    engine, engine_version: "vllm" or "simulator".  device: CUDA's name of the device, "cpu" or "simulated".
    device_capability: "9.0" and so on, empty without CUDA.  driver: of the device, empty where there is none.
    speculator: class that drafts, empty without speculation.  speculator_module: where it is from.
    draft_parameters: parameters that a local drafter holds on this rank.  draft_layers: attention layers that it
    registered for KV.  budget_tokens: scheduled tokens of a step, at most.  block_length: K, 0 without speculation.
    window: context rows that drafting attends to, 0 for all.
    capabilities: what this platform can show, sorted: of `CAPABILITIES`.
    """

    kind: ClassVar[str] = "facts"
    schema: str
    start_id: str
    arm: str
    rank: int
    ranks: int
    engine: str
    engine_version: str
    overlay_version: str
    device: str
    device_capability: str
    driver: str
    speculator: str
    speculator_module: str
    policy: str
    transport: str
    draft_parameters: int
    draft_layers: int
    budget_tokens: int
    block_length: int
    window: int
    capabilities: tuple[str, ...]


CAPABILITIES = (
    "row_reduction",
    "asynchronous_hand_off",
    "multimodal",
    "two_ranks",
    "cuda_graphs",
    "engram_tables",
)


@dataclass(frozen=True, slots=True)
class Case:
    """The harness began or ended a case.  subcase: empty where the case has none."""

    kind: ClassVar[str] = "case"
    check: str
    subcase: str
    begins: bool


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request of a step, as this rank has it when drafting begins.

    life: counts stays in slots, from 1, per rank.  q: scheduled tokens.  kept: of them, those whose rows the target
    kept (q where it trims none).  valid: kept rows less rejected ones.  first_position: absolute, of the first valid
    row.  sampled: tokens sampled, 0 in the middle of a prefill.  verified: drafts that were verified in this step.
    anchor: tag of the token after the last valid row, `NO_TAG` where none was sampled.
    """

    request: str
    slot: int
    life: int
    q: int
    kept: int
    valid: int
    first_position: int
    sampled: int
    verified: int
    anchor: BlindTag


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A real step reached its drafter, on this rank."""

    kind: ClassVar[str] = "scheduled"
    step: int
    requests: tuple[ScheduledRequest, ...]


@dataclass(frozen=True, slots=True)
class ExchangedSlot:
    """One entry of a STEP message and of its reply.

    rows: tag of the row bytes that were sent, `NO_TAG` where none were.  generation: as sent; generation_echoed: as
    replied, -1 where there is no reply.  held_from: lowest position that the reply says the worker's window begins at,
    -1 without.  status: of the reply's entry, by name; empty without.  drafts: tag of the drafts in the reply.
    """

    request: str
    slot: int
    generation: int
    generation_echoed: int
    first_position: int
    n_rows: int
    rows: BlindTag
    need_draft: bool
    reset: bool
    partial_window: bool
    n_out: int
    held_from: int
    status: str
    drafts: BlindTag


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One STEP message and what came of it, as the transport saw them.  Rank 0 alone.

    epoch, round: of the message; epoch_echoed, round_echoed: of the reply, -1 without one.  awaited: drafts were
    waited for.  reply: "in time", "late" (after its call ended), "none", "refused" (by the worker) or "unreadable"
    (against the contract).  Written once that is known, perhaps behind records of later steps; step: that sent it.
    """

    kind: ClassVar[str] = "exchanged"
    step: int
    epoch: int
    round: int
    epoch_echoed: int
    round_echoed: int
    awaited: bool
    reply: str
    slots: tuple[ExchangedSlot, ...]


@dataclass(frozen=True, slots=True)
class DecidedRequest:
    """outcome: by name.  drafts, confidences: tags, of those that the engine was handed."""

    request: str
    outcome: str
    drafts: BlindTag
    confidences: BlindTag


@dataclass(frozen=True, slots=True)
class Decided:
    """What this rank read after the broadcast.  reason: of a failed round; empty where it did not fail.

    source: "remote", "local" or "merged": whose drafts the policy hands to the engine.
    """

    kind: ClassVar[str] = "decided"
    step: int
    round: int
    reason: str
    source: str
    requests: tuple[DecidedRequest, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The drafts that left `propose` on this rank, request by request, as tags; all-zero drafts have `NO_TAG`."""

    kind: ClassVar[str] = "published"
    step: int
    drafts: tuple[BlindTag, ...]


@dataclass(frozen=True, slots=True)
class Drafter:
    """Two drafters from one state, compared inside the engine (shadow), for one request.

    common: leading positions at which they agree, of drafted.  margin: at the first position that differs, how far the
    worker's logit of its draft was above the runner-up's; 0 where none differs.
    """

    kind: ClassVar[str] = "drafter"
    step: int
    request: str
    drafted: int
    common: int
    margin: float


@dataclass(frozen=True, slots=True)
class Verified:
    """The target verified drafts of a request.  position: of the anchor that they followed.

    source: who drafted them, "remote" or "local"; "none" where nobody did, and zeros were verified.
    """

    kind: ClassVar[str] = "verified"
    step: int
    request: str
    position: int
    drafted: int
    accepted: int
    source: str


@dataclass(frozen=True, slots=True)
class TableOpened:
    """Where this rank's reader of table rows stands: once when it is seen first, then whenever that has changed.

    step: of the engine, 0 before the first.  layers: that it reads.  identity: of its manifest, 64 hex digits; it names
    a public file, and no content.  source: "remote" where a server is configured, else "local".  status: "open",
    "closed" or "refused".  refused: field that a refusal names.  offered: identity that the refusing server says it
    serves; empty where it says none.
    """

    kind: ClassVar[str] = "table_opened"
    step: int
    rank: int
    ranks: int
    layers: int
    identity: str
    source: str
    status: str
    refused: str
    offered: str


@dataclass(frozen=True, slots=True)
class TableRead:
    """One layer's part of a lookup of table rows that has ended, from its ids and the bytes in its staging.

    step: of the engine.  requests: whose tokens it is for, in batch order.  lookup: counts this rank's, from 1, in the
    order in which they began.  layer: of the model.  n_rows: ids.  out_of_shard: ids that are not among this rank's
    rows.  ids: tag of the ids.  rows: tag of the values plane and the scales plane, `NO_TAG` where none were given.
    outcome: "remote", "local" or "failed".  reason: why it is not remote, empty where it is.  replied: a server's whole
    answer to a lookup of as many rows reached the staging meanwhile.
    """

    kind: ClassVar[str] = "table_read"
    step: int
    requests: tuple[str, ...]
    lookup: int
    layer: int
    n_rows: int
    out_of_shard: int
    ids: BlindTag
    rows: BlindTag
    outcome: str
    reason: str
    replied: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault seam acted.  moment: "armed", "struck", "held", "released".  action: as in the plan."""

    kind: ClassVar[str] = "fault"
    step: int
    case: str
    request: str
    action: str
    moment: str


@dataclass(frozen=True, slots=True)
class Completed:
    """A request ended, as whoever sent it saw.  text: tag of all its generated tokens.

    finish: "length", "stop", "abort" or "error".
    """

    kind: ClassVar[str] = "completed"
    request: str
    prompt_tokens: int
    output_tokens: int
    finish: str
    text: BlindTag


@dataclass(frozen=True, slots=True)
class Closed:
    """The last line.  records: lines before this one.  dropped: records that could not be written."""

    kind: ClassVar[str] = "closed"
    records: int
    dropped: int


Record = (
    Facts
    | Case
    | Scheduled
    | Exchanged
    | Decided
    | Published
    | Drafter
    | Verified
    | TableOpened
    | TableRead
    | Fault
    | Completed
    | Closed
)
KINDS: dict[str, type[Record]] = {
    made.kind: made
    for made in (
        Facts,
        Case,
        Scheduled,
        Exchanged,
        Decided,
        Published,
        Drafter,
        Verified,
        TableOpened,
        TableRead,
        Fault,
        Completed,
        Closed,
    )
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One line.  index: of the line, from 0.  time_ns: CLOCK_MONOTONIC of that host, for latencies only."""

    index: int
    time_ns: int
    record: Record
