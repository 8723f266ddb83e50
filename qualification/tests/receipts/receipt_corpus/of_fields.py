"""Statements, well signed, that are none of ours."""

from collections.abc import Callable
from typing import Any

from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Apply, Mutant


def field(*path: str | int, value: Any) -> Apply:
    """Set a field of the first receipt's predicate."""

    def apply(bench: Bench) -> None:
        at: Any = bench.predicate()
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return apply


def top(**fields: Any) -> Apply:
    """Set fields of the statement."""
    return lambda bench: bench.statements[0].update(fields)


def without(pick: Callable[[Bench], dict[str, Any]], name: str) -> Apply:
    """Leave a field out."""

    def apply(bench: Bench) -> None:
        del pick(bench)[name]

    return apply


def subject(**fields: Any) -> Apply:
    """Set fields of the first subject."""
    return lambda bench: bench.statements[0]["subject"][0].update(fields)


WRONG_VALUES: list[tuple[str, Apply]] = [
    ("a counter of 2^64", field("counter", value=str(2**64))),
    ("a counter with a leading zero", field("counter", value="041")),
    ("a counter below zero", field("counter", value="-1")),
    ("a counter that is a number", field("counter", value=41)),
    ("a counter with a newline behind", field("counter", value="41\n")),
    ("a digest with a newline behind", field("check", "digest", value="0" * 64 + "\n")),
    ("a digest in capitals", field("check", "digest", value="A" * 64)),
    ("a digest of 63", field("check", "digest", value="0" * 63)),
    ("a count below zero", field("coverage", "failed", value=-1)),
    ("a count that is true", field("coverage", "failed", value=True)),
    ("a count that is text", field("coverage", "failed", value="0")),
    ("a count and a half", field("coverage", "failed", value=0.5)),
    ("a threshold that is text", field("thresholds", 0, "value", value="0.05")),
    ("a verdict of another tool", field("verdict", value="OK")),
    ("a verdict in small letters", field("verdict", value="pass")),
    ("a verdict that is missing words", field("verdict", value="NOT_RUN")),
    ("an evidence class in capitals", field("evidence_class", value="NATIVE")),
    ("something found of another kind", field("conclusions", 0, "found", value="skipped")),
    ("a time without a zone", field("window", "closed", value="2026-11-01T10:40:00")),
    ("a time in another zone", field("window", "closed", value="2026-11-01T10:40:00+00:00")),
    ("the 30th of February", field("window", "closed", value="2026-02-30T10:40:00Z")),
    ("hour 24", field("window", "closed", value="2026-11-01T24:00:00Z")),
    ("a time with a newline behind", field("window", "closed", value="2026-11-01T10:40:00Z\n")),
    ("a run id with a newline behind", field("run_id", value="run-1\n")),
    ("a run id that is empty", field("run_id", value="")),
    ("a check's name with a space", field("check", "name", value="alpha passes")),
    ("a note of two lines", field("notes", value=["one\ntwo"])),
    ("a note that is empty", field("notes", value=[""])),
    ("notes that are null", field("notes", value=None)),
    ("arms of no rank", field("arms", "off", "arm", "ranks", value=0)),
    ("a platform without a device", field("arms", "off", "platform", "devices", value=[])),
    ("a schema version 0", field("schema_version", value=0)),
    ("a schema version that is true", field("schema_version", value=True)),
    ("a tool's version that is none", field("tool_version", value="0.1")),
    ("an evidence path with a null byte", field("evidence", 0, "path", value="observations/\x00")),
    ("a subject of no kind", subject(name="serve.toml")),
    ("a subject of an unknown kind", subject(name="image:serve.toml")),
    ("a subject's digest in another algorithm", subject(digest={"sha256": "sha512:00"})),
    ("no subject", top(subject=[])),
    ("another kind of statement", top(_type="https://in-toto.io/Statement/v0.1")),
    ("a predicate that is a list", top(predicate=[])),
]
MUTANTS = [
    Mutant("another predicate type", "predicate_type", top(predicateType="https://slsa.dev/provenance/v1")),
    Mutant(
        "a predicate type cut off",
        "predicate_type",
        top(predicateType="urn:spark-offload:qualification:receipt"),
    ),
    Mutant(
        "a predicate of version 2", "version", top(predicateType="urn:spark-offload:qualification:receipt:v2")
    ),
    Mutant("a schema version 2", "version", field("schema_version", value=2)),
    Mutant("a newer tool", "version", field("tool_version", value="0.2.0")),
    Mutant("a much newer tool", "version", field("tool_version", value="10.0.0")),
    Mutant("a field more in the statement", "unknown_field", top(comment="trust me")),
    Mutant("a field more in the predicate", "unknown_field", field("override", value=True)),
    Mutant("a field more in a conclusion", "unknown_field", field("conclusions", 0, "waived", value=True)),
    Mutant("a subject with annotations", "unknown_field", subject(annotations={})),
    Mutant("a second algorithm", "unknown_field", subject(digest={"sha256": "0" * 64, "sha1": "0" * 40})),
    Mutant("no verdict", "missing_field", without(lambda bench: bench.predicate(), "verdict")),
    Mutant("no notes", "missing_field", without(lambda bench: bench.predicate(), "notes")),
    Mutant("no counter", "missing_field", without(lambda bench: bench.predicate(), "counter")),
    Mutant("no closing time", "missing_field", without(lambda bench: bench.predicate()["window"], "closed")),
    Mutant("no predicate type", "missing_field", without(lambda bench: bench.statements[0], "predicateType")),
    *(Mutant(name, "field_value", apply) for name, apply in WRONG_VALUES),
]
