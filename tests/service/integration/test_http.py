"""The HTTP port of the shard service: status page, metrics, health."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service import checkpoint, statuspage
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules, Report, TaskRequest

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


def with_pages(
    calls: Callable[[Dispatcher, Ask], Any], clock: Callable[[], float] = time.monotonic, **rules: Any
) -> None:
    """Run ``calls(dispatcher, ask)`` in an event loop.

    ``ask(path)`` gives the status and text of a page.
    """

    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal, LeaseRules(**rules), clock=clock, tick=0.02) as dispatcher,
            statuspage.serving_http("0", dispatcher, "FILE", insecure=False) as address,
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


async def ticked(dispatcher: Dispatcher) -> None:
    """Return when it has looked at its leases at the time that it is now."""
    dispatcher._ticked -= 1.0
    until = dispatcher._clock()
    while dispatcher._ticked < until:
        await asyncio.sleep(0.01)


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
            await dispatcher.exchange(ledger, f"node-{number}", request=TaskRequest(1))
        _, leases = await dispatcher.exchange(ledger, HOSTILE, request=TaskRequest(5))
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
        assert metrics["tarkit_workers", "photos"] == 301
        assert metrics[("tarkit_state_writable",)] == 1

    with_pages(calls, errors=1)


def test_epochs_that_are_leased_ahead_are_not_the_epoch_that_is_at_work() -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        await dispatcher.declare(DataSet("photos", 4, 1, 5))
        ledger = dispatcher.ledger("photos")

        async def shown(text: str, done: int) -> None:
            assert text in await text_of(ask)
            metrics = await samples_of(ask)
            assert (metrics["tarkit_epoch", "photos"], metrics["tarkit_epochs_done", "photos"]) == (ledger.epoch, done)

        assert (await samples_of(ask))["tarkit_epochs_done", "photos"] == 0
        _, leases = await dispatcher.exchange(ledger, "a", request=TaskRequest(14))
        assert isinstance(leases, list)
        await shown("epoch 1 of 5 (leased ahead to 4), 0 of 20 shards done (0%)", 0)
        for lease in [*leases[4:], *leases[:3]]:
            await dispatcher.exchange(ledger, "a", [Report(lease.token)])
        await shown("epoch 1 of 5 (leased ahead to 4), 13 of 20 shards done (65%)", 0)
        # A shard that is dead holds no epoch up. The epoch after the others has shards that nobody
        # has.
        await dispatcher.exchange(ledger, "a", [Report(leases[3].token, error="no label")])
        await shown("epoch 4 of 5, 13 of 20 shards done (70%), 1 dead", 3)
        _, leases = await dispatcher.exchange(ledger, "a", request=TaskRequest(6))
        assert isinstance(leases, list)
        saved = checkpoint.checkpoint(ledger)
        await dispatcher.exchange(ledger, "a", [Report(lease.token) for lease in leases])
        await shown("epoch 5 of 5, 19 of 20 shards done (100%), 1 dead", 5)
        await dispatcher.restore(ledger, saved)
        await shown("epoch 4 of 5 (leased ahead to 5), 13 of 20 shards done", 3)

    with_pages(calls, errors=1)


def test_workers_of_each_data_set_and_leases_that_were_lost() -> None:
    """Workers that are silent and lost are none; one that waits for the shards of others is one."""
    clock = [0.0]

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        for name in ("photos", "rows"):
            await dispatcher.declare(DataSet(name, 2, 1))
        photos, rows = dispatcher.ledger("photos"), dispatcher.ledger("rows")

        async def counted() -> list[float]:
            metrics = await samples_of(ask)
            names = ("tarkit_workers", "tarkit_leases_lost_total")
            return [metrics[name, dataset] for name in names for dataset in ("photos", "rows")]

        _, leases = await dispatcher.exchange(photos, "silent", request=TaskRequest(2))
        dispatcher.heard("silent")
        dispatcher.heard("busy")
        await dispatcher.exchange(rows, "busy", request=TaskRequest(1))
        waiting = asyncio.create_task(dispatcher.exchange(photos, "waits", request=TaskRequest(1, 1000.0)))
        await asyncio.sleep(0)
        assert await counted() == [2, 1, 0, 0]
        assert "Workers (3)" in await text_of(ask)
        # One that has reported, and not asked again, is at work on its batch.
        assert isinstance(leases, list)
        await dispatcher.exchange(photos, "silent", [Report(leases[1].token)])
        assert await counted() == [2, 1, 0, 0]
        for _ in range(2):
            dispatcher.heard("busy")
            clock[0] += 1.0
            await ticked(dispatcher)
        _, leases = await waiting
        assert isinstance(leases, list)
        assert await counted() == [1, 1, 1, 0]
        assert "Workers (2)" in await text_of(ask)
        dispatcher._lose("waits")
        dispatcher._lose("busy")
        assert await counted() == [0, 0, 2, 1]
        text = await text_of(ask)
        assert "Workers (0)" in text and "No worker holds a shard or waits for one." in text
        assert "lost leases" in text

    with_pages(calls, clock=lambda: clock[0], first=1.5, floor=1.5)


def test_the_rate_of_each_data_set_is_that_of_shards_that_were_done() -> None:
    """A checkpoint that is restored has done shards that nobody did in this minute."""
    clock = [0.0]

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        for name in ("photos", "rows"):
            await dispatcher.declare(DataSet(name, 100, 1))
        photos = dispatcher.ledger("photos")

        async def passed(seconds: float) -> list[float]:
            await ticked(dispatcher)
            clock[0] += seconds
            await ticked(dispatcher)
            metrics = await samples_of(ask)
            return [metrics["tarkit_shards_per_second", name] for name in ("photos", "rows")]

        assert await passed(1.0) == [0.0, 0.0]
        _, leases = await dispatcher.exchange(photos, "a", request=TaskRequest(50))
        assert isinstance(leases, list)
        await dispatcher.exchange(photos, "a", [Report(lease.token) for lease in leases])
        saved = checkpoint.checkpoint(photos)
        assert await passed(9.0) == [5.0, 0.0]
        await dispatcher.reset(photos)
        assert await passed(1.0) == [0.0, 0.0]
        await dispatcher.restore(photos, saved)
        assert await passed(1.0) == [0.0, 0.0]

    with_pages(calls, clock=lambda: clock[0])


def test_the_metrics_are_on_the_page_and_nothing_else_before_a_data_set() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "shard-service.md").read_text("utf-8")
    written = re.findall(r"`(tarkit_\w+)`", page.partition("| metric |")[2].partition("## ")[0])

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        assert sorted(written) == sorted(set(re.findall(r"# TYPE (\w+)", (await ask("/metrics"))[1])))
        text = await text_of(ask)
        assert "No data set was declared yet." in text and "No worker holds a shard or waits for one." in text
        assert await ask("/no") == (404, "the pages are /, /metrics, /healthz\n")

    with_pages(calls)


def test_the_names_of_shards_are_shown_without_secrets() -> None:
    """Workers need the password of a URL; the page is for all who can read it."""

    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        files = [Shard("https://me:c4n4ry@h/a.tar?sig=c4n4ry", 0, 4)]
        await dispatcher.declare(DataSet.of_files("photos", files, 1))
        dispatcher.heard("node")
        _, leases = await dispatcher.exchange(dispatcher.ledger("photos"), "node", request=TaskRequest(2))
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
        with dispatcher.attend(HOSTILE):
            escaped = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;\\n\\x1b[31m"
            assert (await text_of(ask)).count(escaped) == 2, "a data set and a worker have that name"
        assert (await samples_of(ask))["tarkit_shards_todo", f'"{HOSTILE}'] == 0

    with_pages(calls)


def test_health_is_503_with_the_reason() -> None:
    async def calls(dispatcher: Dispatcher, ask: Ask) -> None:
        assert await ask("/healthz") == (200, "ok\n")
        dispatcher._commits.trouble = StreamError("the state cannot be written: disk is full", url="FILE")
        reason = "no shard is handed out: FILE: the state cannot be written: disk is full\n"
        assert await ask("/healthz") == (503, reason)
        assert "No shard is handed out: FILE: the state cannot be written" in await text_of(ask)
        dispatcher._commits.trouble = None
        dispatcher.close()
        assert await ask("/healthz") == (503, "the service is stopping\n")

    with_pages(calls)


def test_callers_that_are_slow_are_cut_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(statuspage._Handler, "timeout", 0.5)

    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal) as dispatcher,
            statuspage.serving_http("0", dispatcher, "FILE", insecure=False) as address,
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
            monkeypatch.setattr(statuspage, "status_page", lambda *_: "x" * 50_000_000)
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
        monkeypatch.setattr(statuspage, "status_page", lambda *_: 1 // 0)
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
            statuspage.serving_http("[::1]:0", dispatcher, "FILE", insecure=False) as address,
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
        async with statuspage.serving_http(listen, dispatcher, "FILE", insecure=False):
            pass

    with pytest.raises(UsageError, match=reason):
        asyncio.run(run())
