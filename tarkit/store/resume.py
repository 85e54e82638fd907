"""Reading one remote object, or a part of it, to its verified end, however often the connection
drops.

This is the policy; how an object is opened at a byte, and how it is known that it is still the same
object, is the part of an :class:`Origin`, of which each place over a network has one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from tarkit.errors import DataError, MissingInputError, StreamError
from tarkit.store import waits
from tarkit.store.checksums import Checksum
from tarkit.store.forks import Owner
from tarkit.store.place import RawReader
from tarkit.store.retry import Dropped, Patience, Retry

_STEP = 1 << 20


class Body:
    """Bytes of an object from some offset on.

    Those of this class itself are none, at the very end of an object.
    """

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes, b"" at the end of this body.

        Raises: Dropped, or a TarkitError.
        """
        return b""

    def interrupt(self) -> None:
        """From another thread: make a read that waits end now, where that is possible."""

    def close(self) -> None:
        """Nothing, where nothing is open."""


class Origin:
    """One object in a store, the same one through all of its openings.

    Args:
        name: as it may be shown.

    Attributes:
        size: in bytes, None while it is not known.
        checksum: of all bytes, if there is one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int | None = None
        self.checksum: Checksum | None = None

    def open(self, offset: int) -> Body:
        """The object from byte ``offset`` on.

        Raises:
            Dropped: try again.
            StreamError: it is another object now, or cannot be read.
        """
        raise NotImplementedError

    def delivered(self, data: bytes) -> None:
        """Told of every byte that was given out, in order, for checksums."""
        if self.checksum is not None:
            self.checksum.update(data)

    def at_end(self, body: Body, offset: int) -> bool:
        """After ``body`` gave b"": whether the object ends at ``offset``, verified.

        False: it goes on, in another body.

        Raises:
            Dropped: the body was cut.
            StreamError: the length or checksum is wrong, or it is another object now.
        """
        raise NotImplementedError

    def check_sum(self, problem: str | None, offset: int) -> None:
        """Raise, of the object that ended at ``offset``, what is wrong with it: a problem, or its
        checksum.
        """
        problem = problem or (self.checksum.problem() if self.checksum is not None else None)
        if problem:
            raise StreamError(problem, url=self.name, offset=offset)


class ReportedOrigin(Origin):
    """An origin whose store reports what tells one content of a name from the next, at each opening
    and at the end.
    """

    _marks: Mapping[str, Any] | None = None

    def report(self) -> tuple[Mapping[str, Any], Checksum | None]:
        """The marks of the content, ``size`` among them if it is known, and its checksum, if there
        is one.

        Raises:
            MissingInputError: it is not there.
            Dropped, StreamError: it cannot be asked.
        """
        raise NotImplementedError

    def open_at(self, offset: int) -> Body:
        """The object from byte ``offset`` on.

        Raises: Dropped. StreamError.
        """
        raise NotImplementedError

    def open(self, offset: int) -> Body:
        self._look(offset)
        return self.open_at(offset)

    def _look(self, offset: int) -> None:
        try:
            marks, checksum = self.report()
        except MissingInputError:
            if self._marks is None:
                raise
            self._changed("it is gone", offset)
        if self._marks is None:
            self._marks, self.checksum = marks, checksum
            size = marks.get("size")
            self.size = size if isinstance(size, int) else None
        elif marks != self._marks:
            differing = [name for name in {**self._marks, **marks} if marks.get(name) != self._marks.get(name)]
            self._changed(f"its {' and '.join(differing[:2])} is another", offset)

    def _changed(self, how: str, offset: int) -> NoReturn:
        raise StreamError(f"the object was changed while it was read: {how}", url=self.name, offset=offset) from None

    def at_end(self, body: Body, offset: int) -> bool:
        self._look(offset)
        if self.size is not None and offset < self.size:
            raise Dropped(f"{offset} bytes came, but the object has {self.size}")
        surplus = self.size is not None and offset > self.size
        self.check_sum(f"{offset} bytes came, but the object has {self.size}" if surplus else None, offset)
        return True


class ResumingReader:
    """A :class:`tarkit.store.place.RawReader` over an origin, opened at once.

    An error is raised again by every later read: it never turns into an end.

    Raises:
        MissingInputError, StreamError: what trying again does not change.
        TemporaryStreamError: given up, as ``retry`` says; with offset, reason and attempts.
    """

    def __init__(self, origin: Origin, retry: Retry) -> None:
        self._origin = origin
        self.owner = Owner()
        self._patience = Patience(retry, origin.name)
        self._clock = retry.clock
        self._offset = 0
        self._body: Body | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        while self._body is None:
            began = retry.clock()
            try:
                self._reopen()
            except Dropped as drop:
                self._patience.failed(drop, None, began, lambda: self._stopped)

    @property
    def size(self) -> int | None:
        """Length of the object in bytes, None while it is not known."""
        return self._origin.size

    @property
    def position(self) -> int:
        """Bytes that were read."""
        return self._offset

    def read(self, count: int) -> bytes:
        """At most ``count`` > 0 bytes; b"" only at the verified end.

        Raises:
            StreamError: in a forked process.
        """
        self.owner.check(self._origin.name)
        if self._error is not None:
            raise self._error
        if self._ended:
            return b""
        try:
            return self._next(count)
        except BaseException as error:
            self._error = error
            self._drop_body()
            raise

    def _next(self, count: int) -> bytes:
        while True:
            began = self._clock()
            try:
                body = self._body or self._reopen()
                data = waits.call(body.read, count)
                if not data and waits.call(self._origin.at_end, body, self._offset):
                    self._ended = True
                    self._drop_body()
                    return b""
            except Dropped as drop:
                self._drop_body()
                self._patience.failed(drop, self._offset, began, lambda: self._stopped)
                continue
            if data:
                self._offset += len(data)
                self._patience.progress()
                self._origin.delivered(data)
                return data
            self._drop_body()

    def _reopen(self) -> Body:
        if self._stopped:
            raise StreamError("the stream was closed", url=self._origin.name, offset=self._offset)
        body = waits.call(self._origin.open, self._offset)
        with self._lock:
            self._body = body
            if self._stopped:
                body.interrupt()
        return body

    def _drop_body(self) -> None:
        with self._lock:
            body, self._body = self._body, None
        if body is not None:
            # It broke already, or is not needed any more: how it ends says nothing. A read may
            # still be under way.
            with suppress(Exception):
                body.interrupt()
                body.close()

    def interrupt(self) -> None:
        """From another thread: make a read that is under way end soon, with an error."""
        with self._lock:
            self._stopped = True
            if self._body is not None:
                self._body.interrupt()

    def close(self) -> None:
        """Close the connection.

        Again, or in a process that was forked meanwhile: nothing.
        """
        if self.owner.is_here():
            self._stopped = True
            self._drop_body()


def read_part(origin: Origin, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Bytes ``start`` to ``stop``, not counting the latter, of an object that has ``size``.

    Raises:
        DataError: it has another length. StreamError, TemporaryStreamError.
    """
    reader = ResumingReader(_Part(origin, start, stop, size), retry)
    try:
        return read_up_to(reader, stop - start)
    finally:
        reader.close()


def read_up_to(reader: RawReader | Body, count: int) -> bytes:
    """``count`` bytes, fewer only at the end."""
    pieces = []
    while count > 0 and (data := reader.read(min(count, _STEP))):
        pieces.append(data)
        count -= len(data)
    return b"".join(pieces)


def check_size(found: int | None, size: int, name: str) -> None:
    """Raises:
    DataError: what is there has not the length that its parts were planned for.
    """
    if found is not None and found != size:
        raise DataError(f"has {found} bytes, but had {size} when its parts were planned", url=name)


class _Part(Origin):
    """A part of an object, as if it were one.

    A checksum would be of the whole object.
    """

    def __init__(self, origin: Origin, start: int, stop: int, size: int) -> None:
        super().__init__(origin.name)
        self.size: int = stop - start
        self._origin = origin
        self._start = start
        self._whole = size

    def open(self, offset: int) -> Body:
        body = self._origin.open(self._start + offset)
        try:
            check_size(self._origin.size, self._whole, self.name)
        except BaseException:
            body.close()
            raise
        return body

    def at_end(self, body: Body, offset: int) -> bool:
        if offset < self.size:
            raise Dropped(f"{offset} bytes came, but {self.size} were asked for")
        return True
