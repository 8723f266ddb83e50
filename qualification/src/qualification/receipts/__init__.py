"""Receipts: what a check concluded about which bits, from which evidence, signed.

The runner makes them (`arm_record`, `build`, `payload`, `sign`), everyone else verifies them.  `keys` has the key
files, `run_record` what a run says of itself, `rules` every rule.
"""

from qualification.receipts.canonical import read_model, sha256, to_bytes
from qualification.receipts.errors import ReceiptError, Violation
from qualification.receipts.judge_run import VerifiedReceipt
from qualification.receipts.making import Place, build, not_seen, payload, sign
from qualification.receipts.platforms import FactsError, arm_declaration, arm_record
from qualification.receipts.verify import VerifiedRun, find_runs, verify_receipt, verify_run, verify_runs

__all__ = [
    "FactsError",
    "Place",
    "ReceiptError",
    "VerifiedReceipt",
    "VerifiedRun",
    "Violation",
    "arm_declaration",
    "arm_record",
    "build",
    "find_runs",
    "not_seen",
    "payload",
    "read_model",
    "sha256",
    "sign",
    "to_bytes",
    "verify_receipt",
    "verify_run",
    "verify_runs",
]
