"""A worker whose drafter knows the texts: every draft is right, except where it errs on purpose.

python oracle_worker.py CONFIG.json

It is the project's own service with another drafter in it and a transport that misbehaves on order.  CONFIG:
endpoint, ready_file, log (one JSON line per block drafted), shape (facts), texts (token ids, prompt and
continuation), and `identity`, `markov_identity` as hex.

Orders (stdin), a JSON line each:  {"fault": one of `wire_faults.FAULTS`}
Answers (stdout):  {"done": {what was done to replies since the last order: how often}}, once the fault holds.
"""

import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ofl.contract.dspark_v1 import SERVICE, VERSION, RowDtype, RowForm
from ofl.contract.identity import UNSTATED
from ofl.server import Server
from wire_faults import FaultyServer
from x86_worker import log
from x86_worker.drafters.base import Context, Draft, DrafterFacts, DraftFailure, DraftWish
from x86_worker.serve import ReadyRecord, Stop, run, stop_on_signals, write_ready_file
from x86_worker.session import DrafterService, Limits


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
        self.fails_every_second = False
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
        return [
            DraftFailure("every second request fails")
            if self.fails_every_second and index % 2
            else self._block(wish)
            for index, wish in enumerate(wishes)
        ]

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


def follow_orders(server: FaultyServer, drafter: OracleDrafter) -> None:
    """Until stdin ends: one fault after the other."""
    for line in sys.stdin:
        fault = json.loads(line)["fault"]
        drafter.fails_every_second = fault == "half"
        print(json.dumps({"done": server.order(fault)}), flush=True)


def main(path: Path) -> None:
    """Serve until SIGTERM."""
    config = json.loads(path.read_text(encoding="utf-8"))
    log.configure("info")
    drafter, limits, stop = OracleDrafter(config), Limits(), Stop()
    facts, boot_nonce = drafter.facts, secrets.randbits(64)
    real = Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=limits.max_frame_bytes)
    with stop_on_signals(stop), real:
        server = FaultyServer(real)
        stop.wake = server.wake
        service = DrafterService(
            drafter, worker_name="oracle", boot_nonce=boot_nonce, now_ns=time.monotonic_ns(), limits=limits
        )
        record = ReadyRecord(
            pid=os.getpid(),
            endpoints=[server.listen(config["endpoint"])],
            boot_nonce=f"{boot_nonce:016x}",
            identity=facts.identity.hex(),
            markov_identity=facts.markov_identity.hex(),
            target_binding=facts.target_binding.hex(),
            kind="oracle",
        )
        threading.Thread(target=follow_orders, args=(server, drafter), daemon=True).start()
        write_ready_file(Path(config["ready_file"]), record)
        run(server, service, stop)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
