"""A worker whose drafter knows the texts: every draft is right, except where it errs on purpose.

python oracle_worker.py CONFIG.json

It is the project's own service with another drafter in it.  CONFIG: endpoint, ready_file, log (one JSON
line per block drafted), shape (facts), texts (token ids, prompt and continuation), and `identity`,
`markov_identity` as hex.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ofl.contract.dspark_v1 import RowDtype, RowForm
from ofl.contract.identity import UNSTATED
from x86_worker.drafters.base import Context, Draft, DrafterFacts, DraftFailure, DraftWish
from x86_worker.life import ServiceOptions, serve_drafter
from x86_worker.session import Limits


def wrong_from(anchor_position: int, block_length: int) -> int:
    """Index of the first wrong draft of a block: scattered by anchor position, from none right to all right."""
    return (anchor_position * 2654435761 >> 7) % (block_length + 1)


class Rows:
    """A context that keeps nothing but its ends."""

    def __init__(self) -> None:
        self.start = self.end = 0

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """See `base.Context`."""
        if self.start == self.end:
            self.start = first_position
        self.end = first_position + n_rows

    def drop_before(self, position: int) -> None:
        """See `base.Context`."""
        self.start = position

    def clear(self) -> None:
        """See `base.Context`."""
        self.start = self.end = 0


class OracleDrafter:
    """Implements `base.Drafter` over known texts."""

    def __init__(self, config: dict[str, Any]) -> None:
        shape = config["shape"]
        self._length, self._vocabulary = shape["block_length"], shape["vocabulary"]
        self._texts: list[list[int]] = config["texts"]
        self._log = open(config["log"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # for the process's life
        self._facts = DrafterFacts(
            identity=bytes.fromhex(config["identity"]),
            markov_identity=bytes.fromhex(config["markov_identity"]),
            target_binding=UNSTATED,
            vocabulary=self._vocabulary,
            row_elements={RowForm.RAW: shape["row_elements"]},
            row_dtypes=frozenset({RowDtype.FLOAT32}),
            window=shape["window"],
            max_positions=shape["max_positions"],
            block_length=self._length,
            tap_count=shape["tap_count"],
            context_row_bytes=8,
            has_confidence=False,
            fake=False,
        )

    @property
    def facts(self) -> DrafterFacts:
        """What HELLO is compared with."""
        return self._facts

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        """An empty context."""
        return Rows()

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """The texts' own continuations, each with its first error where `wrong_from` says."""
        return [self._block(wish) for wish in wishes]

    def describe(self) -> dict[str, object]:
        """What STATS shows."""
        return {"kind": "oracle"}

    def _block(self, wish: DraftWish) -> Draft:
        position = wish.anchor_position
        follows = {
            tuple(text[position + 1 : position + 1 + self._length])
            for text in self._texts
            if position < len(text) and text[position] == wish.anchor
        }
        # Where two texts share place and token, the oracle does not know which it is and drafts neither.
        block = list(follows.pop()) if len(follows) == 1 else []
        block += [0] * (self._length - len(block))
        wrong = wrong_from(position, self._length)
        if wrong < self._length:
            block[wrong] = (block[wrong] + 1) % self._vocabulary
        record = {
            "position": position,
            "anchor": wish.anchor,
            "start": wish.window_start,
            "drafts": block[: wish.n_out],
        }
        self._log.write(json.dumps(record) + "\n")
        count = wish.n_out
        return Draft(tuple(block[:count]), (1.0,) * count, (1.0,) * count)


def main(path: Path) -> None:
    """Serve until SIGTERM."""
    config = json.loads(path.read_text(encoding="utf-8"))
    options = ServiceOptions(
        endpoints=[config["endpoint"]],
        name="oracle",
        limits=Limits(),
        ready_file=Path(config["ready_file"]),
        log_level="info",
    )
    serve_drafter(options, lambda: OracleDrafter(config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
