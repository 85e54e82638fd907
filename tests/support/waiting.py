"""Waiting for what must come to be, however slow the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def on_this_machine(seconds: float) -> float:
    """What takes so many seconds on a machine of its own: up to twice that, where programs share
    the processors.
    """
    return seconds * min(2.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Look again and again until it is true.

    The bound is there only so that a test ends that would hang.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it never came to be, in {seconds:g} s"
        time.sleep(0.005)
