"""Release the objects that the traceback of a program's last error keeps alive."""

from __future__ import annotations

import atexit
import sys


def release_at_exit() -> None:
    """Release the traceback of the last error while Python's threads still run.

    TensorFlow's iterator waits for its thread when it is freed, and that thread may be in a Python
    generator. An error of the iterator keeps it alive in ``sys.last_traceback`` until Python has
    ended its threads: the program would wait forever, with its message already printed.
    """
    atexit.register(_release)


def _release() -> None:
    for name in ("last_exc", "last_value", "last_traceback"):  # the first one since Python 3.12
        setattr(sys, name, None)
