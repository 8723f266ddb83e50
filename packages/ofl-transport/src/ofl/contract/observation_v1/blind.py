"""Blind tags: equality without content.

A tag is HMAC-SHA-256 under the run's key over a domain word and the bytes, cut to 16 bytes.  Whoever lacks the key
cannot try tokens against it; the key is drawn for a run, handed on in the environment and never stored.
"""

import hmac
import struct
from collections.abc import Iterable, Mapping

from ofl.contract.observation_v1.records import BlindTag

KEY_BYTES = 32
TAG_BYTES = 16
DOMAINS = ("anchor", "drafts", "rows", "confidences", "text", "table_ids", "table_rows")
"""What a tag is of; tags of two domains never compare equal."""


class Blind:
    """Tags under one key of KEY_BYTES bytes.  Raises ValueError on another length."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a blinding key has {KEY_BYTES} bytes, not {len(key)}")
        # Each domain's state is made once: the key's two blocks and the word are hashed already.
        self._begun: Mapping[str, hmac.HMAC] = {
            domain: hmac.new(key, domain.encode() + b"\0", "sha256") for domain in DOMAINS
        }

    def tag(self, domain: str, data: bytes | bytearray | memoryview) -> BlindTag:
        """The tag of some bytes."""
        begun = self._begun[domain].copy()
        begun.update(data)
        return begun.digest()[:TAG_BYTES].hex()

    def tokens(self, domain: str, tokens: Iterable[int]) -> BlindTag:
        """The tag of token ids, int64 each, little-endian: the same whatever held them."""
        values = tuple(tokens)
        return self.tag(domain, struct.pack(f"<{len(values)}q", *values))

    def text(self, tokens: Iterable[int]) -> BlindTag:
        """The tag of all tokens that a request generated: `Completed.text`."""
        return self.tokens("text", tokens)


def parse_key(text: str) -> bytes:
    """A key from its hex digits.  Raises ValueError, which never repeats them."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES or len(text) != 2 * KEY_BYTES:
        raise ValueError(f"{2 * KEY_BYTES} hex digits are needed")
    return key
