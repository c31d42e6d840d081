"""The clock by which a lease is judged."""

from __future__ import annotations

import time
from typing import Final

# CLOCK_MONOTONIC stands still while a machine sleeps, and the lease does not.
_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", -1))


def now() -> float:
    """Seconds since some moment. On Linux the time in which the machine sleeps counts."""
    return time.monotonic() if _ID < 0 else time.clock_gettime(_ID)
