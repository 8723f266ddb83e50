"""The receipt: an in-toto Statement (v1) about subjects, with a predicate of ours.

Types only.  What a schema can say is said here; what relates fields to one another is in `judge`.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from qualification.checks.model import Found, Verdict
from qualification.receipts.fields import (
    U64,
    ArmDeclaration,
    Count,
    File,
    Identifier,
    Line,
    Model,
    Name,
    Number,
    Sha256,
    Time,
    Version,
    Word,
    text,
)

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:spark-offload:qualification:receipt:v1"
SCHEMA_VERSION: Final = 1
Kind = Literal[
    "wheel", "native-library", "overlay-file", "checkpoint", "table-manifest", "engine", "launch-config"
]
KINDS: Final = get_args(Kind)
"""What a subject can be; the part of its name before the first colon."""


class EvidenceClass(StrEnum):
    """native: from a supported engine on a CUDA device, in every arm.  A rehearsal can never promote."""

    NATIVE = "native"
    REHEARSAL = "rehearsal"


class Digest(Model):
    """By algorithm, as in-toto has it; of ours, SHA-256 alone."""

    sha256: Sha256


class Subject(Model):
    """What may be promoted.  name: its kind, a colon, its own name."""

    name: Annotated[
        str, text(rf"^({'|'.join(KINDS)}):[^\x00-\x1f\x7f]{{1,300}}(?!\n)$", "a kind, a colon, and a name")
    ]
    digest: Digest

    @property
    def kind(self) -> str:
        """Of `KINDS`."""
        return self.name.partition(":")[0]


class SubcaseRecord(Model):
    """As the check declares it.  needs: a capability of the platform; empty where it needs none."""

    name: Name
    asks: Line
    needs: Word


class Threshold(Model):
    """A number that a check decides by."""

    name: Name
    value: Number


class Declaration(Model):
    """The check as it was when it decided.  digest: of the rest and the arm variable (`digests.declaration_digest`).

    thresholds: the defaults, sorted by name.
    """

    name: Name
    digest: Sha256
    subcases: tuple[SubcaseRecord, ...]
    thresholds: tuple[Threshold, ...]


class Device(Model):
    """Of one rank.  device: CUDA's name, "cpu" or "simulated".  capability, driver: empty without CUDA."""

    device: Word
    capability: Word
    driver: Word


class Platform(Model):
    """What the engine said of itself, from inside.  devices: one per rank.  capabilities: sorted."""

    engine: Identifier
    engine_version: Word
    overlay_version: Word
    transport: Word
    policy: Word
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    capabilities: tuple[Name, ...]


class ArmRecord(Model):
    """One arm.  starts: ids of the engine starts whose observations count.  platform: null where none started."""

    arm: ArmDeclaration
    starts: tuple[Identifier, ...]
    platform: Platform | None


class Arms(Model):
    """The pair of a check."""

    off: ArmRecord
    on: ArmRecord


class ConclusionRecord(Model):
    """Of one subcase.  observed: records that it rests on."""

    subcase: Name
    found: Found
    why: Line
    observed: Count


class Coverage(Model):
    """Subcases, counted.  hold: declared ones without exactly one conclusion."""

    declared: Count
    passed: Count
    failed: Count
    not_run: Count
    hold: Count


class Window(Model):
    """When evidence was taken, by the clock of the runner's host."""

    opened: Time
    submission_deadline: Time
    hard_bound: Time
    closed: Time


class Predicate(Model):
    """What one check concluded in one run.

    counter: of the receipt; never falls between runs.  previous: SHA-256 of the payload before it, 64 zeros for the
    first of a run.  declared_checks: of the run, sorted.  thresholds: that it was decided by, sorted.
    """

    schema_version: Annotated[int, Field(ge=1, le=1)]
    tool_version: Version
    run_id: Identifier
    check: Declaration
    arm_variable: Line
    arms: Arms
    evidence_class: EvidenceClass
    counter: U64
    previous: Sha256
    declared_checks: Annotated[tuple[Name, ...], Field(min_length=1)]
    verdict: Verdict
    conclusions: tuple[ConclusionRecord, ...]
    coverage: Coverage
    evidence: tuple[File, ...]
    window: Window
    thresholds: tuple[Threshold, ...]
    notes: tuple[Line, ...]


class Statement(Model):
    """A receipt.  `_type` and `predicateType` as in-toto spells them."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[tuple[Subject, ...], Field(min_length=1)]
    predicate_type: Literal["urn:spark-offload:qualification:receipt:v1"] = Field(alias="predicateType")
    predicate: Predicate
