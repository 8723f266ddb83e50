"""The operator's ed25519 key: two PEM files, made by `keygen`."""

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from ofl.files import NotRegularFileError, open_plain, read_bounded
from securesystemslib.signer import (  # type: ignore[attr-defined]  # its public names, without an __all__
    CryptoSigner as CryptoSigner,
)
from securesystemslib.signer import Signature as Signature  # type: ignore[attr-defined]
from securesystemslib.signer import SSlibKey as SSlibKey  # type: ignore[attr-defined]

PRIVATE_FILE = "qualify.key.pem"
PUBLIC_FILE = "qualify.pub.pem"
_BYTES_MAX = 16 * 1024


class KeyFileError(Exception):
    """A key file that cannot be used; the sentence names file and reason."""


def keygen(folder: Path) -> tuple[Path, Path]:
    """Make a key pair: private (mode 0600), public.  Raises KeyFileError where one is there already."""
    private, public = folder / PRIVATE_FILE, folder / PUBLIC_FILE
    key = Ed25519PrivateKey.generate()
    folder.mkdir(parents=True, exist_ok=True)
    _write_new(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write_new(public, public_pem(key), 0o644)
    return private, public


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """The file of its public key."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load_signer(path: Path) -> CryptoSigner:
    """The signer of a private key file.  Raises KeyFileError: others may read it, it is no key, or none of ed25519."""
    data, mode = _read(path)
    if mode & 0o077:
        raise KeyFileError(
            f"{path}: mode is {mode:04o}; a private key must be 0600, so that nobody else can read it."
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: no private key in PEM without a password: {error}.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: the key is not of ed25519.")
    return CryptoSigner(key)


def load_public(path: Path) -> SSlibKey:
    """The key of a public key file.  Raises KeyFileError."""
    data, _ = _read(path)
    try:
        key = load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: no public key in PEM: {error}.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: the key is not of ed25519.")
    return SSlibKey.from_crypto(key)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} is there already; a key is never overwritten.") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}.") from None
    with open(file, "wb") as out:
        os.fchmod(file, mode)
        out.write(data)
        out.flush()
        os.fsync(file)


def _read(path: Path) -> tuple[bytes, int]:
    try:
        with open_plain(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return read_bounded(file, _BYTES_MAX), mode
    except NotRegularFileError:
        raise KeyFileError(f"{path} is no regular file.") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}.") from None
