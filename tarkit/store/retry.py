"""The policy for retries over a network: when to retry, how long to wait, when to fail.

One operation (reading an object, publishing one, asking for one) has one :class:`Patience`. The
retries of the libraries below are switched off where possible, and no code above retries an
operation that failed here (GivenUpError).

Waits grow exponentially with full jitter (M. Brooker, "Exponential Backoff And Jitter": a wait is
drawn evenly from 0 to its limit), so that a thousand readers that lost the same server do not retry
in step. A wait is never shorter than the server's Retry-After.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tarkit.errors import GivenUpError, TarkitError, TemporaryStreamError, UsageError, printable
from tarkit.names.redaction import redact
from tarkit.store import waits

T = TypeVar("T")
_SLICE = 0.1
_SILENT_SECONDS = 2.0
# To see retries, add a handler, as the programs do.
_log = logging.getLogger("tarkit.retry")
_log.addHandler(logging.NullHandler())
# Processes that were forked from one parent must not draw the same waits.
_JITTER = random.SystemRandom().random


@dataclass(frozen=True)
class Retry:
    """The limits and waits for retries of operations over a network.

    Attributes:
        attempts: number of failures without one byte of progress between them after which an
            operation fails.
        deadline: seconds since the first of these attempts began, waits included.
        base: the n-th wait is at most base * 2**(n-1) seconds.
        cap: largest wait in seconds.
        timeout: seconds for one answer of the system: a connection, a piece of data.
        sleep: function that waits for a number of seconds.
        clock: function that returns seconds of a clock that only goes forward.
        now: function that returns seconds since 1970.
        random: function that returns numbers in [0, 1).

    Raises:
        UsageError: a number is out of range.
    """

    attempts: int = 8
    deadline: float = 300.0
    base: float = 0.5
    cap: float = 30.0
    timeout: float = 60.0
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = _JITTER

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"attempts of a retry is {self.attempts}; it must be at least 1")
        for name in ("deadline", "base", "cap", "timeout"):
            value = getattr(self, name)
            if not value >= 0 or (name == "timeout" and not value):
                raise UsageError(f"{name} of a retry is {value!r}; it must be a positive number of seconds")

    def wait_before(self, failures: int) -> float:
        """Draw the seconds to wait after the given number of failures, 1 or more."""
        # The exponent is limited, because 2.0 ** 1100 is an error.
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


DEFAULT_RETRY = Retry()


class Dropped(Exception):
    """Error of an attempt after which the next one may succeed; it never leaves the package.

    Args:
        reason: a phrase without secrets.
        retry_after: seconds that the server asked to wait.
        answered: False if no server answered, as far as is known.
    """

    def __init__(self, reason: str, retry_after: float | None = None, *, answered: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.answered = answered


class Patience:
    """A count of failures since the last progress of one operation: waits, or fails at last."""

    def __init__(self, retry: Retry, name: str) -> None:
        self._retry = retry
        self._name = name
        self._since = 0.0
        self._answered = False
        self.failures = 0

    def progress(self) -> None:
        """Reset the count of failures."""
        self.failures = 0
        self._answered = False

    def left(self) -> float:
        """Return the seconds that the next attempt may take."""
        passed = self._retry.clock() - self._since if self.failures else 0.0
        return max(1.0, self._retry.deadline - passed)

    def run(self, attempt: Callable[[float], T]) -> T:
        """Call ``attempt`` until it succeeds, and return its result.

        Args:
            attempt: function of the seconds that it may take. Exceptions other than Dropped and
                Late are raised.

        Raises:
            GivenUpError: all attempts failed.
        """
        while True:
            began = self._retry.clock()
            try:
                return attempt(self.left())
            except Dropped as problem:
                drop = problem
                # An attempt of many requests or bytes that failed late does not use up the deadline
                # by itself.
                began = max(began, self._retry.clock() - self._retry.deadline / 2)
            except waits.Late as late:
                drop = Dropped(f"no answer within {late.seconds:.0f} s", answered=False)
            self.failed(drop, None, began)

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = 0.0) -> T:
        """Call a function that waits for a network until it succeeds; see :meth:`run`.

        Args:
            seconds: time that an attempt may take even if less is left: for many requests, or many
                bytes.

        Raises:
            GivenUpError: all attempts failed.
        """
        return self.run(lambda left: waits.call(function, *arguments, seconds=max(left, seconds)))

    def failed(
        self, drop: Dropped, offset: int | None, began: float | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until the next attempt is due; return at once if ``stopped`` becomes true.

        Args:
            offset: offset in the object, for the error.
            began: time of the clock at which the failed attempt began.
            stopped: function that returns True if the stream was closed.

        Raises:
            GivenUpError: there were too many failures; with the last reason and the number of
                attempts.
        """
        retry = self._retry
        now = retry.clock()
        if not self.failures:
            self._since = now if began is None else began
        self.failures += 1
        self._answered |= drop.answered
        wait = retry.wait_before(self.failures)
        asked = ""
        if drop.retry_after is not None and drop.retry_after > wait:
            wait = drop.retry_after
            asked = f", asking to wait {wait:.0f} s"
        passed = now - self._since
        if self.failures >= retry.attempts or passed + wait > retry.deadline:
            tries = "1 attempt" if self.failures == 1 else f"{self.failures} attempts in a row"
            reason = f"{drop.reason}{asked}; failed after {tries} within {passed:.0f} s"
            error = GivenUpError(reason, url=self._name, offset=offset)
            error.answered = self._answered
            raise error from None
        if passed + wait >= _SILENT_SECONDS:
            attempt = f"attempt {self.failures + 1} of {retry.attempts}"
            text = f"{drop.reason}{asked}; trying again in {wait:.1f} s ({attempt})"
            _log.warning("%s: %s", printable(redact(self._name)), text)
        self._pause(wait, stopped)

    def _pause(self, seconds: float, stopped: Callable[[], bool]) -> None:
        # In slices, so that closing a stream need not wait for the end of a long wait.
        while seconds > 0 and not stopped():
            waits.raise_if_stopped()
            self._retry.sleep(min(seconds, _SLICE))
            seconds -= _SLICE


class GoneStores:
    """Stores that did not answer any attempt of an operation; a run sends them no more requests."""

    def __init__(self) -> None:
        self._gone: set[str] = set()

    @contextmanager
    def asking(self, *urls: str) -> Iterator[None]:
        """Run an operation on some URLs in the block, and record its failure.

        Raises:
            TemporaryStreamError: one of the URLs is in a store that did not answer.
        """
        self.refuse(*urls)
        try:
            yield
        except TarkitError as problem:
            self.note(problem)
            raise

    def note(self, error: BaseException) -> None:
        """Record that an operation of the run failed."""
        if isinstance(error, GivenUpError) and not error.answered and error.url is not None:
            self._gone.add(_store_of(error.url))

    def refuse(self, *urls: str) -> None:
        """Check that no URL is in a store that did not answer.

        Raises:
            TemporaryStreamError: one of the URLs is in such a store.
        """
        for url in urls:
            if self._gone and _store_of(url) in self._gone:
                raise TemporaryStreamError("not tried, because its store did not answer before", url=redact(url))


def _store_of(url: str) -> str:
    scheme, colon, rest = redact(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if colon else url
