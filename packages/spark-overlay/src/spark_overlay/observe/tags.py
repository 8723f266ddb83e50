"""Blind tags of what an engine handles: anchors, drafts, confidences, rows."""

import struct
from collections.abc import Sequence

from ofl.contract.observation_v1 import NO_TAG, Blind
from ofl.contract.observation_v1.records import BlindTag
from ofl.contract.records import Buffer


class Tags:
    """Tags for an engine that verifies `drafts` positions.

    Drafts are cut and padded with zeros to so many before they are tagged, so that a reply's, a broadcast's and those
    that leave `propose` are equal where they hold the same.
    """

    def __init__(self, key: bytes, drafts: int) -> None:
        self._blind, self.n_drafts = Blind(key), drafts

    def anchor(self, token: int) -> BlindTag:
        """Of one token id."""
        return self._blind.tokens("anchor", (token,))

    def drafts(self, tokens: Sequence[int]) -> BlindTag:
        """Of a block; `NO_TAG` where all are zeros."""
        block = [*tokens, *[0] * self.n_drafts][: self.n_drafts]
        return self._blind.tokens("drafts", block) if any(block) else NO_TAG

    def confidences(self, values: Sequence[float]) -> BlindTag:
        """Of a block's; `NO_TAG` where all are zeros."""
        block = [*values, *[0.0] * self.n_drafts][: self.n_drafts]
        data = struct.pack(f"<{self.n_drafts}f", *block)
        return self._blind.tag("confidences", data) if any(block) else NO_TAG

    def rows(self, data: Buffer) -> BlindTag:
        """Of row bytes; `NO_TAG` where there are none."""
        return self._blind.tag("rows", data) if len(data) else NO_TAG
