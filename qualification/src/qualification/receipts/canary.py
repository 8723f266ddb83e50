"""Broken receipts that the verifier must refuse before it may judge anything else.

Made anew each time, with a key that nobody keeps.  A verifier that would let one pass, or calls its fault by another
name, is blind, and the command stops with exit status 2.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ofl.contract.observation_v1 import SCHEMA, Facts, Observation, write_line

from qualification import __version__
from qualification.checks.model import Arm, Check, Conclusion, Found, Subcase, Verdict
from qualification.receipts.canonical import read_json, sha256, to_bytes
from qualification.receipts.envelope import seal
from qualification.receipts.errors import ReceiptError
from qualification.receipts.fields import NO_DIGEST, File
from qualification.receipts.keys import CryptoSigner, SSlibKey
from qualification.receipts.making import Place, build, payload
from qualification.receipts.platforms import arm_declaration, arm_record
from qualification.receipts.run_record import (
    BLINDING,
    LEDGER_FILE,
    RUN_FILE,
    RUN_FORMAT,
    RunRecord,
    receipt_file,
)
from qualification.receipts.statement import (
    Digest,
    EvidenceClass,
    Statement,
    Subject,
    Window,
)

Verify = Callable[[bytes, SSlibKey, Path], object]
_ARMS = (Arm("canary_off", "none"), Arm("canary_on", "remote"))
_CHECK = Check("canary", "Is the verifier awake?", "the canary", *_ARMS, (Subcase("sings", "Does it sing?"),))
_OPENED, _DEADLINE, _BOUND = "2026-01-01T00:00:00Z", "2026-01-01T01:15:00Z", "2026-01-01T01:30:00Z"


class BlindError(Exception):
    """The verifier did not refuse a broken receipt for its fault."""


def watch(verify: Verify) -> None:
    """Have every canary judged.  Raises BlindError naming the first that was not refused as it must be."""
    signer = CryptoSigner(Ed25519PrivateKey.generate())
    with tempfile.TemporaryDirectory(prefix="qualify-canary-") as folder:
        for path, data in _observed().items():
            (Path(folder) / path).write_bytes(data)
        for rule, data in canaries(signer):
            try:
                verify(data, signer.public_key, Path(folder))
            except ReceiptError as error:
                if error.rules != {rule}:
                    said = ", ".join(sorted(error.rules))
                    raise BlindError(
                        f"the verifier is blind: it refused a breach of {rule} for {said}"
                    ) from None
            else:
                raise BlindError(f"the verifier is blind: it let a breach of {rule} pass")


def watch_runs(verify: Callable[[Path, SSlibKey], object]) -> None:
    """Have a run judged that was killed before its last file.  Raises BlindError where it passes."""
    signer = CryptoSigner(Ed25519PrivateKey.generate())
    with tempfile.TemporaryDirectory(prefix="qualify-canary-") as folder:
        files = {
            **_observed(),
            RUN_FILE: to_bytes(_run()),
            LEDGER_FILE: b"",
            receipt_file(1, _CHECK.name): seal(payload(specimen()), signer),
        }
        for path, data in files.items():
            (Path(folder) / path).parent.mkdir(exist_ok=True)
            (Path(folder) / path).write_bytes(data)
        try:
            verify(Path(folder), signer.public_key)
        except ReceiptError as error:
            if error.rules != {"incomplete"}:
                said = ", ".join(sorted(error.rules))
                raise BlindError(f"the verifier is blind: it refused a killed run for {said}") from None
        else:
            raise BlindError("the verifier is blind: it let a killed run pass")


def canaries(signer: CryptoSigner) -> Iterator[tuple[str, bytes]]:
    """Each rule that is violated, with the receipt that violates it and nothing else."""
    sound = specimen()
    lie = _altered(sound, verdict=Verdict.PASS)
    forged = read_json(seal(payload(sound), signer), "canary")
    forged["payload"] = read_json(seal(payload(lie), signer), "canary")["payload"]
    yield "signature", to_bytes(forged)
    yield "verdict", seal(payload(lie), signer)
    yield "evidence_class", seal(payload(_altered(sound, evidence_class=EvidenceClass.NATIVE)), signer)
    first, *others = sound.predicate.evidence
    spoilt = (first.model_copy(update={"sha256": NO_DIGEST}), *others)
    yield "evidence_digest", seal(payload(_altered(sound, evidence=spoilt)), signer)
    [_, on] = sound.predicate.evidence
    yield "facts", seal(payload(_altered(sound, evidence=(on,))), signer)


def _altered(statement: Statement, **fields: Any) -> Statement:
    return statement.model_copy(update={"predicate": statement.predicate.model_copy(update=fields)})


def specimen() -> Statement:
    """A sound receipt of a check that failed."""
    off, on = (arm_record(arm, [_facts(arm)]) for arm in _ARMS)
    return build(
        _CHECK,
        _run(),
        Place(1),
        subjects=[Subject(name="wheel:canary", digest=Digest(sha256=NO_DIGEST))],
        off=off,
        on=on,
        conclusions=[Conclusion("sings", Found.FAILED, "It does not sing.", 1)],
        evidence=[
            File(path=path, bytes=len(data), sha256=sha256(data)) for path, data in _observed().items()
        ],
        window=Window(opened=_OPENED, submission_deadline=_DEADLINE, hard_bound=_BOUND, closed=_DEADLINE),
        thresholds={},
    )


def _run() -> RunRecord:
    return RunRecord(
        format=RUN_FORMAT,
        run_id="canary",
        tool_version=__version__,
        platform="canary",
        declared_checks=(_CHECK.name,),
        arms=tuple(map(arm_declaration, _ARMS)),
        counter_first="1",
        blinding=BLINDING,
        started=_OPENED,
        window_submission_seconds=4500,
        window_bound_seconds=5400,
    )


def _facts(arm: Arm) -> Facts:
    return Facts(
        schema=SCHEMA,
        start_id=f"{arm.name}-start",
        arm=arm.name,
        rank=0,
        ranks=arm.ranks,
        engine="simulator",
        engine_version="0",
        overlay_version="",
        device="simulated",
        device_capability="",
        driver="",
        speculator="",
        speculator_module="",
        policy="",
        transport="",
        draft_parameters=0,
        draft_layers=0,
        budget_tokens=1,
        block_length=0,
        window=0,
        capabilities=(),
    )


def _observed() -> dict[str, bytes]:
    """Evidence files by path."""
    return {f"{arm.name}.jsonl": write_line(Observation(0, 0, _facts(arm))) for arm in _ARMS}
