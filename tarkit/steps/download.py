"""Fetch the files that the rows of a table name by URL, many at once, in the order of the rows.

An event loop in a thread of its own makes the requests. The number of requests to a host is
limited; a host that asks to wait is left alone for that time, and one that does not answer any
request is not asked for a minute. The rows that were begun, and the bytes that they hold, are
bounded: the oldest row always gets the memory that it needs, so that it can be passed on.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import itertools
import queue
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tarkit.errors import UsageError
from tarkit.names.redaction import redact
from tarkit.samples.firstbytes import why_other_content
from tarkit.samples.sample import Sample
from tarkit.steps.fetchlimits import Host, NoRoom, Room
from tarkit.steps.tablerows import Wanted
from tarkit.store.http.guarded import AGENT, Begun, FailedFetch, GuardedClient, Reply, requested_url
from tarkit.store.http.robots import LONGEST, Robots
from tarkit.store.retry import Retry

REASONS = (
    *("url", "address", "dns", "connect", "tls", "timeout", "http-NNN", "redirect", "robots", "opt-out"),
    *("protocol", "too-large", "short", "encoding", "empty", "wrong-content"),
)
"""The reasons in a table of failed rows; NNN is the status of the answer."""
_MOST_REDIRECTS = 5
_MOST_ROWS = 4096
_BATCH = 64
_FREE = 1024 * 1024
"""Size in bytes up to which a file gets memory once it was requested."""
_TAKE_SECONDS = 0.005
_TELL_SECONDS = 0.05
_GONE_AFTER = 3
_GONE_SECONDS = 60.0
_MOST_HOSTS = 10_000


@dataclass(frozen=True)
class DownloadOptions:
    """Limits and policies of downloads.

    Attributes:
        tries: attempts for a URL; the waits between them are those of ``retry``, and take
            ``retry.deadline`` seconds at most.
        per_host: most requests to one host at a time.
        connections: most requests at a time.
        timeout: seconds for one attempt, from the look-up of the host to the end of the body.
        max_bytes: size in bytes above which a file is refused.
        mem: size in bytes of the files in memory, unless one row needs more.
        ignore_robots: also read what robots.txt excludes.
        ignore_opt_out: also read what X-Robots-Tag excludes (noai, noimageai, noindex,
            noimageindex).
        allow_private: also connect to addresses that are not public, such as this machine; never to
            a metadata service.
        retry: policy for waits.

    Raises:
        UsageError: a number is out of range.
    """

    tries: int = 6
    per_host: int = 4
    connections: int = 64
    timeout: float = 60.0
    max_bytes: int = 100 * 1024 * 1024
    mem: int = 256 * 1024 * 1024
    ignore_robots: bool = False
    ignore_opt_out: bool = False
    allow_private: bool = False
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        for name in ("tries", "per_host", "connections", "timeout", "max_bytes", "mem"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be positive")


class FailedRow(NamedTuple):
    """A file of a row that could not be fetched, as in the table of failed rows.

    Attributes:
        key: key of the row.
        field: field of the file.
        url: its URL, without secrets.
        reason: one of ``REASONS``.
        detail: a phrase.
        attempts: number of attempts.
        time: seconds since 1970 of the last one.
    """

    key: str
    field: str
    url: str
    reason: str
    detail: str
    attempts: int
    time: float


Outcome: TypeAlias = "Sample | list[FailedRow]"
"""A row's sample with all of its files, or the files that failed."""


class _Tries:
    """The attempts for one URL.

    Attributes:
        count: number of failed attempts.
    """

    def __init__(self, options: DownloadOptions) -> None:
        self._options = options
        self._waited = 0.0
        self.count = 0

    def wait_after(self, failure: FailedFetch) -> float:
        """Return the seconds until the next attempt; raise the failure if there is none."""
        self.count += 1
        retry = self._options.retry
        wait = max(retry.wait_before(self.count), failure.retry_after or 0.0)
        self._waited += wait
        if not failure.again or self.count >= self._options.tries or self._waited > retry.deadline:
            raise failure
        return wait


class _Fetcher:
    """The requests for all rows, in an event loop."""

    def __init__(self, options: DownloadOptions) -> None:
        self._options = options
        self._retry = options.retry
        self._client = GuardedClient(
            options.timeout, allow_private=options.allow_private, ignore_opt_out=options.ignore_opt_out
        )
        self._slots = asyncio.Semaphore(options.connections)
        self._hosts: dict[str, Host] = {}
        self._robots: dict[str, asyncio.Task[Robots | FailedFetch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.room = Room(options.mem)
        self.outcomes: queue.SimpleQueue[tuple[int, Outcome | Exception]] = queue.SimpleQueue()

    def start(self, rows: Iterable[tuple[int, Wanted]]) -> None:
        """Begin to fetch some rows; their outcomes come into the queue."""
        for number, row in rows:
            task = asyncio.ensure_future(self._settle(number, row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all requests."""
        tasks = [*self._tasks, *self._robots.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _settle(self, number: int, row: Wanted) -> None:
        try:
            files = [self._file(number, row.sample["__key__"], *source) for source in row.sources]
            found = [await files[0]] if len(files) == 1 else await asyncio.gather(*files)
            contents = {name: each for (name, _), each in zip(row.sources, found, strict=True)}
            if failed := [each for each in found if isinstance(each, FailedRow)]:
                self.room.give(sum(len(each) for each in found if isinstance(each, bytes)))
                self.outcomes.put((number, failed))
            else:
                self.outcomes.put((number, {**row.sample, **contents}))
        except Exception as error:
            self.outcomes.put((number, error))

    async def _file(self, number: int, key: str, name: str, url: str) -> bytes | FailedRow:
        """Return a file, whose bytes of memory stay taken, or the report of its failure."""
        tries = _Tries(self._options)

        def check(content: bytes) -> None:
            if not content:
                raise FailedFetch("empty", "it has 0 bytes", again=True)
            if (reason := why_other_content(name, content)) is not None:
                raise FailedFetch("wrong-content", reason)

        try:
            return await self._tried(number, requested_url(url), check, tries)
        except FailedFetch as failure:
            now = self._retry.now()
            return FailedRow(key, name, redact(url), failure.reason, failure.detail, tries.count, now)

    async def _tried(self, number: int, url: str, check: Callable[[bytes], None], tries: _Tries) -> bytes:
        """Return an object after as many attempts as it needs; its memory stays taken."""
        held = 0

        def need(size: int) -> None:
            nonlocal held
            if size > held:
                more = max(size, min(2 * held, begun.most))
                if more > _FREE and not self.room.admits(number, more - held):
                    raise NoRoom(more)
                self.room.take(more - held)
                held = more

        begun = Begun(self._options.max_bytes, need)
        try:
            while True:
                try:
                    content = await self._followed(number, url, begun)
                    check(content)
                    self.room.take(len(content))
                    return content
                except NoRoom as more:
                    begun.clear()
                    self.room.give(held)
                    held = 0
                    await self.room.wait(number, more.size)
                    held = more.size
                except FailedFetch as failure:
                    wait = tries.wait_after(failure)
                    self.room.give(held - begun.size)
                    held = begun.size
                    await asyncio.sleep(wait)
        finally:
            self.room.give(held)

    async def _followed(self, number: int | None, url: str, begun: Begun) -> bytes:
        """Make one attempt, redirects included.

        Args:
            number: number of the row; None for a robots.txt, which has neither rules nor row.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            if number is not None and not self._options.ignore_robots:
                await self._check_robots(url)
            reply = await self._asked(number, url, begun)
            if reply.target is None:
                return reply.content
            try:
                url = requested_url(reply.target)
            except FailedFetch:
                raise FailedFetch("redirect", "redirected to an address that is not one of http or https") from None
        raise FailedFetch("redirect", f"redirected more than {_MOST_REDIRECTS} times")

    async def _asked(self, number: int | None, url: str, begun: Begun) -> Reply:
        """Make one request when its host has a slot for it."""
        host = self._host(url.split("/", 3)[2].rpartition("@")[2])
        host.users += 1
        try:
            async with host.slots:
                await host.pause(_now(), self._retry.deadline)
                async with self._slots:
                    if number is not None and not self.room.admits(number):
                        raise NoRoom(begun.size)
                    try:
                        keep, rules = host.users > 1, number is not None
                        reply = await self._client.ask(url, begun, self._retry.now(), keep=keep, rules=rules)
                    except FailedFetch as failure:
                        self._note(host, failure)
                        raise
                    host.silent = 0
                    return reply
        finally:
            host.users -= 1

    def _note(self, host: Host, failure: FailedFetch) -> None:
        host.silent = 0 if failure.answered else host.silent + 1
        if host.silent >= _GONE_AFTER * self._options.tries:
            host.gone_until = _now() + _GONE_SECONDS
        if failure.retry_after:
            host.until, host.reason = max(host.until, _now() + failure.retry_after), failure.reason

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            if len(self._hosts) >= _MOST_HOSTS:
                now = _now()
                kept = {each: host for each, host in self._hosts.items() if host.users or host.until > now}
                self._hosts = kept
            self._hosts[name] = Host(self._options.per_host)
        return self._hosts[name]

    async def _check_robots(self, url: str) -> None:
        scheme, _, place, path = url.split("/", 3)
        origin = f"{scheme}//{place}"
        if origin not in self._robots:
            if len(self._robots) >= _MOST_HOSTS:
                self._robots = {name: task for name, task in self._robots.items() if not task.done()}
            self._robots[origin] = asyncio.ensure_future(self._read_robots(origin))
        task = self._robots[origin]
        found = task.result() if task.done() else await asyncio.shield(task)
        if isinstance(found, FailedFetch):
            # The next row of the site tries again.
            self._robots.pop(origin, None)
            raise FailedFetch(found.reason, found.detail)
        if not found.allows(f"/{path}"):
            raise FailedFetch("robots", "the robots.txt of the site excludes it")

    async def _read_robots(self, origin: str) -> Robots | FailedFetch:
        """Return the rules of a site; all is allowed if it has no robots.txt (RFC 9309, 2.3.1)."""
        tries = _Tries(self._options)
        while True:
            begun = Begun(LONGEST, cut=True)
            try:
                content = await self._followed(None, f"{origin}/robots.txt", begun)
                return Robots(content.decode("utf-8", "replace"), AGENT)
            except FailedFetch as failure:
                try:
                    await asyncio.sleep(tries.wait_after(failure))
                except FailedFetch:
                    if failure.answered and not failure.again:
                        return Robots("", AGENT)
                    is_answer = failure.reason.startswith("http-")
                    return FailedFetch("robots", f"robots.txt: {failure.detail}") if is_answer else failure


def _now() -> float:
    return asyncio.get_running_loop().time()


def outcomes(rows: Iterable[Wanted], options: DownloadOptions) -> Generator[tuple[Wanted, Outcome], None, None]:
    """Yield each row with its sample, or with its files that failed, in the order of the rows.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tarkit-download", daemon=True)
    thread.start()
    fetcher: _Fetcher | None = None

    async def open_fetcher() -> _Fetcher:
        # Host names are looked up in these threads.
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(options.connections, "tarkit-dns"))
        return _Fetcher(options)

    try:
        fetcher = asyncio.run_coroutine_threadsafe(open_fetcher(), loop).result()
        yield from _in_order(iter(rows), fetcher, loop, options.mem)
    finally:
        # A forgotten generator is closed at the end of the program, when the thread is gone.
        if not sys.is_finalizing():
            if fetcher is not None:
                asyncio.run_coroutine_threadsafe(fetcher.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def _in_order(
    rows: Iterator[Wanted], fetcher: _Fetcher, loop: asyncio.AbstractEventLoop, mem: int
) -> Iterator[tuple[Wanted, Outcome]]:
    begun: collections.deque[Wanted] = collections.deque()
    there: dict[int, Outcome | Exception] = {}
    done = started = free = told = values = 0
    is_end = waited = False
    while begun or not is_end:
        # The window is filled before a wait, and every time that a half of it was passed on.
        has_room = len(begun) + _BATCH <= _MOST_ROWS and values <= mem
        if not is_end and has_room and (done not in there or len(begun) <= _MOST_ROWS // 2):
            batch = [*enumerate(itertools.islice(rows, _BATCH), started)]
            is_end = len(batch) < _BATCH
            begun.extend(row for _, row in batch)
            started += len(batch)
            values += sum(_size(row) for _, row in batch)
            loop.call_soon_threadsafe(fetcher.start, batch)
            continue
        if free > mem // 8 or (waited and told != done):
            loop.call_soon_threadsafe(fetcher.room.give, free, done)
            free, told = 0, done
        waited = False
        # Waking the loop for each row would cost as much as a request.
        with suppress(queue.Empty):
            while done not in there:
                time.sleep(_TAKE_SECONDS)
                there.update([fetcher.outcomes.get(timeout=_TELL_SECONDS)])
                while True:
                    there.update([fetcher.outcomes.get_nowait()])
        if done not in there:
            waited = True
            continue
        outcome = there.pop(done)
        if isinstance(outcome, Exception):
            raise outcome
        row = begun.popleft()
        values -= _size(row)
        done += 1
        if isinstance(outcome, dict):
            free += sum(len(outcome[name]) for name, _ in row.sources)
        yield row, outcome


def _size(row: Wanted) -> int:
    return sum(map(len, row.sample.values()))


def fetched(
    rows: Iterable[Wanted], options: DownloadOptions, failed: Callable[[FailedRow], object]
) -> Iterator[Sample]:
    """Yield the samples of the rows whose files were all fetched, in the order of the rows.

    Args:
        options: limits and policies.
        failed: called with each file that failed, before the next sample.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    for _, outcome in outcomes(rows, options):
        if isinstance(outcome, dict):
            yield outcome
        else:
            for each in outcome:
                failed(each)
