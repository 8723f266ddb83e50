"""Every rule that verification can find violated.  Nothing is refused by another name.

A rule of the stages up to `fields` stands alone: what comes after it was not looked at.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """stage: what is judged.  holds: what must be so, as a sentence."""

    id: str
    stage: str
    holds: str


STAGES = {
    "bytes": "Reading the file",
    "signature": "The signature",
    "fields": "The fields",
    "receipt": "One receipt",
    "evidence": "Its evidence",
    "run": "The run",
    "runs": "Several runs",
}
RULES = tuple(
    Rule(*row)
    for row in (
        ("unreadable", "bytes", "Everything in the folder of receipts is a regular file that can be read."),
        ("size", "bytes", "A file is no longer than 4 MiB."),
        ("encoding", "bytes", "A file is UTF-8 without a byte order mark."),
        ("json", "bytes", "A file is one JSON value: not cut off, and nothing follows it."),
        ("duplicate_key", "bytes", "No key stands twice in an object."),
        (
            "number",
            "bytes",
            "Every number is finite, and every integer within 2^53 - 1.",
        ),
        ("canonical", "bytes", "The bytes are those that RFC 8785 writes for the value."),
        (
            "envelope",
            "signature",
            "The envelope is DSSE with one signature and nothing else, in standard base64.",
        ),
        ("payload_type", "signature", "The payload's type is application/vnd.in-toto+json."),
        ("signature", "signature", "The signature is by the key that was given, over exactly this payload."),
        ("predicate_type", "fields", "The predicate's type is that of our receipts."),
        ("version", "fields", "The receipt is not of a schema or tool newer than the verifier."),
        ("unknown_field", "fields", "No field is unknown."),
        ("missing_field", "fields", "No field is missing."),
        ("field_value", "fields", "Every field holds a value of its type."),
        ("duplicate_subject", "receipt", "No name and no digest stands twice among the subjects."),
        ("declared_list", "receipt", "The declared checks are sorted and none stands twice."),
        ("declaration", "receipt", "The declaration's digest is that of its content."),
        ("subcases", "receipt", "No subcase is declared twice."),
        ("thresholds", "receipt", "The thresholds used are those declared, by name, sorted, each once."),
        ("coverage_sum", "receipt", "Declared = passed + failed + not run + hold."),
        ("coverage_counts", "receipt", "The counts are those of the conclusions."),
        (
            "empty_coverage",
            "receipt",
            "A PASS rests on at least one observation in every subcase, and has subcases.",
        ),
        (
            "verdict",
            "receipt",
            "The verdict is the one that follows from the conclusions; or HOLD, with a note why.",
        ),
        ("arm_pair", "receipt", "The two arms differ, by name and in what they declare."),
        ("arm_not_started", "receipt", "A PASS or FAIL has an engine start and its facts in both arms."),
        ("arm_platform", "receipt", "Both arms ran the same engine, version, overlay and devices."),
        ("arm_ranks", "receipt", "An arm's facts have one device per rank that it declares."),
        ("start_ids", "receipt", "No engine start counts for both arms or twice."),
        (
            "evidence_class",
            "receipt",
            "The evidence class is the one that follows from the facts of both arms.",
        ),
        (
            "window",
            "receipt",
            "Opened < submission deadline <= hard bound, and closed lies between opened and it.",
        ),
        ("evidence_none", "receipt", "A PASS or FAIL names evidence files."),
        ("evidence_duplicate", "receipt", "No evidence file is named twice."),
        ("evidence_path", "evidence", "An evidence path is relative, plain and leads over no symbolic link."),
        ("evidence_missing", "evidence", "Every evidence file is there and is a regular file."),
        ("evidence_size", "evidence", "Every evidence file has the size that the receipt says."),
        ("evidence_digest", "evidence", "Every evidence file has the digest that the receipt says."),
        (
            "facts",
            "evidence",
            "Observations of every start that counts are there, and state the platform of the receipt.",
        ),
        ("run_record", "run", "run.json is there, can be read, and says what the receipts say of the run."),
        (
            "incomplete",
            "run",
            "complete.json is there, signed by the key, and agrees with the ledger and every file; no more lies there.",
        ),
        (
            "ledger",
            "run",
            "The ledger's lines are numbered from 0, and each names the digest of the one before.",
        ),
        ("no_receipts", "run", "A run has at least one receipt."),
        ("run_id", "run", "Every receipt is of this run."),
        ("declared_differs", "run", "Every receipt lists the checks that run.json declares."),
        ("subjects_differ", "run", "Every receipt of a run is about the same subjects."),
        ("missing_check", "run", "Every declared check has a receipt."),
        ("surplus_check", "run", "No receipt is of a check that was not declared."),
        ("duplicate_check", "run", "No check has two receipts in a run."),
        ("start_shared", "run", "An engine start belongs to one arm, and every receipt says the same of it."),
        (
            "counter_first",
            "run",
            "The first receipt has the counter that run.json says, and nothing before it.",
        ),
        ("counter_gap", "run", "Every counter is one more than that before it."),
        ("fork", "run", "No two receipts have the same counter or follow the same one."),
        ("previous", "run", "Every receipt names the digest of the one before it."),
        ("run_id_reused", "runs", "No two runs have the same id."),
        ("counter_overlap", "runs", "No counter stands in two runs."),
        ("conflict", "runs", "No check has a PASS and a FAIL about the same subjects."),
    )
)
BY_ID = {rule.id: rule for rule in RULES}
