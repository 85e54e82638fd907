"""Ranges of a remote file: one request each, over connections that stay open, and never wrong
bytes.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gcs_client import gcs_bucket
from httpserver import KINDS, Fault, FaultServer
from s3_client import s3_bucket
from s3proxy import s3_proxy

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.store.entries import identify
from tarkit.store.http.connection import opener
from tarkit.store.ranges import Ranges
from tarkit.store.transfer import copy_file

CONTENT = random.Random(7).randbytes(300_000)
PLACES = [(0, 1), (100, 70_000), (70_000, 299_999), (299_999, 300_000), (5, 6)]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(keeps=True) as server:
        yield server


def check(ranges: Ranges) -> None:
    for start, stop in PLACES:
        assert ranges.read(start, stop) == CONTENT[start:stop]


def test_one_request_for_a_range_and_one_connection_for_a_thread(server: FaultServer) -> None:
    url = server.put("a.bin", CONTENT)
    ranges = Ranges(url)
    assert ranges.identity == identify(url)
    before, asked = server.connections, len(server.requests)
    check(ranges)
    assert ranges.read(7, 7) == b""
    sent = [headers for _, headers in server.requests[asked:]]
    assert [headers["Range"] for headers in sent] == [f"bytes={start}-{stop - 1}" for start, stop in PLACES]
    assert {headers["If-Match"] for headers in sent} == {server.objects["a.bin"].etag}
    assert server.connections == before, "that of the first request is used again"
    threads = [threading.Thread(target=check, args=(ranges,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.connections == before + 2


@pytest.mark.parametrize("keeps", [True, False])
def test_a_server_that_closes_connections(keeps: bool) -> None:
    with FaultServer(keeps=keeps) as server:
        url = server.put("a.bin", CONTENT, always=Fault("hang-up"))
        check(ranges := Ranges(url))
        check(ranges)
        assert len(server.requests) == server.connections == 1 + 2 * len(PLACES)


@pytest.mark.parametrize("at", [1, 40_000])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("stall", "replace")])
def test_an_answer_that_is_not_the_range_is_not_used(server: FaultServer, kind: str, at: int) -> None:
    ranges = Ranges(server.put("a.bin", CONTENT))
    server.objects["a.bin"].faults = [Fault(), Fault(kind, at), Fault(), Fault(kind, at)]
    check(ranges)
    assert Ranges(server.put("a.bin", CONTENT, Fault(kind, at))).read(3, 200_000) == CONTENT[3:200_000]


@pytest.mark.parametrize("conditions", [True, False])
def test_a_file_that_is_replaced_is_an_error(server: FaultServer, conditions: bool) -> None:
    ranges = Ranges(server.put("a.bin", CONTENT, conditions=conditions))
    assert ranges.read(0, 10) == CONTENT[:10]
    server.objects["a.bin"].faults = [Fault("replace")]
    for _ in range(5):
        with pytest.raises(TemporaryStreamError, match=r"a\.bin: was replaced while it was read"):
            ranges.read(0, 10)
    del server.objects["a.bin"]
    with pytest.raises((MissingInputError, StreamError)):
        ranges.read(0, 10)


def test_files_that_cannot_be_opened(server: FaultServer) -> None:
    with pytest.raises(MissingInputError, match="404"):
        Ranges(f"http://{server.host}/missing.bin")
    assert len(server.requests) == 1
    with pytest.raises(UsageError, match="is not a URL"):
        Ranges("http:///a.bin")


@pytest.mark.parametrize(("etag", "always"), [("", None), ('"1"', Fault("no-range"))])
def test_a_server_without_ranges_or_marks(
    server: FaultServer, etag: str, always: Fault | None, caplog: pytest.LogCaptureFixture
) -> None:
    ranges = Ranges(server.put("a.bin", CONTENT, etag=etag, always=always))
    assert ranges.identity.size == len(CONTENT)
    check(ranges)
    warning = "does not send parts of files"
    assert [warning in each and server.host in each for each in caplog.messages] == [True]  # once


def test_redirects_are_followed_for_each_range(server: FaultServer) -> None:
    target = server.put("a.bin", CONTENT)
    moved = Fault("status", status=302, headers=(("Location", target),))
    check(Ranges(server.put("moved.bin", b"", always=moved)))
    assert len(server.asked("a.bin")) == len(server.asked("moved.bin")) == 1 + len(PLACES)
    with pytest.raises(StreamError, match="redirected 10 times"):
        away = f"http://{server.host}/loop.bin"
        Ranges(server.put("loop.bin", b"", always=Fault("status", status=302, headers=(("Location", away),))))


def test_few_connections_are_kept(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.store.http.kept._MOST_KEPT", 1)
    with FaultServer(keeps=True) as other:
        both = [Ranges(each.put("a.bin", CONTENT)) for each in (server, other)]
        for ranges in (*both, *both):
            check(ranges)
        assert (server.connections, other.connections) == (3, 3)


def test_through_a_proxy(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.host}")
    opener.cache_clear()
    try:
        server.put("http://far.example/a.bin", CONTENT)
        check(Ranges("http://far.example/a.bin"))
    finally:
        opener.cache_clear()
    assert len(server.requests) == 1 + len(PLACES)


def _reads(ranges: Ranges, answer: str) -> None:
    check(ranges)
    Path(answer).touch()


def test_a_process_that_is_forked_has_its_own_connections(server: FaultServer, tmp_path: Path) -> None:
    ranges = Ranges(server.put("a.bin", CONTENT))
    check(ranges)
    for number in range(2):
        child = multiprocessing.get_context("fork").Process(target=_reads, args=(ranges, str(tmp_path / f"{number}")))
        child.start()
        child.join()
        check(ranges)
    assert len(list(tmp_path.iterdir())) == 2
    assert server.connections == 3


def test_s3_ranges_cost_one_request_each(s3_endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    with s3_proxy(s3_endpoint) as proxy, s3_bucket(s3_endpoint, proxy.endpoint) as bucket:
        url = bucket.url("a.bin")
        copy_file(str(tmp_path / "a.bin"), url)
        ranges = Ranges(url)
        assert ranges.identity == identify(url)
        proxy.seen.clear()
        check(ranges)
        assert [name for name, _ in proxy.seen] == ["get"] * len(PLACES)
        (tmp_path / "a.bin").write_bytes(CONTENT[::-1])
        copy_file(str(tmp_path / "a.bin"), url)
        with pytest.raises(StreamError, match=r"a\.bin.*was replaced while it was read"):
            ranges.read(0, 10)


def test_gcs_ranges(gcs_endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    with gcs_bucket(gcs_endpoint) as bucket:
        url = bucket.url("a.bin")
        copy_file(str(tmp_path / "a.bin"), url)
        ranges = Ranges(url)
        assert ranges.identity == identify(url)
        check(ranges)
