"""An event loop that ends cleanly when a signal ends the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from tarkit.store.childstart import ENDING

from .signals import Interrupted, Terminated


def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in an event loop.

    A signal that ends a process cancels the coroutine, and is raised after it has ended. An
    exception raised inside of the event loop would end an arbitrary task.
    """
    if came := asyncio.run(_cancelled_by_signal(work)):
        raise Interrupted if came[0] == signal.SIGINT else Terminated


async def _cancelled_by_signal(work: Coroutine[Any, Any, None]) -> list[int]:
    """Run the coroutine until it ends or a signal cancels it; return the signals that arrived."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    came: list[int] = []

    def end(number: int) -> None:
        if not came:
            task.cancel()
        came.append(number)

    handlers = {number: handler for number in ENDING if (handler := signal.getsignal(number)) != signal.SIG_IGN}
    for number in handlers:
        loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
    return came
