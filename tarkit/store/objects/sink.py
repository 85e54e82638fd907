"""A sink whose bytes become one object of an object store, all or nothing."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from tarkit.errors import AlreadyPublishedError, GivenUpError, StreamError, TarkitError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.faults import code_of
from tarkit.store.objects.filesystem import raise_dropped
from tarkit.store.retry import Dropped, Patience, Retry

T = TypeVar("T")
_Work = Callable[[], Coroutine[Any, Any, T]]

MOST_PARTS = 10_000
_FIRST_SIZE = 8 << 20
_SAME_SIZE = 800
_LARGEST_SIZE = 1 << 30
_MOST_IN_FLIGHT = 4
_BYTES_IN_FLIGHT = 128 << 20
_REQUEST_SECONDS = _SENDING_SECONDS = 60.0
_SLOWEST = 32 << 10
UNDER_WAY: dict[object, int] = {}
"""Size in bytes of each upload, or part of one, that this process is sending.

All of them share its network connection.
"""


def part_size(number: int) -> int:
    """Return the size of part ``number``, counted from 1, in bytes; only the last one is smaller.

    S3 accepts at most 10,000 parts of at least 5 MiB and at most 5 GiB
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html), and the size of the object
    is not known at the start. So parts begin at 8 MiB and double every 800 parts up to 1 GiB: an
    object of 93 GiB is made of parts up to 64 MiB, and 10,000 parts are a little more than 5 TiB.
    """
    return min(_FIRST_SIZE << min((number - 1) // _SAME_SIZE, 20), _LARGEST_SIZE)


def parts_in_flight(size: int) -> int:
    """Return how many parts of ``size`` bytes may be in flight: 1 to 4, at most 128 MiB."""
    return max(1, min(_MOST_IN_FLIGHT, _BYTES_IN_FLIGHT // size))


def seconds_to_send() -> float:
    """Return the timeout in seconds of one attempt to send data on a slow network.

    It is a minute, and the time that all bytes in flight need at 32 KiB/s.
    """
    return _SENDING_SECONDS + sum(list(UNDER_WAY.values())) / _SLOWEST


# Name of the metadata by which a writer recognizes its own object.
TOKEN = "tarkit-upload"


UPLOAD_LOST = "the store does not know the upload any more: it was aborted there, or is too old; write it again"


@dataclass(frozen=True)
class Found:
    """The object that has the final name.

    Attributes:
        size: size in bytes.
        token: token of the writer that published it, None if it is not known.
        version: the store's mark of this content, None if it has none.
        damaged: True if it is the object of this writer, with a wrong checksum.
    """

    size: int
    token: str | None
    version: str | None = None
    damaged: bool = False


_UNSEEN = Found(-1, None)
"""Result of a look without permission to read: only the answers to the writing are known."""
_LAST_LOOK_SECONDS = 10.0


@dataclass
class _Sending:
    """Bytes in flight: a part of an object, or all of it.

    Attributes:
        number: number of the part, from 1.
        data: the bytes.
        final: True for the last part.
        future: result of the request.
        began: time of the monotonic clock in seconds at which sending began.
        until: time at which it times out, unless other parts have been added since.
    """

    number: int
    data: bytes
    final: bool
    future: concurrent.futures.Future[Any]
    began: float
    until: float


def _wait_for_one(sending: list[_Sending]) -> None:
    """Wait until one of the parts is done; cancel those that time out."""
    waits.first_of([each.future for each in sending], min(each.until for each in sending))
    for each in sending:
        each.until = max(each.until, each.began + seconds_to_send())
        if time.monotonic() > each.until:
            each.future.cancel()


class ObjectStore:
    """One object of a store that is written.

    Its coroutines run in the event loop of the file system. ``put`` uploads the whole object at
    once. Otherwise ``begin`` is called, ``send`` for each part (``final`` marks the last one), and
    ``finish``, after which the object exists. ``abort`` deletes the parts, ``look`` returns the
    object that has the name now, ``remove`` removes it.

    Args:
        fs: file system of the library.
        path: path of the object in it.
        token: token by which the writer recognizes its own object.
        if_absent: True to publish only if the name does not exist.

    Attributes:
        library_has: an attribute of the file system of the supported library.
        in_order: True if a part is sent only when the part before it has arrived.
    """

    library_has: str
    in_order = False

    def __init__(self, fs: Any, path: str, token: str, if_absent: bool) -> None:
        self.fs = fs
        self.path = path
        self.token = token
        self.if_absent = if_absent
        self.bucket, self.key, _ = fs.split_path(path)

    async def put(self, data: bytes) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """Do nothing, for a store whose first part begins an upload."""

    async def send(self, number: int, data: bytes, final: bool) -> None:
        raise NotImplementedError

    async def finish(self) -> None:
        raise NotImplementedError

    async def abort(self) -> None:
        """Do nothing, for a store that deletes the parts of unfinished objects."""

    async def look(self) -> Found | None:
        raise NotImplementedError

    async def remove(self) -> None:
        raise NotImplementedError


class ObjectSink:
    """A sink that collects parts, and sends some of them while the writer continues.

    At most the part that is being filled and those in flight are in memory. An object that fits
    into one part is uploaded at once. Failed requests are retried within one limit, that of
    ``retry``; each part that succeeds resets it.
    """

    def __init__(self, store: ObjectStore, loop: Any, url: str, name: str, if_absent: bool, retry: Retry) -> None:
        self._store = store
        self._loop = loop
        self._url = url
        self._name = name
        self._if_absent = if_absent
        self._retry = retry
        self._patience = Patience(retry, name)
        self._part = bytearray()
        self._number = 1
        self._begun = False
        self._size = 0
        self._sending: list[_Sending] = []
        self._before: Found | None = None
        self._suspect: Found | None = None
        if if_absent and self._run(self._look) not in (None, _UNSEEN):
            self._raise_exists()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._size += len(view)
        while view:
            room = part_size(self._number) - len(self._part)
            if not room:
                self._send(False)
                continue
            self._part += view[:room]
            view = view[room:]

    def commit(self) -> None:
        """Publish the object, and check that it exists with the right size."""
        if self._begun:
            self._send(True)
            self._settle(0)
        try:
            if not self._if_absent:
                self._before = self._run(self._look)
            try:
                if self._begun:
                    self._patience.run(lambda left: self._once(self._store.finish, left))
                else:
                    self._sending.append(self._on_its_way(1, bytes(self._part), True))
                    self._settle(0)
            except StreamError as error:
                self._look_at_last(error)
            self._patience.progress()
            self._patience.run(self._verify)
        finally:
            self._store.fs.invalidate_cache(self._store.path)

    def discard(self) -> None:
        """Cancel the parts in flight, and abort the upload if the store answers in a short time."""
        import asyncio

        self._part = bytearray()
        for part in self._sending:
            part.future.cancel()
        self._sending.clear()
        if not self._begun:
            return
        self._begun = False
        if asyncio._get_running_loop() is self._loop:
            # The loop's own thread runs this when it garbage-collects a forgotten stream; it cannot
            # wait for itself.
            self._start(self._store.abort)
        else:
            self._abort()

    def _abort(self) -> None:
        # An upload that cannot be aborted is not published either.
        with waits.cleaning_up() as seconds, suppress(Exception):
            brief = Patience(replace(self._retry, attempts=4, deadline=seconds, base=0.2), self._name)
            brief.run(lambda left: self._once(self._store.abort, min(left, seconds)))

    # Parts

    def _send(self, final: bool) -> None:
        if not self._begun:
            # Set before the request: if its answer is lost, the upload may have begun.
            self._begun = True
            self._run(self._store.begin)
        if self._number > MOST_PARTS:
            limit = sum(part_size(number) for number in range(1, MOST_PARTS + 1))
            raise StreamError(f"an object can have at most {limit} bytes", url=self._name)
        data, self._part = bytes(self._part), bytearray()
        self._settle(0 if self._store.in_order else parts_in_flight(len(data)) - 1)
        number, self._number = self._number, self._number + 1
        self._sending.append(self._on_its_way(number, data, final))

    def _on_its_way(self, number: int, data: bytes, final: bool) -> _Sending:
        future = self._start(lambda: self._store.send(number, data, final) if self._begun else self._store.put(data))
        UNDER_WAY[future] = len(data)
        future.add_done_callback(UNDER_WAY.pop)
        began = time.monotonic()
        return _Sending(number, data, final, future, began, began + seconds_to_send())

    def _settle(self, most: int) -> None:
        """Wait until at most ``most`` parts are in flight.

        A failed part is sent again when no other part is in flight.
        """
        while True:
            failed: list[_Sending] = []
            in_flight: list[_Sending] = []
            problem: Dropped | None = None
            for part in self._sending:
                if not part.future.done():
                    in_flight.append(part)
                    continue
                try:
                    self._result(part.future, 0.0)
                    self._patience.progress()
                except Dropped as drop:
                    failed.append(part)
                    problem = drop
            self._sending = in_flight + failed
            if in_flight and (failed or len(in_flight) > most):
                # One fault often affects all parts in flight: it counts as one failure.
                _wait_for_one(in_flight)
            elif problem is not None:
                self._patience.failed(problem, None)
                self._sending = [self._on_its_way(part.number, part.data, part.final) for part in failed]
            else:
                return

    # The object after the last request

    def _look_at_last(self, error: StreamError) -> None:
        """Raise ``error``, unless the object was published.

        The answer to an earlier attempt may have been lost. After this call nothing is published.
        """
        if self._begun:
            self._abort()
        try:
            if isinstance(error, GivenUpError):
                found = self._once(self._look, _LAST_LOOK_SECONDS)
            else:
                found = self._run(self._look)
        except (Dropped, waits.Late, StreamError):
            unknown = GivenUpError(f"it is not known if it was published: {error.reason}", url=self._name)
            unknown.answered = error.answered if isinstance(error, GivenUpError) else True
            raise unknown from None
        if found is not None and found.token == self._store.token:
            return
        if self._if_absent and found not in (None, _UNSEEN):
            self._raise_exists()
        raise error

    def _verify(self, seconds: float) -> None:
        try:
            found = self._once(self._look, min(seconds, _REQUEST_SECONDS))
        except Dropped as drop:
            reason = f"the store accepted the upload, but could not be asked for its size: {drop.reason}"
            raise Dropped(reason, drop.retry_after, answered=drop.answered) from None
        if found is _UNSEEN:
            return
        if found is None:
            raise Dropped("the store accepted the upload, but no object has this name")
        if found.token != self._store.token and found == self._before:
            raise Dropped("the store accepted the upload, but the earlier object still has this name")
        if found.token not in (None, self._store.token):
            # Another writer replaced it since. This object was complete; but with if_absent, it
            # should be the only one.
            if self._if_absent:
                self._raise_exists()
            return
        if found.size == self._size and not found.damaged:
            return
        what = "other bytes" if found.size == self._size else str(found.size)
        reason = f"{self._size} bytes were sent, but {what} arrived"
        if found != self._suspect:
            # One answer may be wrong, and the object that it is about is removed.
            self._suspect = found
            raise Dropped(reason)
        if found.token is not None:
            with waits.cleaning_up() as left, suppress(Dropped, waits.Late, StreamError):
                self._once(self._store.remove, left)
        raise TemporaryStreamError(reason, url=self._name)

    async def _look(self) -> Found | None:
        try:
            return await self._store.look()
        except PermissionError:
            return _UNSEEN

    def _raise_exists(self) -> NoReturn:
        raise AlreadyPublishedError("already exists", url=self._name)

    # One request

    def _run(self, work: _Work[T]) -> T:
        """Return the result of one request, with retries; it counts as progress."""
        result = self._patience.run(lambda left: self._once(work, min(left, _REQUEST_SECONDS)))
        self._patience.progress()
        return result

    def _once(self, work: _Work[T], seconds: float) -> T:
        """Return the result of one attempt; see :meth:`_result`."""
        return self._result(self._start(work), seconds)

    def _start(self, work: _Work[T]) -> concurrent.futures.Future[T]:
        import asyncio

        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def _result(self, future: concurrent.futures.Future[T], seconds: float) -> T:
        """Return the result of one attempt.

        Raises:
            Dropped: a retry may help.
            Late: the attempt timed out, and a retry may help.
            TarkitError: a retry would not help.
        """
        try:
            return waits.result_of(future, seconds)
        except (TarkitError, Dropped, waits.Late):
            raise
        except concurrent.futures.CancelledError:
            raise Dropped("no answer within the timeout for its size", answered=False) from None
        except FileNotFoundError as error:
            if code_of(error) == "NoSuchUpload":
                raise TemporaryStreamError(f"{UPLOAD_LOST} (NoSuchUpload)", url=self._name) from None
            raise StreamError("the bucket does not exist", url=self._name) from None
        except Exception as error:
            raise_dropped(error, self._url, self._name, None)
