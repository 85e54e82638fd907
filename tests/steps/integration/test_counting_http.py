"""A shard on a server is counted, drawn and picked from with few bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from httpserver import Fault, FaultServer

from tarkit import TarWriter
from tarkit.samples.index import build_index
from tarkit.steps.counting import HEADERS, INDEX, WHOLE, count_shards
from tarkit.steps.drawing import draw_fraction, draw_number
from tarkit.steps.picking import pick_samples

SIZE, SAMPLES = 1_000_000, 20


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture(scope="module")
def large() -> bytes:
    out = io.BytesIO()
    with TarWriter(out) as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number:03d}", "cls": number, "bin": bytes([number]) * SIZE})
    return out.getvalue()


def small() -> bytes:
    out = io.BytesIO()
    with TarWriter(out) as writer:
        for number in range(2000):
            writer.write({"__key__": f"{number:04d}", "bin": os.urandom(1000)})
    return out.getvalue()


def test_headers_of_large_members_are_less_than_a_percent(server: FaultServer, large: bytes) -> None:
    url = server.put("x.tar", large)
    (count,) = count_shards([url])
    assert (count.source, count.samples, count.sizes["bin"]) == (HEADERS, SAMPLES, SAMPLES * SIZE)
    assert server.sent < 0.01 * len(large)
    assert len(server.asked("x.tar")) <= SAMPLES + 5


def test_small_members_take_few_requests(server: FaultServer) -> None:
    url = server.put("x.tar", content := small())
    (count,) = count_shards([url])
    assert (count.samples, count.sizes["bin"]) == (2000, 2_000_000)
    assert server.sent < 1.1 * len(content)
    assert len(server.asked("x.tar")) <= 12


def test_a_server_without_ranges_sends_a_shard_once(server: FaultServer, large: bytes) -> None:
    url = server.put("x.tar", large, always=Fault("no-range"))
    (count,) = count_shards([url])
    assert (count.source, count.samples) == (WHOLE, SAMPLES)
    whole = [headers for headers in server.asked("x.tar") if "Range" not in headers]
    assert len(whole) == 1


def test_a_changed_shard_is_an_error(server: FaultServer, large: bytes) -> None:
    url = server.put("x.tar", large, *[Fault()] * 8, Fault("replace"))
    (count,) = count_shards([url])
    assert count.error is not None and count.error.exit_code == 75


def test_an_index_at_the_server_saves_the_shard(server: FaultServer, large: bytes) -> None:
    url = server.put("x.tar", large)
    server.put("x.idx", build_index(url).encode())
    server.sent = 0
    (count,) = count_shards([url])
    assert (count.source, count.samples) == (INDEX, SAMPLES)
    before = server.sent
    assert before < 1.2 * SIZE, "its end is compared with the index"
    (sample,) = draw_number([url], 1, seed=3)
    assert sample["bin"] == bytes([int(sample["cls"])]) * SIZE
    assert server.sent - 2 * before < 1.1 * SIZE + 2 * SIZE, "counted, opened again, and one sample read"


def test_keys_are_picked_by_one_range_each(server: FaultServer, large: bytes) -> None:
    url = server.put("x.tar", large)
    server.put("x.idx", build_index(url).encode())
    server.requests.clear()
    assert [sample["__key__"] for sample in pick_samples(["017", "002"], [url], parallel=2)] == ["002", "017"]
    wanted = [h["Range"] for h in server.asked("x.tar") if "Range" in h]
    spans = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in wanted]
    assert len([1 for begin, end in spans if SIZE < end + 1 - begin < SIZE + 3000 and begin < 18 * SIZE]) == 2
    unindexed: list[tuple[str, bool]] = []
    server.objects.pop("x.idx")
    server.sent = 0
    found = pick_samples(["004"], [url], unindexed=lambda *each: unindexed.append(each))
    assert [sample["cls"] for sample in found] == [b"4"] and unindexed == [(url, False)]
    assert server.sent < 1.3 * SIZE, "the headers, and the sample"


def test_a_fraction_with_an_index_is_that_without(server: FaultServer) -> None:
    url = server.put("x.tar", small())
    whole = list(draw_fraction([url], 0.01, seed=1))
    server.put("x.idx", build_index(url).encode())
    server.requests.clear()
    assert list(draw_fraction([url], 0.01, seed=1, parallel=4)) == whole
    assert 0 < len(whole) <= len(server.asked("x.tar")) < len(whole) + 10
