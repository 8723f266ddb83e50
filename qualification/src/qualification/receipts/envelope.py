"""DSSE: a payload, its type, one signature.  An envelope is believed only after its signature was.

The file is canonical JSON too, so one statement and one key give one file, byte for byte.
"""

import base64
from typing import Annotated, Final

from pydantic import Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError

from qualification.receipts.canonical import field_violations, read_canonical, to_bytes
from qualification.receipts.errors import refuse
from qualification.receipts.fields import Model, Sha256, text
from qualification.receipts.keys import CryptoSigner, Signature, SSlibKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
COMPLETE_TYPE: Final = "application/vnd.spark-offload.qualification-complete+json"
"""Of a run's last file, so that neither can be shown for the other."""
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?!\n)$"


class SignatureRecord(Model):
    """keyid: as securesystemslib derives it from the public key.  sig: of DSSE's pre-authentication encoding."""

    keyid: Sha256
    sig: Annotated[str, text(_BASE64, "standard base64", min_length=88, max_length=88)]


class EnvelopeRecord(Model):
    """A receipt's file."""

    payload: Annotated[str, text(_BASE64, "standard base64", min_length=4)]
    payload_type: str = Field(alias="payloadType", min_length=1)
    signatures: Annotated[tuple[SignatureRecord, ...], Field(min_length=1, max_length=1)]


def seal(payload: bytes, signer: CryptoSigner, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The signed envelope, as bytes of a file.  Looks at nothing in the payload: `build.sign` does."""
    envelope = Envelope(payload, payload_type, {})
    envelope.sign(signer)
    return to_bytes(envelope.to_dict())


def open_envelope(data: bytes, key: SSlibKey, where: str = "", payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The payload that the key signed.  Raises ReceiptError of one rule of the stages `bytes` or `signature`."""
    read_canonical(data, where)
    try:
        record = EnvelopeRecord.model_validate_json(data)
    except ValidationError as error:
        first = field_violations(error, where)[0]
        raise refuse("envelope", f"envelope {first.sentence}", where) from None
    payload, signature = (
        _decode(record.payload, "payload", where),
        _decode(record.signatures[0].sig, "sig", where),
    )
    keyid = record.signatures[0].keyid
    if keyid != key.keyid:
        raise refuse("signature", f"keyid {keyid} is not that of the given key, {key.keyid}", where)
    envelope = Envelope(payload, record.payload_type, {keyid: Signature(keyid, signature.hex())})
    try:
        envelope.verify([key], 1)
    except VerificationError:
        raise refuse(
            "signature", "sig is not the given key's signature over this payload and type", where
        ) from None
    if record.payload_type != payload_type:
        raise refuse("payload_type", f"payloadType is {record.payload_type!r}, not {payload_type!r}", where)
    return payload


def _decode(text: str, field: str, where: str) -> bytes:
    """Base64 with its spare bits zero, so that no two texts are one payload."""
    made = base64.b64decode(text, validate=True)
    if base64.b64encode(made).decode() != text:
        raise refuse("envelope", f"envelope field {field}: spare bits of its base64 are not zero", where)
    return made
