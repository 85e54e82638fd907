"""Keep parts of remote files in a local folder, so that its processes fetch each part once.

A part is a file whose name is a digest of the URL, of the identity of the remote file and of the
range. So a part of a file that was replaced is never found again. It appears whole under this name,
like everything that is published: a process that is killed leaves a temporary file, which is not
used, and which the next process that needs room removes.

No lock is taken to read. Two kinds of locks are held while a part is fetched: one of 256, selected
by its name, so that other processes wait for it and do not fetch it too; and for a moment the lock
of the folder's sum of bytes, under which room is made: the parts that were used least recently are
removed, but none that a process has pinned because it will need it soon. The sum is written before
a file is made, so it is never too low.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from numbers import Real
from typing import NamedTuple

from tarkit.errors import UsageError
from tarkit.store.pins import pins_of
from tarkit.store.place import Identity
from tarkit.store.sinks import write_all
from tarkit.store.temporary import close_locked, create_temporary, is_temporary_name, remove_if_dead

_log = logging.getLogger(__name__)

_PART = re.compile(r"[0-9a-f]{32}\.part")
_LOCKS = 256
_SUM = ".sum"
_MOST = 16 << 30
_AFTER_EVICTION = 0.9
_USED_SECONDS = 1.0


class Part(NamedTuple):
    """A range of a remote file.

    Attributes:
        name: name of its file in the folder.
        start: offset of the range in the remote file, in bytes; 0 for content without a digest of
            its own, such as an index.
        size: size of the range in bytes.
    """

    name: str
    start: int
    size: int


def range_part(url: str, identity: Identity, start: int, stop: int, *more: object) -> Part:
    """Return the part from ``start`` up to ``stop`` of the file with this identity.

    Args:
        url: URL of the file.
        identity: size and tag of the file.
        start: first byte.
        stop: byte after the last one.
        more: further values that distinguish the part.
    """
    words = repr((url, *identity, start, stop, *more)).encode("utf-8", "surrogateescape")
    return Part(f"{blake2b(words, digest_size=16).hexdigest()}.part", start, stop - start)


def default_folder() -> str:
    """Return ``tarkit/shards`` in the user's folder for caches: $XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "tarkit", "shards")


class PartCache:
    """A folder with parts of remote files, for any number of processes.

    It can be sent to other processes. If the folder cannot be written, has no locks or is on a full
    disk, this process keeps nothing more in it, and logs a warning once: all other parts are then
    read from the remote files.

    Args:
        folder: a local folder, made for this user alone if it does not exist; None:
            :func:`default_folder`.
        size: largest size of all parts in bytes; None: 16 GiB, or half of the space that would be
            free on its disk without it, if that is less.

    Raises:
        UsageError: the size is not a number from 1 on.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, size: int | None = None) -> None:
        if size is not None and (isinstance(size, bool) or not isinstance(size, Real) or not 1 <= size < math.inf):
            raise UsageError(f"cache_size is {size!r}; it must be a number of bytes, at least 1, such as 2 * 2**30")
        self.folder = os.path.abspath(default_folder() if folder is None else os.fspath(folder))
        self.size = size
        self.closed = False
        """True if this process keeps nothing more."""
        self._warned: set[str] = set()

    def has(self, part: Part) -> bool:
        """Return True if a part is in the folder.

        Args:
            part: the part.
        """
        try:
            return os.stat(self._path(part.name)).st_size == part.size
        except OSError:
            return False

    def read(self, part: Part, begin: int, end: int) -> bytes | None:
        """Read bytes ``begin`` up to ``end`` of the remote file from a part, if it is kept.

        Args:
            part: the part.
            begin: first byte, as an offset in the remote file.
            end: byte after the last one.
        """
        try:
            file = os.open(self._path(part.name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if status.st_size != part.size:
                return None
            if time.time() - status.st_mtime > _USED_SECONDS:
                with suppress(OSError):  # of another user, or on a file system that is only read
                    os.utime(file)
            data = os.pread(file, end - begin, begin - part.start)
        except OSError:
            return None
        finally:
            os.close(file)
        return data if len(data) == end - begin else None

    def get(self, part: Part, fetch: Callable[[], bytes]) -> bytes:
        """Return the bytes of a part: from the folder, or fetched, and kept if there is room.

        Args:
            part: the part.
            fetch: function that returns its bytes. Its exceptions are raised.
        """
        begin, end = part.start, part.start + part.size
        return self.read(part, begin, end) or self.keep(part, fetch) or self.read(part, begin, end) or fetch()

    def keep(self, part: Part, fetch: Callable[[], bytes]) -> bytes | None:
        """Fetch and keep a part, unless it is in the folder already.

        Args:
            part: the part.
            fetch: function that returns its bytes; not called if the part is in the folder, nor if
                it cannot be kept. Its exceptions are raised.

        Returns:
            The bytes, if they were fetched.
        """
        fetched: list[bytes] = []

        def once(begin: int, end: int) -> bytes:
            fetched.append(fetch())
            return fetched[0]

        if self.closed:
            return None
        with self._closing(), self._locked(_lock_of(part)):
            if self._has_used(part):
                return None
            if (temporary := self._reserved(part)) is not None:
                self._fill([(part, *temporary)], once)
            else:
                self._warn_full(part)
        return fetched[0] if fetched else None

    def keep_now(self, parts: Sequence[Part], fetch: Callable[[int, int], bytes]) -> int | None:
        """Fetch and keep neighbouring parts by one request, unless others fetch the first one.

        Args:
            parts: parts of one file, each of which begins where the one before it ends.
            fetch: function that returns bytes ``begin`` up to ``end`` of the file; not called if
                the first part is in the folder already. Its exceptions are raised.

        Returns:
            The number of parts, from the first one on, that are in the folder now; 0 if another
            process or thread fetches the first one; None if there is no room for it.
        """
        reserved: list[tuple[Part, int, str]] = []
        kept: int | None = None
        if self.closed:
            return None
        with self._closing(), ExitStack() as locks:
            for part in parts:
                try:
                    locks.enter_context(self._locked(_lock_of(part), fcntl.LOCK_NB))
                except BlockingIOError:
                    kept = 0
                    break
                if self._has_used(part):
                    kept = 1
                    break
                temporary = self._reserved(part)
                if temporary is None:
                    break
                reserved.append((part, *temporary))
            if reserved:
                self._fill(reserved, fetch)
                kept = len(reserved)
        return kept

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Run a block that keeps parts; close the cache if the folder cannot be used."""
        try:
            yield
        except _NotKept as problem:
            self._close(problem.reason)
        except _Failed as failed:
            raise failed.error from None
        except OSError as error:
            self._close(error.strerror or str(error))

    def _has_used(self, part: Part) -> bool:
        """Return True if a part is in the folder, which is a use of it."""
        if found := self.has(part):
            # Otherwise it may be the next to be removed, for another part of the same batch.
            os.utime(self._path(part.name))
        return found

    def pin(self, part: Part) -> None:
        """Need a part: no process removes it until this one unpins it, or ends."""
        if not self.closed:
            try:
                os.makedirs(self.folder, 0o700, exist_ok=True)
                pins_of(self.folder).add(part.name)
            except OSError as error:
                self._close(error.strerror or str(error))

    def unpin(self, part: Part) -> None:
        """Need a part, which this process has pinned, once less."""
        if not self.closed:
            pins_of(self.folder).drop(part.name)

    def limit(self) -> int:
        """Return the largest size of all parts in bytes, as far as is known now."""
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            return self._limit(0)
        except OSError:
            return _MOST

    def warn_small(self, why: str) -> None:
        """Log once that the cache is too small.

        Args:
            why: reason, a phrase.
        """
        self._warn("small", f"{why}; set a larger cache_size")

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("cache of shards %s: %s", self.folder, text)

    def _close(self, reason: str) -> None:
        self.closed = True
        self._warn("closed", f"{reason.lower()}; all other parts are read from the remote shards")

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    @contextmanager
    def _locked(self, name: str, how: int = 0) -> Iterator[int]:
        os.makedirs(self.folder, 0o700, exist_ok=True)
        file = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | how)
            yield file
        finally:
            # A child that was forked meanwhile has the file open, too: only this releases the lock.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _reserved(self, part: Part) -> tuple[int, str] | None:
        """Make a temporary file of the part's length, within the limit.

        None if a part of this size is not kept.
        """
        with self._locked(_SUM) as noted:
            text = os.pread(noted, 32, 0)
            held = int(text) if text.isdigit() else None
            if held is None or held + part.size > self._limit(held):
                held = self._evicted(part.size)
            if held + part.size > self._limit(held):
                # The remaining bytes are parts that are being fetched, or that processes need.
                os.pwrite(noted, b"%020d" % held, 0)
                return None
            os.pwrite(noted, b"%020d" % (held + part.size), 0)
            file, path = create_temporary(self.folder, part.name)
            try:
                # A process that counts the bytes meanwhile sees the final size.
                os.truncate(file, part.size)
            except BaseException:
                _drop(file, path)
                raise
            return file, path

    def _warn_full(self, part: Part) -> None:
        with self._locked(_SUM) as noted:
            held = int(os.pread(noted, 32, 0) or 0)
        limit = self._limit(held)
        self.warn_small(f"its limit is {limit} bytes, {held} of them in use, and a part has {part.size}")

    def _limit(self, held: int) -> int:
        if self.size is not None:
            return self.size
        return min(_MOST, (shutil.disk_usage(self.folder).free + held) // 2)

    def _evicted(self, wanted: int) -> int:
        """Remove the parts used least recently, and files of dead processes, until there is room.

        Returns:
            The sum of the remaining bytes.
        """
        found, held = [], 0
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):  # gone meanwhile, or of a living process
                    is_part = _PART.fullmatch(entry.name) is not None
                    if not is_part and (not is_temporary_name(entry.name) or remove_if_dead(entry.path)):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    held += status.st_size
                    if is_part:
                        found.append((status.st_mtime_ns, entry.name, status.st_size))
        limit = self._limit(held)
        if held + wanted > limit:
            for _, name, size in sorted(found):
                if held + wanted <= limit * _AFTER_EVICTION:
                    break
                if pins_of(self.folder).removed(name):
                    held -= size
        return held

    def _fill(self, reserved: list[tuple[Part, int, str]], fetch: Callable[[int, int], bytes]) -> None:
        """Fetch neighbouring parts, and write each to its temporary file, which gets its name."""
        begin, end = reserved[0][0].start, reserved[-1][0].start + reserved[-1][0].size
        left = deque(reserved)
        try:
            try:
                data = memoryview(fetch(begin, end))
            except Exception as error:
                raise _Failed(error) from error
            if len(data) != end - begin:
                raise _NotKept(f"{len(data)} bytes arrived for a part of {end - begin}")
            while left:
                part, file, path = left[0]
                write_all(file, data[part.start - begin : part.start - begin + part.size])
                os.fsync(file)
                os.replace(path, self._path(part.name))
                left.popleft()
                close_locked(file, path)
        except BaseException:
            for _, file, path in left:
                _drop(file, path)
            raise


def _lock_of(part: Part) -> str:
    return f".lock-{int(part.name[:8], 16) % _LOCKS:02x}"


def _drop(file: int, path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
    close_locked(file, path)


class _NotKept(Exception):
    """A part cannot be kept. Never leaves this module."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Failed(Exception):
    """An exception of fetching, which may be an OSError, too. Never leaves this module."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
