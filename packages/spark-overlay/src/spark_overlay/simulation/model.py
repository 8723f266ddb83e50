"""What a simulation needs of a target and its drafter: both exact, so that right and wrong are facts.

The caller brings the model together with the worker that drafts by it.
"""

from collections.abc import Sequence
from typing import Protocol

from ofl.contract.records import Buffer


class Block(Protocol):
    """Drafts of one request, n_out values each."""

    @property
    def drafts(self) -> tuple[int, ...]: ...

    @property
    def confidences(self) -> tuple[float, ...]: ...

    @property
    def margins(self) -> tuple[float, ...]: ...


class Model(Protocol):
    """A target whose state after a token is a function of the state before it, and the drafter over its rows.

    window: context rows that the drafter attends to, 0 for all.
    """

    @property
    def vocabulary(self) -> int: ...

    @property
    def block_length(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...

    def begin(self) -> bytes:
        """The state before position 0."""

    def advance(self, state: bytes, token: int) -> bytes:
        """The state after one more token."""

    def choose(self, state: bytes) -> int:
        """The target's next token."""

    def row(self, state: bytes, computation: int) -> bytes:
        """The row of a position; computation: the engine step that made it, from 1 on."""

    def digest(self, position: int, row: Buffer) -> bytes:
        """What a block depends on of one row."""

    def block(
        self, digests: Sequence[bytes], last_row: Buffer, anchor: int, anchor_position: int, n_out: int
    ) -> Block:
        """The one right block from rows up to anchor_position - 1, given by their digests and the last one."""
