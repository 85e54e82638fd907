"""A sink whose bytes become one object of an object store, all or nothing."""

from __future__ import annotations

import concurrent.futures
import io
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from tarkit.errors import AlreadyPublishedError, StreamError, TarkitError, TemporaryStreamError
from tarkit.transport.parts import MOST_PARTS, Backoff, is_temporary, part_size
from tarkit.transport.pipes import without_secrets
from tarkit.transport.remote import raise_foreign

T = TypeVar("T")
_DISCARD_SECONDS = 60.0


class Body(io.BytesIO):
    """Bytes to send. aiohttp sends a file in pieces, and the loop goes on in between; then it closes it."""

    def close(self) -> None:
        """Nothing: another try reads it again."""


# The name of the metadata by which a writer recognises its own object.
TOKEN = "tarkit-upload"  # noqa: S105


@dataclass(frozen=True)
class Found:
    """What is under the final name.

    token: of the writer who put it there, None if it is not known. damaged: it is ours, and its
    checksum is not that of what was sent.
    """

    size: int
    token: str | None
    damaged: bool = False


class ObjectStore(Protocol):
    """One object to be. Its methods run in the event loop of the filesystem.

    put: the whole object at once. Or begin, send for each part, finish: the object is there only
    after finish; ``final`` marks the last part. abort: forget the parts. look: what is under the
    name now. remove: take it away. in_flight: how many parts of a size may be sent at once.
    refresh: forget cached listings.
    """

    token: str

    async def put(self, data: bytes) -> None: ...
    async def begin(self) -> None: ...
    async def send(self, number: int, data: bytes, final: bool) -> None: ...
    async def finish(self) -> None: ...
    async def abort(self) -> None: ...
    async def look(self) -> Found | None: ...
    async def remove(self) -> None: ...
    def in_flight(self, size: int) -> int: ...
    def refresh(self) -> None: ...


class ObjectSink:
    """Gathers parts and sends a few of them at a time while the writer goes on.

    At most the part that is being filled and those in flight are in memory. An object that fits
    into one part is put at once.
    """

    def __init__(self, store: ObjectStore, loop: Any, url: str, name: str, if_absent: bool, backoff: Backoff) -> None:
        self._store = store
        self._loop = loop
        self._url = url
        self._name = name
        self._if_absent = if_absent
        self._backoff = backoff
        self._part = bytearray()
        self._number = 1
        self._begun = False
        self._size = 0
        self._sending: set[concurrent.futures.Future[None]] = set()
        if if_absent:
            self._call(self._refuse_if_there())

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
        if not self._begun:
            data = bytes(self._part)
            self._call(self._publish(lambda: self._store.put(data)))
            return
        self._send(True)
        self._settle(0)
        self._call(self._publish(self._store.finish))

    def discard(self) -> None:
        """Stop what is in flight and have the store forget the parts, if it can be reached."""
        import asyncio

        self._part = bytearray()
        for future in self._sending:
            future.cancel()
        self._sending.clear()
        if not self._begun:
            return
        self._begun = False
        future = self._start(self._backoff.run(self._store.abort))
        # The loop's own thread gets here when it collects a forgotten stream; it can not wait for itself.
        if asyncio._get_running_loop() is not self._loop:
            # An upload that can not be aborted is not published either.
            with suppress(Exception):
                future.result(_DISCARD_SECONDS)

    def _send(self, final: bool) -> None:
        if not self._begun:
            # Set first: whether an upload was begun is not known when the answer got lost.
            self._begun = True
            self._call(self._backoff.run(self._store.begin))
        if self._number > MOST_PARTS:
            limit = sum(part_size(number) for number in range(1, MOST_PARTS + 1))
            raise StreamError(f"an object can have at most {limit} bytes", url=self._name)
        data, self._part = bytes(self._part), bytearray()
        self._settle(self._store.in_flight(len(data)) - 1)
        number, self._number = self._number, self._number + 1

        async def send() -> None:
            await self._backoff.run(lambda: self._store.send(number, data, final), len(data))

        self._sending.add(self._start(send()))

    def _settle(self, most: int) -> None:
        """Wait until at most ``most`` parts are in flight; the first error is raised."""
        done = {future for future in self._sending if future.done()}
        while True:
            self._sending -= done
            for future in done:
                self._result(future)
            if len(self._sending) <= most:
                return
            done, _ = concurrent.futures.wait(self._sending, return_when=concurrent.futures.FIRST_COMPLETED)

    async def _refuse_if_there(self) -> None:
        if await self._backoff.run(self._look) is not None:
            self._lost()

    async def _look(self) -> Found | None:
        try:
            return await self._store.look()
        except PermissionError:
            # Who may write may not always read. Then the answers to the writing are all there is.
            return None

    def _lost(self) -> NoReturn:
        raise AlreadyPublishedError("is there already", url=self._name)

    async def _publish(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make the object visible. What the store answered is checked against what is there then."""
        try:
            for failures in range(1, self._backoff.attempts + 1):
                try:
                    await call()
                    break
                except Exception as error:
                    # The answer may be lost, or be that to a second try: the object itself decides.
                    if await self._is_ours():
                        break
                    if not is_temporary(error) or failures == self._backoff.attempts:
                        await self._give_up(error)
                        break
                await self._backoff.wait(failures)
            await self._verify()
        finally:
            self._store.refresh()

    async def _is_ours(self) -> bool:
        try:
            found = await self._backoff.run(self._look)
        except Exception:  # Not known, so the upload is tried again; _give_up looks once more.
            return False
        if found is not None and found.token != self._store.token and self._if_absent:
            self._lost()
        return found is not None and found.token == self._store.token

    async def _give_up(self, error: Exception) -> None:
        """Raise ``error``; but return if the object came to be nevertheless. Nothing comes to be afterwards."""
        if self._begun:
            with suppress(Exception):
                await self._backoff.run(self._store.abort)
        found = await self._look_at_last(error)
        if found is None or found.token != self._store.token:
            raise error

    async def _look_at_last(self, cause: Exception | None) -> Found | None:
        try:
            return await self._backoff.run(self._look)
        except Exception as error:
            cause = cause or error
            reason = f"{type(cause).__name__}: {without_secrets(str(cause), self._url)}"
            raise TemporaryStreamError(f"whether it was published is not known: {reason}", url=self._name) from None

    async def _verify(self) -> None:
        found = await self._look_at_last(None)
        if found is None:
            return
        if found.token not in (None, self._store.token):
            # Replaced by another writer since. Ours was whole; but who asked to be the only one is not.
            if self._if_absent:
                self._lost()
            return
        if found.size == self._size and not found.damaged:
            return
        if found.token is not None:
            with suppress(Exception):
                await self._backoff.run(self._store.remove)
        what = "other ones" if found.size == self._size else str(found.size)
        raise TemporaryStreamError(f"{self._size} bytes were sent, but {what} arrived", url=self._name)

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        import asyncio

        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._result(self._start(coroutine))

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except TarkitError:
            raise
        except FileNotFoundError:
            raise StreamError("the bucket does not exist", url=self._name) from None
        except Exception as error:
            if is_temporary(error):
                reason = without_secrets(str(error), self._url)
                text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
                raise TemporaryStreamError(text, url=self._name) from None
            raise_foreign(error, self._url, self._name, None)
        except BaseException:
            # A signal's: what is under way must not publish anything later.
            future.cancel()
            raise
