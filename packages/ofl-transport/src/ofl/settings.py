"""The environment variables of the transport: one table, parsed with one sentence for each fault.

Owns names, defaults and ranges.  What a caller passes in Python always wins over the environment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ofl.errors import SettingError

MS, US = 1_000_000, 1_000


@dataclass(frozen=True)
class Setting:
    """One variable: a whole number of a unit.  default_ns: where it is unset.  Ranges are inclusive."""

    name: str
    unit_ns: int
    default_ns: int
    lowest: int
    highest: int
    meaning: str

    def ns(self, environ: Mapping[str, str] | None = None) -> int:
        """Its value in nanoseconds; unset or empty means the default.  Raises SettingError."""
        text = (os.environ if environ is None else environ).get(self.name, "").strip()
        if not text:
            return self.default_ns
        whole = text.isascii() and text.isdigit() and len(text) <= 9
        if not whole or not self.lowest <= int(text) <= self.highest:
            unit = {MS: "milliseconds", US: "microseconds"}[self.unit_ns]
            wanted = f"a whole number of {unit} from {self.lowest} to {self.highest}"
            raise SettingError(f"{self.name}={text!r} is not {wanted}")
        return int(text) * self.unit_ns


HEARTBEAT = Setting("OFL_HEARTBEAT_MS", MS, 50 * MS, 10, 60_000, "how often something is sent")
LOSS = Setting("OFL_LOSS_MS", MS, 250 * MS, 20, 600_000, "silence after which a peer is lost")
SPIN = Setting("OFL_SPIN_US", US, 50 * US, 0, 1_000_000, "how long a wait looks before it sleeps")
SETTINGS = (HEARTBEAT, LOSS, SPIN)


def liveness_ns(
    heartbeat_ns: int | None = None, loss_ns: int | None = None, environ: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """Heartbeat interval and loss limit: as passed, else from the environment, else the defaults.

    Raises SettingError where the environment, alone or with what was passed, makes a loss limit below two heartbeats.
    """
    heartbeat = HEARTBEAT.ns(environ) if heartbeat_ns is None else heartbeat_ns
    loss = LOSS.ns(environ) if loss_ns is None else loss_ns
    if loss < 2 * heartbeat and (heartbeat_ns is None or loss_ns is None):
        low = HEARTBEAT.name if heartbeat_ns is None else "heartbeat_ns"
        high = LOSS.name if loss_ns is None else "loss_ns"
        sizes = f"{loss / MS:g} ms and {heartbeat / MS:g} ms"
        raise SettingError(f"{high} must be at least twice {low}, but they are {sizes}")
    return heartbeat, loss


def spin_ns(passed_ns: int | None = None, environ: Mapping[str, str] | None = None) -> int:
    """How long a wait looks before it sleeps: as passed, else from the environment.  Raises SettingError."""
    return SPIN.ns(environ) if passed_ns is None else passed_ns
