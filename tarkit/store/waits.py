"""Wait for a result, with a timeout, and until the work is stopped.

A signal interrupts only the main thread, and only while it waits for a lock or a socket: not in a
look-up of a host name, and not in a library of another language. So a call that may wait for a
network is run by an assistant thread, and the caller waits for its result here. If the wait ends
early, the assistant is left behind with its call.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")
_LOOK_SECONDS = 0.1
_CLEANUP_SECONDS = 5.0
_LAST_CLEANUP_SECONDS = 1.5
_FOREVER = 1e6


class Stopped(BaseException):
    """The work of this thread was stopped by another thread.

    It is not an Exception, so that only clean-up code runs on its way.
    """


class Late(Exception):
    """There was no result within the timeout. Never leaves the package.

    Args:
        seconds: the timeout.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Stop(threading.Event):
    """An event that stops the work of threads.

    Attributes:
        at: time of the monotonic clock at which it was set.
    """

    at = 0.0

    def set(self) -> None:
        self.at = self.at or time.monotonic()
        super().set()


class _Here(threading.local):
    """The state of the current thread.

    Attributes:
        stop: event that stops its work.
        assistant: thread that runs its calls.
        left_behind: True if the thread may be left behind, so that it needs no assistant.
    """

    stop: Stop | None = None
    assistant: _Assistant | None = None
    left_behind = False


_here = _Here()


def raise_if_stopped() -> None:
    """Raise Stopped if the work of this thread was stopped.

    Raises:
        Stopped: the work was stopped.
    """
    if _here.stop is not None and _here.stop.is_set():
        raise Stopped


def result_of(future: concurrent.futures.Future[T], seconds: float = _FOREVER) -> T:
    """Return the result of a future, which is cancelled if the wait ends without one.

    Raises:
        Late: there was no result in time.
        Stopped: the work of this thread was stopped.
    """
    try:
        first_of((future,), time.monotonic() + seconds)
        if not future.done():
            raise Late(seconds)
        return future.result()
    finally:
        future.cancel()


def first_of(futures: Sequence[concurrent.futures.Future[Any]], until: float) -> None:
    """Wait until one of the futures is done, or until ``until`` of the monotonic clock.

    Raises:
        Stopped: the work of this thread was stopped.
    """
    while (left := until - time.monotonic()) > 0:
        raise_if_stopped()
        slice_ = left if _here.stop is None else min(left, _LOOK_SECONDS)
        if concurrent.futures.wait(futures, slice_, concurrent.futures.FIRST_COMPLETED).done:
            return


def call(function: Callable[..., T], *arguments: Any, seconds: float = _FOREVER) -> T:
    """Call a function that may wait for a network, and return its result.

    If an error ends the wait, or a signal, the call is left behind and its result is lost.

    Raises:
        Late: the function did not return in time.
        Stopped: the work of this thread was stopped.
    """
    if _here.left_behind:
        return function(*arguments)
    if _here.assistant is None or _here.assistant.owner != os.getpid():
        _here.assistant = _Assistant()
    future = _here.assistant.start(function, arguments)
    try:
        return result_of(future, seconds)
    finally:
        if not future.done():
            _here.assistant = None


def wait_for(condition: threading.Condition) -> None:
    """Wait for a notification of a condition that is held, or a short time.

    Raises:
        Stopped: the work of this thread was stopped.
    """
    raise_if_stopped()
    condition.wait(None if _here.stop is None else _LOOK_SECONDS)


def may_be_left_behind() -> None:
    """Mark this thread as one that may be left behind.

    It is a daemon that other threads do not wait for, so its calls need no assistant.
    """
    _here.left_behind = True


class _Assistant:
    """A thread that runs functions in turn. It ends when this object is garbage-collected."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_run_jobs, args=(self._jobs,), name="tarkit-wait", daemon=True).start()

    def start(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        # Set to running, so that it is done only when the function has returned.
        future.set_running_or_notify_cancel()
        self._jobs.put((future, function, arguments))
        return future

    def __del__(self) -> None:
        # A signal may have ended __init__ before there was a queue.
        if (jobs := self.__dict__.get("_jobs")) is not None:
            jobs.put(None)


def _run_jobs(jobs: queue.SimpleQueue[Any]) -> None:
    may_be_left_behind()
    while (job := jobs.get()) is not None:
        future, function, arguments = job
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        # No object is kept alive until the next job comes.
        del job, future, function, arguments


class Workers(concurrent.futures.ThreadPoolExecutor):
    """Threads whose waits end when they are stopped.

    They are stopped by :meth:`stop`, or if a with statement ends with an error.
    """

    def __init__(self, count: int, name: str) -> None:
        self._stop = Stop()
        super().__init__(count, thread_name_prefix=name, initializer=stop_by, initargs=(self._stop,))

    def stop(self) -> None:
        """Raise Stopped in all waits for a network, now and in work that begins later."""
        self._stop.set()

    def ahead(self, function: Callable[[S], T], items: Iterable[S], most: int) -> Iterator[T]:
        """Yield the result of a function for each item, in order.

        Args:
            most: number of items that are taken before their turn.
        """
        left, running = iter(items), collections.deque[concurrent.futures.Future[T]]()
        while True:
            for item in itertools.islice(left, most - len(running)):
                running.append(self.submit(function, item))
            if not running:
                return
            yield running.popleft().result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop()
        self.shutdown(cancel_futures=kind is not None)


def stop_by(stop: Stop) -> None:
    """Let an event stop the work of this thread."""
    _here.stop = stop


@contextlib.contextmanager
def cleaning_up() -> Iterator[float]:
    """Run a block of clean-up without stopping it; yield the seconds that it may take.

    The time is short if the program or thread is being ended.
    """
    stop, error = _here.stop, sys.exc_info()[1]
    seconds = _CLEANUP_SECONDS
    if stop is not None and stop.is_set():
        # The limit is for all clean-up together.
        seconds = max(0.0, min(_LAST_CLEANUP_SECONDS, stop.at + 2 * _LAST_CLEANUP_SECONDS - time.monotonic()))
    elif error is not None and not isinstance(error, Exception):
        seconds = _LAST_CLEANUP_SECONDS
    _here.stop = None
    try:
        yield seconds
    finally:
        _here.stop = stop
