"""Delay signals while a child process is started, until this program has its handle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end a program."""


@contextmanager
def signals_after_start() -> Iterator[None]:
    """Delay signals that end this program until the end of the block.

    A child process is started and assigned in the block. A signal whose handler raises an exception
    between the two would leave a process that this program does not know: it would continue, and
    take the end of its input for the true end.
    """
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread only.
        yield
        return
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    handlers = {int(number): handler for number in ENDING if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is note:
                signal.signal(number, handler)
        for number, frame in came:
            handlers[number](number, frame)
