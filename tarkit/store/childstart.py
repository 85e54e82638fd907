"""Signals are held while a child process is started, until this program knows it."""

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
    """Within it a child process is started and assigned.

    A signal that ends this program has its effect at the end.

    A signal whose handler raises in between would leave a process that this program does not know:
    it would go on, and take the end of its input for the true one.
    """
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread alone.
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
