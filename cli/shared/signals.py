"""End a program cleanly on a signal, wherever it arrives."""

from __future__ import annotations

import signal
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from tarkit.store.childstart import ENDING

_LOOK_SECONDS = 0.1
_TICK_SECONDS = 0.5


class Terminated(BaseException):
    """SIGTERM or SIGHUP was received.

    It is not an Exception, so that only clean-up code runs on its way.
    """


class Interrupted(KeyboardInterrupt):
    """SIGINT was received.

    It has a class of its own, because weak references to KeyboardInterrupt are not possible.
    """


class EndingSignals:
    """A block in which the first signal that ends a process is raised; further ones are ignored.

    The exception may be dropped: Python does so in callbacks and ``__del__``, and so do libraries
    with an ``except:`` that passes or raises another error, most of all while they are imported.
    All other signals are ignored by then, so that only SIGKILL would end the program. So the
    exception is watched, and raised again if it was dropped.

    A signal that arrives right before the main thread begins to wait for another thread does not
    end that wait: Python would run the handler only after it. So a timer interrupts such waits
    twice a second.
    """

    def __init__(self) -> None:
        self.came: type[BaseException] | None = None
        """Class of the exception that was raised; None before a signal."""
        self._raised: weakref.ref[BaseException] | None = None
        self._previous: dict[int, Any] = {}
        self._hook: Callable[[Any], object] = sys.unraisablehook

    def __enter__(self) -> EndingSignals:
        for number in ENDING:
            # nohup, and shells that start something in the background, have them ignored: so it
            # stays.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._end)
        self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _TICK_SECONDS, _TICK_SECONDS)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.arrived()
        sys.unraisablehook = self._hook
        for number, handler in self._previous.items():
            if signal.getsignal(number) in (self._end, self._look):
                signal.signal(number, handler)

    def arrived(self) -> None:
        """Note that the exception of a signal was caught by its handler; it is not raised again."""
        if self.came is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._raised = None

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        # Cleaning up is under way from here on: do not let a second signal interrupt it.
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        self.came = Interrupted if number == signal.SIGINT else Terminated
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        self._raise(self.came)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self.came is not None and self._raised is not None and self._raised() is None:
            self._raise(self.came)

    def _dropped(self, args: Any) -> None:
        """Suppress the report on a dropped exception that will be raised again."""
        if not issubclass(args.exc_type, (Terminated, Interrupted)):
            self._hook(args)

    def _raise(self, kind: type[BaseException]) -> NoReturn:
        error = kind()
        self._raised = weakref.ref(error)
        try:
            raise error
        finally:
            # Otherwise it would hold itself, through its traceback and this frame.
            del error
