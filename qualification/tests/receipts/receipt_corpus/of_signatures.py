"""Envelopes that prove nothing.  None is signed again: that is what is wrong with them."""

import json
from typing import Any

from receipt_corpus import sound
from receipt_corpus.bench import Bench, b64, resealed
from receipt_corpus.mutants import Mutant
from receipt_corpus.of_bytes import enveloped


def _other_key(bench: Bench) -> None:
    bench.signer = sound.OTHER_SIGNER


def _other_type(bench: Bench) -> None:
    bench.payload_type = "application/json"


def _other_keys_signature(envelope: dict[str, Any]) -> None:
    """Under the right key's name."""
    from securesystemslib.dsse import Envelope

    made = Envelope.from_dict(json.loads(json.dumps(envelope)))
    made.signatures.clear()
    signature = made.sign(sound.OTHER_SIGNER)
    envelope["signatures"][0]["sig"] = b64(bytes.fromhex(signature.signature))


def _turned(envelope: dict[str, Any]) -> None:
    sig = envelope["signatures"][0]["sig"]
    envelope["signatures"][0]["sig"] = ("B" if sig[0] == "A" else "A") + sig[1:]


def _swapped(bench: Bench) -> None:
    """The first receipt's signature over the second one's payload."""
    first, second = (json.loads(bench.path(place).read_bytes()) for place in (0, 1))
    bench.path(0).write_bytes(
        resealed(lambda made: made.update(payload=second["payload"]))(bench.path(0).read_bytes())
    )
    assert first["payload"] != second["payload"]


def _set(**fields: Any) -> Any:
    return enveloped(resealed(lambda envelope: envelope.update(fields)))


def _in_signature(**fields: Any) -> Any:
    return enveloped(resealed(lambda envelope: envelope["signatures"][0].update(fields)))


def _spare_bits(envelope: dict[str, Any]) -> None:
    """Another text for the same 64 bytes: the 86th letter carries two bits, and four that must be zero."""
    sig = envelope["signatures"][0]["sig"]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    envelope["signatures"][0]["sig"] = sig[:85] + letters[letters.index(sig[85]) + 1] + "=="


MUTANTS = [
    Mutant("an envelope with a field more", "envelope", _set(comment="")),
    Mutant(
        "an envelope without a payload", "envelope", enveloped(resealed(lambda made: made.pop("payload")))
    ),
    Mutant("an envelope without signatures", "envelope", _set(signatures=[])),
    Mutant("an envelope that is a list", "envelope", enveloped(lambda data: b"[" + data + b"]")),
    Mutant(
        "an envelope with its signature twice",
        "envelope",
        enveloped(resealed(lambda made: made.update(signatures=made["signatures"] * 2))),
    ),
    Mutant("a signature with a certificate", "envelope", _in_signature(cert="")),
    Mutant("a signature too short", "envelope", _in_signature(sig="AAAA")),
    Mutant("a payload in base64 for addresses", "envelope", _set(payload="-_-_")),
    Mutant(
        "a payload with a newline behind",
        "envelope",
        enveloped(resealed(lambda made: made.update(payload=made["payload"] + "\n"))),
    ),
    Mutant("spare bits in a signature", "envelope", enveloped(resealed(_spare_bits))),
    Mutant("a key id with a newline behind", "envelope", _in_signature(keyid=sound.KEY.keyid + "\n")),
    Mutant("another type, signed", "payload_type", _other_type),
    Mutant("signed with another key", "signature", _other_key),
    Mutant(
        "another key's signature under this key's name",
        "signature",
        enveloped(resealed(_other_keys_signature)),
    ),
    Mutant("a bit of the signature turned", "signature", enveloped(resealed(_turned))),
    Mutant("another receipt's payload", "signature", afterwards=_swapped),
    Mutant("another type, not signed", "signature", _set(payloadType="application/json")),
    Mutant("a key id of nobody", "signature", _in_signature(keyid="0" * 64)),
]
