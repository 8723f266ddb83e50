"""Whether the kernel's clock is kept in step with others, as adjtimex(2) says.  Reads only."""

import ctypes
from dataclasses import dataclass

_STA_UNSYNC = 0x40
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    """The first fields of struct timex, and room for the rest (208 bytes on 64-bit Linux)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_ubyte * 512),
    )


@dataclass(frozen=True)
class Clock:
    """synchronised: something keeps it in step.  error_us: how far it may be off, microseconds."""

    synchronised: bool
    error_us: int


def read_clock() -> Clock:
    """Ask the kernel; modes 0 changes nothing and needs no privilege.  Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    record = _Timex()
    state = libc.adjtimex(ctypes.byref(record))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex failed")
    synchronised = state != _TIME_ERROR and not record.status & _STA_UNSYNC
    return Clock(synchronised, int(record.maxerror))
