"""The HTTP port of the shard service: status page, metrics, health."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service import http
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher, Report, ShardRequest
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules

pytest.importorskip("grpc", reason="the shard service needs grpcio")
parser = pytest.importorskip("prometheus_client.parser", reason="/metrics needs prometheus-client")

HOSTILE = "<script>alert('x')</script>&\n\x1b[31m"
Ask = Callable[[str], Awaitable[tuple[int, str]]]


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


def with_pages(calls: Callable[[Dispatcher, Ask], Any], **rules: Any) -> None:
    """Run ``calls(dispatcher, ask)`` in an event loop; ``ask(path)`` gives the status and text of a page."""

    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal, LeaseRules(**rules)) as dispatcher,
            http.serving_http("0", dispatcher, "FILE", insecure=False) as address,
        ):

            def asked(path: str) -> tuple[int, str]:
                try:
                    with urllib.request.urlopen(f"http://{address}{path}", timeout=120) as answer:
                        return answer.status, answer.read().decode()
                except urllib.error.HTTPError as error:
                    with error:
                        return error.code, error.read().decode()

            await calls(dispatcher, lambda path: asyncio.to_thread(asked, path))
        journal.close()

    asyncio.run(run())


async def text_of(ask: Ask) -> str:
    """The page's text, checked to be well formed and without anything from elsewhere."""
    _, text = await ask("/")
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.links) == ([], [])
    assert "script" not in tags.seen
    return re.sub(r"<[^>]*>", " ", text.partition("</head>")[2])


async def samples_of(ask: Ask) -> dict[tuple[str, ...], float]:
    """Name and labels -> value of each metric."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families((await ask("/metrics"))[1])
        for sample in family.samples
    }


def test_progress_workers_and_dead_shards() -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        await dispatcher.declare(DataSet("photos", 2_000_000, 1, 2))
        ledger = dispatcher.ledger("photos")
        for number in range(300):
            dispatcher.heard(f"node-{number}")
            await dispatcher.exchange(ledger, f"node-{number}", request=ShardRequest(1))
        _, leases = await dispatcher.exchange(ledger, HOSTILE, request=ShardRequest(5))
        dispatcher.heard(HOSTILE)
        assert isinstance(leases, list)
        failed = Report(leases[0].token, error="<b>no label</b>")
        await dispatcher.exchange(ledger, HOSTILE, [failed, Report(leases[1].token)])
        text = await text_of(ask)
        assert "1 of 4000000 shards done (0%), 1 dead, 301 workers" in text
        assert "Workers (301)" in text and "… and 201 more" in text
        assert "node-0" in text and "photos 0-1" in text
        assert "Dead shards (1)" in text and "&lt;b&gt;no label&lt;/b&gt;" in text
        metrics = await samples_of(ask)
        assert metrics["tarkit_shards_done", "photos"] == 1
        assert metrics["tarkit_shards_dead", "photos"] == 1
        assert metrics["tarkit_shards_leased", "photos"] == 303
        assert metrics["tarkit_shards_todo", "photos"] == 2_000_000 - 305
        assert metrics["tarkit_reports_total", "accepted"] == 2
        assert metrics[("tarkit_workers",)] == 301
        assert metrics[("tarkit_state_writable",)] == 1

    with_pages(calls, errors=1)


def test_the_metrics_are_on_the_page_and_nothing_else_before_a_data_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "shard-service.md").read_text("utf-8")
    written = re.findall(r"`(tarkit_\w+)`", page.partition("| metric |")[2].partition("## ")[0])

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        assert sorted(written) == sorted(set(re.findall(r"# TYPE (\w+)", (await ask("/metrics"))[1])))
        text = await text_of(ask)
        assert "No data set was declared yet." in text and "No worker has called yet." in text
        assert await ask("/no") == (404, "the pages are /, /metrics, /healthz\n")

    with_pages(calls)


def test_the_names_of_shards_are_shown_without_secrets() -> None:
    """Workers need the password of a URL; the page is for all who can read it."""

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        files = [Shard("https://me:c4n4ry@h/a.tar?sig=c4n4ry", 0, 4)]
        await dispatcher.declare(DataSet.of_files("photos", files, 1))
        dispatcher.heard("node")
        _, leases = await dispatcher.exchange(dispatcher.ledger("photos"), "node", request=ShardRequest(2))
        assert isinstance(leases, list) and "c4n4ry" in leases[0].shard.name
        failed = Report(leases[0].token, error="no label")
        await dispatcher.exchange(dispatcher.ledger("photos"), "node", [failed])
        text = await text_of(ask)
        assert "Dead shards (1)" in text and "c4n4ry" not in text
        assert ("https://h/a.tar?sig=… 0-1" in text, "https://h/a.tar?sig=… 1-2" in text) == (True, True)

    with_pages(calls, errors=1)


def test_hostile_names_are_escaped() -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        await dispatcher.declare(DataSet(f'"{HOSTILE}', 8, 1))
        dispatcher.heard(HOSTILE)
        assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;\\n\\x1b[31m" in await text_of(ask)
        assert (await samples_of(ask))["tarkit_shards_todo", f'"{HOSTILE}'] == 0

    with_pages(calls)


def test_health_is_503_with_the_reason() -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        assert await ask("/healthz") == (200, "ok\n")
        dispatcher._durable.trouble = StreamError("the state cannot be written: disk is full", url="FILE")
        reason = "no shard is handed out: FILE: the state cannot be written: disk is full\n"
        assert await ask("/healthz") == (503, reason)
        assert "No shard is handed out: FILE: the state cannot be written" in await text_of(ask)
        dispatcher._durable.trouble = None
        dispatcher.close()
        assert await ask("/healthz") == (503, "the service is stopping\n")

    with_pages(calls)


def test_callers_that_are_slow_are_cut_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http._Handler, "timeout", 0.5)

    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal) as dispatcher,
            http.serving_http("0", dispatcher, "FILE", insecure=False) as address,
        ):
            host, _, port = address.rpartition(":")
            silent = [socket.create_connection((host, int(port)), 120) for _ in range(20)]
            asked = await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/healthz", None, 120)
            with asked:
                assert asked.read() == b"ok\n"
            for each in silent:
                assert await asyncio.to_thread(each.recv, 100) == b"", "it was not cut"
                each.close()
            # One that asks, and reads nothing for longer than that.
            monkeypatch.setattr(http, "status_page", lambda *_: "x" * 50_000_000)
            with socket.create_connection((host, int(port)), 120) as caller:
                caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert (await asyncio.to_thread(select.select, [caller], [], [], 120))[0]
                await asyncio.sleep(3)
                received = await asyncio.to_thread(lambda: sum(map(len, iter(lambda: caller.recv(1 << 20), b""))))
                assert 0 < received < 50_000_000
        journal.close()

    asyncio.run(run())
    assert capfd.readouterr().err == ""


def test_an_unexpected_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        monkeypatch.setattr(http, "status_page", lambda *_: 1 // 0)
        assert await ask("/") == (500, "this is a bug in tarkit; see the messages of the service\n")

    with_pages(calls)
    (record,) = caplog.records
    assert record.getMessage().startswith("unexpected ZeroDivisionError: ")
    assert capfd.readouterr().err == ""


def test_an_address_of_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("NO IPV6 HERE")

    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal) as dispatcher,
            http.serving_http("[::1]:0", dispatcher, "FILE", insecure=False) as address,
        ):
            with await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/healthz", None, 120) as asked:
                assert asked.read() == b"ok\n"
        journal.close()

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
        dispatcher = Dispatcher(Journal(":memory:"))
        async with http.serving_http(listen, dispatcher, "FILE", insecure=False):
            pass

    with pytest.raises(UsageError, match=reason):
        asyncio.run(run())
