"""The plan of the overlay's fault seam, as the harness writes it between cases.  Standard library only."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from qualification.arms.protocol import FaultOrder


def write_plan(path: Path, case: str, faults: Sequence[FaultOrder]) -> None:
    """Replace the plan as a whole; without faults it is empty."""
    lines = []
    for fault in faults:
        order = {"case": case, **asdict(fault)}
        if not fault.hold_steps:
            del order["hold_steps"]
        lines.append(json.dumps(order) + "\n")
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text("".join(lines), encoding="utf-8")
    os.replace(temporary, path)
