"""Read ahead in a thread, so that a download and the use of its bytes overlap."""

from __future__ import annotations

import threading
import weakref
from collections import deque

from tarkit.store import waits
from tarkit.store.allocator import keep_freed_memory
from tarkit.store.forks import Owner
from tarkit.store.resume import ResumingReader
from tarkit.store.window import Window

READ_AHEAD = 16 * 1024 * 1024
"""Default of the largest number of bytes that are read ahead."""

_PIECE = 1024 * 1024
_GRACE = 0.5


class _Pump:
    """The state that the thread and the reader share.

    It has no reference to the reader, so that a forgotten reader is garbage-collected, and then
    stops the thread.
    """

    def __init__(self, source: ResumingReader, limit: int) -> None:
        self.source = source
        self.limit = limit
        self.pieces: deque[bytes] = deque()
        self.held = 0
        self.ended = False
        self.stopping = False
        self.error: BaseException | None = None
        self.changed = threading.Condition()
        self.owner = Owner()
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        # Otherwise the system clears new pages for every piece, which takes as long as receiving
        # it.
        keep_freed_memory()
        waits.may_be_left_behind()
        size = min(_PIECE, self.limit)
        try:
            while self.has_room():
                data = self.source.read(size)
                with self.changed:
                    self.pieces.append(data)
                    self.held += len(data)
                    self.ended = not data
                    self.changed.notify_all()
                if not data:
                    return
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
        finally:
            if self.stopping:
                self.source.close()

    def has_room(self) -> bool:
        """Wait until more may be read; False if no more is wanted."""
        with self.changed:
            while self.held >= self.limit and not self.stopping:
                self.changed.wait()
            return not self.stopping

    def start(self) -> None:
        """Start the thread, unless it was started."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="tarkit-read-ahead", daemon=True)
            self.thread.start()

    def take(self) -> bytes:
        """Return the next piece, b"" at the end; or raise the error, after all pieces before it.

        Raises:
            StreamError: the process was forked since this was opened, or the source cannot be read.
        """
        self.owner.check()
        with self.changed:
            self.start()
            while not self.pieces:
                if self.error is not None:
                    raise self.error
                if self.ended:
                    return b""
                waits.wait_for(self.changed)
            data = self.pieces.popleft()
            self.held -= len(data)
            self.changed.notify_all()
            return data

    def stop(self) -> None:
        """End the thread and close the source."""
        if not self.owner.is_here():
            # The thread and the connection belong to the parent process.
            return
        with self.changed:
            self.stopping = True
            self.pieces.clear()
            self.changed.notify_all()
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            self.source.interrupt()
            thread.join(_GRACE)
            if thread.is_alive():
                # The thread is in a library that cannot be interrupted: it closes the source when
                # it returns.
                return
        self.source.close()


class ReadAhead(Window):
    """A :class:`tarkit.store.place.RawReader` that reads its source in a thread.

    The thread starts with the first read, or with ``start()``. An error is raised after the bytes
    that came before it.

    Args:
        source: reader to read ahead of and to close.
        limit: largest number of bytes that are read ahead, besides one piece of at most 1 MiB.
    """

    def __init__(self, source: ResumingReader, limit: int = READ_AHEAD) -> None:
        pump = _Pump(source, max(1, limit))
        super().__init__(lambda _: pump.take())
        self._source = source
        self.start = pump.start
        self._finalizer = weakref.finalize(self, pump.stop)

    @property
    def size(self) -> int | None:
        """Size in bytes, None if it is not known."""
        return self._source.size

    def close(self) -> None:
        """Stop the thread and close the source.

        A second call does nothing.
        """
        self._finalizer()
