"""The other side of `remote`, in the VM: remote_loop ORDERS.  Does the steps that the file says, as they come."""

import faulthandler
import json
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from ofl.errors import TransportError
from two_vms import steps

LOOK_S_INTERVAL = 0.02
STEP_S_MAX = 400.0
"""Longer than the limit of any wait: a step that takes it hangs, and the process ends with where."""


def orders(path: str) -> Iterator[dict[str, Any]]:
    """One after the other, for ever; ends with the process."""
    with open(path, "rb") as file:
        line = b""
        while True:
            line += file.readline()
            if line.endswith(b"\n"):
                yield json.loads(line)
                line = b""
            else:
                time.sleep(LOOK_S_INTERVAL)


def done(order: dict[str, Any]) -> dict[str, Any]:
    """How the step ended."""
    step = getattr(steps, order["step"])
    try:
        return {"ok": True, "value": step(*order["args"], **order["kwargs"])}
    except TransportError as error:
        return {"ok": False, "kind": type(error).__name__, "text": str(error)}
    except Exception:
        return {"ok": False, "kind": "", "text": traceback.format_exc()}


def main(path: str) -> None:
    for order in orders(path):
        faulthandler.dump_traceback_later(STEP_S_MAX, exit=True)
        answer = done(order)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
