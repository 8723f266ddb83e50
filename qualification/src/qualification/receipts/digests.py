"""Digests of things that are no file."""

from qualification.receipts.canonical import sha256, to_bytes
from qualification.receipts.statement import Declaration


def declaration_digest(declaration: Declaration, arm_variable: str) -> str:
    """SHA-256 of the canonical form of the declaration without its digest, and the arm variable."""
    content = declaration.model_dump(mode="json", exclude={"digest"})
    return sha256(to_bytes({**content, "arm_variable": arm_variable}))
