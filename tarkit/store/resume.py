"""Read one remote object, or a part of it, to its verified end, across dropped connections.

This is the policy; an :class:`Origin`, of which each place over a network has one, opens an object
at a byte, and checks that it is still the same object.
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
    """Bytes of an object from an offset on.

    This class itself has no bytes: it is the body at the end of an object.
    """

    def read(self, count: int) -> bytes:
        """Read at most ``count`` bytes, b"" at the end of this body.

        Raises:
            Dropped: a retry may help.
            TarkitError: a retry would not help.
        """
        return b""

    def interrupt(self) -> None:
        """Make a waiting read end now, from another thread, if possible."""

    def close(self) -> None:
        """Do nothing, if nothing is open."""


class Origin:
    """One object in a store, which must be the same in all of its openings.

    Args:
        name: URL for messages.

    Attributes:
        size: size in bytes, None while it is not known.
        checksum: checksum of all bytes, if the store has one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int | None = None
        self.checksum: Checksum | None = None

    def open(self, offset: int) -> Body:
        """Open the object at byte ``offset``.

        Raises:
            Dropped: a retry may help.
            StreamError: the object was changed, or cannot be read.
        """
        raise NotImplementedError

    def delivered(self, data: bytes) -> None:
        """Add bytes that were delivered, in order, to the checksum."""
        if self.checksum is not None:
            self.checksum.update(data)

    def at_end(self, body: Body, offset: int) -> bool:
        """Return True if the object ends at ``offset``, after ``body`` returned b""; verify it.

        False: the object continues in another body.

        Raises:
            Dropped: the body was cut.
            StreamError: the size or checksum is wrong, or the object was changed.
        """
        raise NotImplementedError

    def check_sum(self, problem: str | None, offset: int) -> None:
        """Raise an error for a problem of the object that ended at ``offset``, or its checksum."""
        problem = problem or (self.checksum.problem() if self.checksum is not None else None)
        if problem:
            raise StreamError(problem, url=self.name, offset=offset)


class ReportedOrigin(Origin):
    """An origin whose store reports the identity of the content.

    It is compared at each opening and at the end.
    """

    _marks: Mapping[str, Any] | None = None

    def report(self) -> tuple[Mapping[str, Any], Checksum | None]:
        """Return the marks of the content, with ``size`` if it is known, and its checksum, if any.

        Raises:
            MissingInputError: the object does not exist.
            Dropped: a retry may help.
            StreamError: the store does not answer the question.
        """
        raise NotImplementedError

    def open_at(self, offset: int) -> Body:
        """Open the object at byte ``offset``.

        Raises:
            Dropped: a retry may help.
            StreamError: the object cannot be read.
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
            self._changed("it was removed", offset)
        if self._marks is None:
            self._marks, self.checksum = marks, checksum
            size = marks.get("size")
            self.size = size if isinstance(size, int) else None
        elif marks != self._marks:
            differing = [name for name in {**self._marks, **marks} if marks.get(name) != self._marks.get(name)]
            self._changed(f"its {' and '.join(differing[:2])} is different", offset)

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
    """A :class:`tarkit.store.place.RawReader` over an origin, which is opened at once.

    An error is raised again by every later read: it never turns into an end.

    Raises:
        MissingInputError: the object does not exist.
        StreamError: an error occurred that a retry does not change.
        TemporaryStreamError: all attempts failed; with offset, reason and number of attempts.
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
        """Size of the object in bytes, None while it is not known."""
        return self._origin.size

    @property
    def position(self) -> int:
        """Number of bytes that were read."""
        return self._offset

    def read(self, count: int) -> bytes:
        """Read at most ``count`` > 0 bytes; b"" only at the verified end.

        Raises:
            StreamError: the object cannot be read, or the process was forked.
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
            # The connection broke already, or is not needed any more, so errors do not matter. A
            # read may still be running.
            with suppress(Exception):
                body.interrupt()
                body.close()

    def interrupt(self) -> None:
        """Make a running read end soon with an error, from another thread."""
        with self._lock:
            self._stopped = True
            if self._body is not None:
                self._body.interrupt()

    def close(self) -> None:
        """Close the connection.

        A second time, or in a process that was forked meanwhile, it does nothing.
        """
        if self.owner.is_here():
            self._stopped = True
            self._drop_body()


def read_part(origin: Origin, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read bytes from ``start`` up to, not including, ``stop`` of an object of ``size`` bytes.

    Raises:
        DataError: the object has a different size.
        StreamError: the object cannot be read.
        TemporaryStreamError: the object cannot be read now.
    """
    reader = ResumingReader(_Part(origin, start, stop, size), retry)
    try:
        return read_up_to(reader, stop - start)
    finally:
        reader.close()


def read_up_to(reader: RawReader | Body, count: int) -> bytes:
    """Read ``count`` bytes, fewer only at the end."""
    pieces = []
    while count > 0 and (data := reader.read(min(count, _STEP))):
        pieces.append(data)
        count -= len(data)
    return b"".join(pieces)


def check_size(found: int | None, size: int, name: str) -> None:
    """Check that a file has the size for which its parts were planned.

    Raises:
        DataError: it has a different size.
    """
    if found is not None and found != size:
        raise DataError(f"has {found} bytes, but had {size} when its parts were planned", url=name)


class _Part(Origin):
    """A part of an object, read like a whole one.

    It has no checksum, which would be that of the whole object.
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
