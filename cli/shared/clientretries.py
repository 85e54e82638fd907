"""Print the retries of client libraries, and end the process despite threads that wait in one."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator


class _Lines(logging.Handler):
    """A log handler that prints the library's messages.

    Without them, a program that waits for a store would seem to hang.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        bars = sys.modules.get("tqdm")
        with bars.tqdm.external_write_mode(file=sys.stderr) if bars is not None else contextlib.nullcontext():
            self._say(record.getMessage())


@contextlib.contextmanager
def messages_shown(name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Pass the lines of a logger to ``say`` for as long as the context lasts."""
    handler, logger = _Lines(say), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def leave_waiting_threads(code: int) -> None:
    """End the process now if a thread may still wait in a library.

    Such a thread cannot be interrupted, and Python would wait for it.
    """
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    # Those of asyncio look up host names. They are daemons, and joined all the same.
    if any(not each.daemon or each.name.startswith("asyncio_") for each in others):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if temporary := sys.modules.get("tarkit.store.temporary"):
            temporary.remove_held()
        os._exit(code)
