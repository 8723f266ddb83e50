"""Key files: made once, private, of ed25519, and refused otherwise by a sentence that names the file."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from qualification.receipts.envelope import open_envelope, seal
from qualification.receipts.errors import ReceiptError
from qualification.receipts.keys import KeyFileError, keygen, load_public, load_signer


def test_a_pair_signs_and_verifies_and_the_private_half_is_for_its_owner_alone(tmp_path: Path) -> None:
    private, public = keygen(tmp_path / "keys")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert open_envelope(seal(b"{}", load_signer(private)), load_public(public)) == b"{}"


def test_a_pair_does_not_verify_another_one(tmp_path: Path) -> None:
    private, _ = keygen(tmp_path / "one")
    _, public = keygen(tmp_path / "other")
    with pytest.raises(ReceiptError) as refused:
        open_envelope(seal(b"{}", load_signer(private)), load_public(public))
    assert refused.value.rules == {"signature"}


def test_a_private_key_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private, _ = keygen(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


@pytest.mark.parametrize("which", [0, 1])
def test_a_key_is_never_overwritten(tmp_path: Path, which: int) -> None:
    pair = keygen(tmp_path)
    pair[1 - which].unlink()
    kept = pair[which].read_bytes()
    with pytest.raises(KeyFileError, match=r"is there already"):
        keygen(tmp_path)
    assert pair[which].read_bytes() == kept


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o601])
def test_a_private_key_that_others_may_reach_is_refused(tmp_path: Path, mode: int) -> None:
    private, _ = keygen(tmp_path)
    private.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"mode is {mode:04o}; a private key must be 0600"):
        load_signer(private)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    encryption = BestAvailableEncryption(b"secret")
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    )
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="without a password"):
        load_signer(path)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = generate_private_key(SECP256R1())
    private, public = tmp_path / "key.pem", tmp_path / "pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(KeyFileError, match="not of ed25519"):
        load_signer(private)
    with pytest.raises(KeyFileError, match="not of ed25519"):
        load_public(public)


@pytest.mark.parametrize(
    "data", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
def test_what_is_no_key_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=str(path)):
        load_signer(path)
    with pytest.raises(KeyFileError, match=str(path)):
        load_public(path)


def test_a_key_that_is_no_file_or_not_there_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        for load in (load_public, load_signer):
            with pytest.raises(KeyFileError, match=f"^{path} is no regular file"):
                load(path)
    with pytest.raises(KeyFileError, match="cannot be read"):
        load_public(tmp_path / "none")


def test_the_private_key_does_not_verify_in_place_of_the_public_one(tmp_path: Path) -> None:
    private, _ = keygen(tmp_path)
    with pytest.raises(KeyFileError, match="no public key"):
        load_public(private)
