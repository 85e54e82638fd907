"""The HTTP port of the shard service: status page, metrics, health."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service import http
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.http import Page, serving_http
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules
from tarkit.service.requests import Report, ShardRequest
from tarkit.service.serve import status_pages
from tarkit.service.statuspage import StatusPage

pytest.importorskip("grpc", reason="the shard service needs grpcio")
parser = pytest.importorskip("prometheus_client.parser", reason="/metrics needs prometheus-client")

HOSTILE = "<script>alert('x')</script>&\n\x1b[31m"


class Tags(HTMLParser):
    """Text, tags, and whether they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def with_pages(calls: Callable[[Dispatcher, dict[str, Callable[[], Page]]], Any], **rules: Any) -> None:
    """Run ``calls(dispatcher, pages)`` in an event loop."""

    async def run() -> None:
        journal = Journal(":memory:")
        async with Dispatcher(journal, LeaseRules(**rules)) as dispatcher:
            page = StatusPage(dispatcher, "FILE", asyncio.get_running_loop().time)
            page.look()
            await calls(dispatcher, status_pages(dispatcher, page))
        journal.close()

    asyncio.run(run())


def text_of(page: Page) -> str:
    """The page's text, checked to be well formed and without anything from elsewhere."""
    text = page.body.decode()
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.links) == ([], [])
    assert "script" not in tags.seen
    return re.sub(r"<[^>]*>", " ", text.partition("</head>")[2])


def test_nothing_declared() -> None:
    async def calls(dispatcher: Dispatcher, pages: dict[str, Callable[[], Page]]) -> None:
        text = text_of(pages["/"]())
        assert "No data set was declared yet." in text
        assert "No worker has called yet." in text

    with_pages(calls)


def test_progress_workers_and_dead_shards() -> None:
    async def calls(dispatcher: Dispatcher, pages: dict[str, Callable[[], Page]]) -> None:
        await dispatcher.declare(DataSet("photos", 2_000_000, 1, 2))
        ledger = dispatcher.ledger("photos")
        for number in range(1000):
            dispatcher.heard(f"node-{number}")
            await dispatcher.exchange(ledger, f"node-{number}", request=ShardRequest(1))
        _, leases = await dispatcher.exchange(ledger, HOSTILE, request=ShardRequest(5))
        dispatcher.heard(HOSTILE)
        assert isinstance(leases, list)
        failed = Report(leases[0].token, error="<b>no label</b>")
        await dispatcher.exchange(ledger, HOSTILE, [failed, Report(leases[1].token)])
        text = text_of(pages["/"]())
        assert "1 of 4,000,000 shards (0.0%)" in text
        assert "Workers (1,001)" in text and "… and 801 more workers" in text
        assert "node-0" in text and "photos 0-1" in text
        assert "Dead shards (1)" in text and "&lt;b&gt;no label&lt;/b&gt;" in text
        metrics = {
            (sample.name, *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(pages["/metrics"]().body.decode())
            for sample in family.samples
        }
        assert metrics["tarkit_shards_done", "photos"] == 1
        assert metrics["tarkit_shards_dead", "photos"] == 1
        assert metrics["tarkit_shards_leased", "photos"] == 1003
        assert metrics["tarkit_shards_todo", "photos"] == 2_000_000 - 1005
        assert metrics["tarkit_reports_total", "accepted"] == 2
        assert metrics[("tarkit_workers",)] == 1001
        assert metrics[("tarkit_state_writable",)] == 1

    with_pages(calls, errors=1)


def test_the_names_of_shards_are_shown_without_secrets() -> None:
    """Workers need the password of a URL; the page is for all who can read it."""

    async def calls(dispatcher: Dispatcher, pages: dict[str, Callable[[], Page]]) -> None:
        files = [Shard("https://me:c4n4ry@h/a.tar?sig=c4n4ry", 0, 4)]
        await dispatcher.declare(DataSet.of_files("photos", files, 1))
        dispatcher.heard("node")
        _, leases = await dispatcher.exchange(dispatcher.ledger("photos"), "node", request=ShardRequest(2))
        assert isinstance(leases, list) and "c4n4ry" in leases[0].shard.name
        failed = Report(leases[0].token, error="no label")
        await dispatcher.exchange(dispatcher.ledger("photos"), "node", [failed])
        text = text_of(pages["/"]())
        assert "Dead shards (1)" in text and "c4n4ry" not in text
        assert ("https://h/a.tar?sig=… 0-1" in text, "https://h/a.tar?sig=… 1-2" in text) == (True, True)

    with_pages(calls, errors=1)


def test_hostile_names_are_escaped() -> None:
    async def calls(dispatcher: Dispatcher, pages: dict[str, Callable[[], Page]]) -> None:
        await dispatcher.declare(DataSet(f'"{HOSTILE}', 8, 1))
        dispatcher.heard(HOSTILE)
        assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;\\n\\x1b[31m" in text_of(pages["/"]())
        names = [
            sample.labels["dataset"]
            for family in parser.text_string_to_metric_families(pages["/metrics"]().body.decode())
            for sample in family.samples
            if sample.name == "tarkit_shards_todo"
        ]
        assert names == [f'"{HOSTILE}']

    with_pages(calls)


def test_health_is_503_with_the_reason() -> None:
    async def calls(dispatcher: Dispatcher, pages: dict[str, Callable[[], Page]]) -> None:
        assert pages["/healthz"]() == Page(b"ok\n")
        dispatcher._durable.trouble = StreamError("the state cannot be written: disk is full", url="FILE")
        page = pages["/healthz"]()
        assert (page.status, page.body) == (
            503,
            b"no shard is handed out: FILE: the state cannot be written: disk is full\n",
        )
        assert "No shard is handed out: FILE: the state cannot be written" in text_of(pages["/"]())
        dispatcher._durable.trouble = None
        dispatcher.close()
        assert pages["/healthz"]().status == 503

    with_pages(calls)


def asked(address: str, message: bytes) -> bytes:
    """What comes back for bytes."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 120) as connection:
        connection.sendall(message)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_port() -> None:
    def fail() -> Page:
        raise ZeroDivisionError

    async def run() -> None:
        async with serving_http("0", {"/": lambda: Page(b"hello"), "/bug": fail}, insecure=False) as address:

            async def ask(message: bytes) -> bytes:
                return await asyncio.to_thread(asked, address, message)

            answer = await ask(b"GET /?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nhello")
            assert (await ask(b"HEAD / HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n")
            for message, status in (
                (b"POST / HTTP/1.1\r\n\r\n", 405),
                (b"GET /no HTTP/1.1\r\n\r\n", 404),
                (b"\xff\r\n\r\n", 400),
                (b"GET /bug HTTP/1.1\r\n\r\n", 500),
            ):
                assert (await ask(message)).startswith(b"HTTP/1.1 %d " % status)
            # A head without an end is not answered, and harms nothing.
            assert await ask(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000) == b""
            assert (await ask(b"GET / HTTP/1.1\r\n\r\n")).endswith(b"hello")

    asyncio.run(run())


def test_callers_that_are_slow_keep_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.service.http._CONNECTIONS", 3)
    large = Page(b"x" * 50_000_000)
    over = asyncio.Event()
    answer = http._answer

    async def watched(*arguments: Any) -> None:
        try:
            await answer(*arguments)
        finally:
            over.set()

    monkeypatch.setattr(http, "_answer", watched)

    async def run() -> None:
        ahead, loop = 0.0, asyncio.get_running_loop()
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + ahead)
        async with serving_http("0", {"/": lambda: Page(b"hello"), "/large": lambda: large}, insecure=False) as address:
            host, _, port = address.rpartition(":")
            where = host, int(port)
            with socket.create_connection(where) as caller:
                # It asks and does not read: the connection is cut, and not kept until all was read.
                caller.sendall(b"GET /large HTTP/1.1\r\n\r\n")
                assert (await asyncio.to_thread(select.select, [caller], [], [], 120))[0]
                ahead = http._SECONDS
                await asyncio.wait_for(over.wait(), 120)
                caller.settimeout(120)
                received = await asyncio.to_thread(lambda: sum(map(len, iter(lambda: caller.recv(1 << 20), b""))))
                assert 0 < received < len(large.body)
            # Time enough for those that read, on a busy machine, too.
            monkeypatch.setattr("tarkit.service.http._SECONDS", 120.0)
            assert (await asyncio.to_thread(asked, address, b"GET /large HTTP/1.1\r\n\r\n")).endswith(large.body)
            # Many that send nothing: the oldest of them goes, and others are answered.
            silent = [socket.create_connection(where) for _ in range(6)]
            assert (await asyncio.to_thread(asked, address, b"GET / HTTP/1.1\r\n\r\n")).endswith(b"hello")
            for each in silent:
                each.close()
            await asyncio.sleep(0.2)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("listen", "reason"),
    [
        ("x", "is not"),
        ("\u00b2", "is not"),
        ("127.0.0.1:", "is not"),
        ("0.0.0.0:0", "from other machines"),
        ("127.0.0.1:99999", "is not"),
    ],
)
def test_addresses_that_are_refused(listen: str, reason: str) -> None:
    async def run() -> None:
        async with serving_http(listen, {}, insecure=False):
            pass

    with pytest.raises(UsageError, match=reason):
        asyncio.run(run())


def test_the_pages_of_a_service(tmp_path: Path) -> None:
    from shardservice import Service

    with Service(tmp_path, "--dataset", "iris=22", "--http", "0") as running:
        with urllib.request.urlopen(f"http://{running.http}/", timeout=120) as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert b"iris" in answer.read()
        with urllib.request.urlopen(f"http://{running.http}/healthz", timeout=120) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{running.http}/other", timeout=120)
        assert caught.value.code == 404
        caught.value.close()
        running.process.terminate()
        _, _, err = running.end()
        assert err[0].endswith(f"status on http://{running.http}/")
