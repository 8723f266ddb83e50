"""A run on a bench: its receipts as plain JSON, to be altered, signed again, chained again and published again."""

import base64
import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rfc8785
from qualification.checks.model import Found
from qualification.receipts import VerifiedRun, sha256, verify_run
from qualification.receipts.digests import declaration_digest
from qualification.receipts.envelope import COMPLETE_TYPE, PAYLOAD_TYPE, seal
from qualification.receipts.keys import CryptoSigner
from qualification.receipts.run_record import COMPLETE_FILE, RUN_FILE, complete_record, receipt_file
from qualification.receipts.statement import ArmRecord, Declaration

from receipt_corpus import sound

Bytes = Callable[[bytes], bytes]


@dataclass
class Bench:
    """statements: of the receipts, by place.  Whatever a mutation does to them, `publish` signs and chains.

    payload, envelope: applied to the bytes of the receipt at that place, before and after signing.
    observed: places whose evidence is made anew from its arms, after a change to a copy of them.
    pinned: places whose `previous` is left as it stands.
    """

    root: Path
    run: dict[str, Any]
    statements: list[dict[str, Any]]
    payload: dict[int, Bytes] = field(default_factory=dict)
    envelope: dict[int, Bytes] = field(default_factory=dict)
    observed: dict[int, Callable[[dict[str, Any]], object]] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)
    signer: CryptoSigner = sound.SIGNER
    payload_type: str = PAYLOAD_TYPE

    @classmethod
    def make(cls, root: Path, **options: Any) -> "Bench":
        """The sound run below `root`.  options: of `sound.run_record` and `sound.statements`."""
        started = options.pop("started", sound.native)
        found = options.pop("found", Found.FAILED)
        record = sound.run_record(**options)
        made = [
            one.model_dump(mode="json", by_alias=True) for one in sound.statements(record, started, found)
        ]
        bench = cls(root, record.model_dump(mode="json"), made)
        sound.write_files(root, started)
        bench.publish()
        return bench

    def predicate(self, place: int = 0) -> dict[str, Any]:
        """Of the receipt at that place, to be altered."""
        predicate: dict[str, Any] = self.statements[place]["predicate"]
        return predicate

    def path(self, place: int = 0) -> Path:
        """Of a receipt's file."""
        return self.root / receipt_file(place, f"r{place}")

    def redeclare(self, place: int = 0) -> None:
        """Make the digest of an altered declaration right again."""
        check = self.predicate(place)["check"]
        made = Declaration.model_validate_json(json.dumps(check))
        check["digest"] = declaration_digest(made, self.predicate(place)["arm_variable"])

    def publish(self) -> None:
        """Everything but evidence and ledger, written anew."""
        shutil.rmtree(self.root / "receipts", ignore_errors=True)
        (self.root / "receipts").mkdir(parents=True)
        (self.root / RUN_FILE).write_bytes(rfc8785.dumps(self.run))
        for place, change in self.observed.items():
            self._observe(place, change)
        previous = "0" * 64
        for place, statement in enumerate(self.statements):
            if place not in self.pinned and isinstance(statement.get("predicate"), dict):
                statement["predicate"]["previous"] = previous
            signed = self.payload.get(place, bytes)(_dumps(statement))
            previous = sha256(signed)
            envelope = seal(signed, self.signer, self.payload_type)
            self.path(place).write_bytes(self.envelope.get(place, bytes)(envelope))
        self.complete()

    def _observe(self, place: int, change: Callable[[dict[str, Any]], object]) -> None:
        arms = copy.deepcopy(self.predicate(place)["arms"])
        change(arms)
        records = [ArmRecord.model_validate_json(json.dumps(arm)) for arm in arms.values()]
        files = sound.observations(f"observed-{place}", *records)
        for path, data in files.items():
            (self.root / path).parent.mkdir(exist_ok=True)
            (self.root / path).write_bytes(data)
        self.predicate(place)["evidence"] = [file.model_dump() for file in sound.described(files)]

    def complete(self) -> None:
        """`complete.json` for what lies there."""
        self.call_complete(complete_record(self.root, self.run["run_id"]).model_dump(mode="json"))

    def called_complete(self) -> dict[str, Any]:
        """What `complete.json` says."""
        envelope = json.loads((self.root / COMPLETE_FILE).read_bytes())
        record: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
        return record

    def call_complete(self, record: dict[str, Any], *, payload_type: str = COMPLETE_TYPE) -> None:
        """`complete.json` that says so, signed like receipts."""
        (self.root / COMPLETE_FILE).write_bytes(seal(rfc8785.dumps(record), self.signer, payload_type))

    def verify(self) -> VerifiedRun:
        """As everyone else would."""
        return verify_run(self.root, sound.KEY)


def _dumps(value: Any) -> bytes:
    """Canonical where there is a canonical form; mutations of numbers come in as `payload`."""
    return rfc8785.dumps(value)


def resealed(alter: Callable[[dict[str, Any]], None]) -> Bytes:
    """A change of the envelope's own fields, the file canonical again."""

    def change(data: bytes) -> bytes:
        envelope = json.loads(data)
        alter(envelope)
        return rfc8785.dumps(envelope)

    return change


def b64(data: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(data).decode()
