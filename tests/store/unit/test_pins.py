"""Parts that a process needs soon stay in the cache; neighbours are kept by one request."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path

import pytest

from tarkit.errors import StreamError
from tarkit.store.cache import Part, PartCache, range_part
from tarkit.store.entries import Identity

SIZE = 1000


def part(number: int) -> Part:
    return range_part("s3://bucket/a.tar", Identity(10**6, "tag"), number * SIZE, (number + 1) * SIZE)


def content(begin: int, end: int) -> bytes:
    return random.Random(5).randbytes(100 * SIZE)[begin:end]


def keep(cache: PartCache, *numbers: int) -> int | None:
    return cache.keep_now([part(number) for number in numbers], content)


def there(cache: PartCache, most: int = 20) -> list[int]:
    return [number for number in range(most) if cache.has(part(number))]


def test_a_pinned_part_is_not_removed(tmp_path: Path) -> None:
    cache, other = PartCache(tmp_path, 3 * SIZE), PartCache(tmp_path, 3 * SIZE)
    for number in range(2):
        cache.pin(part(number))
        assert keep(cache, number) == 1
        os.utime(tmp_path / part(number).name, (number, number))
    other.pin(part(0))
    assert [keep(other, number) for number in (2, 3, 4)] == [1, 1, 1] and there(cache) == [0, 1, 4]
    cache.unpin(part(0))
    cache.unpin(part(1))
    assert keep(cache, 5) == 1 and there(cache) == [0, 5], "the other one needs it still"
    other.unpin(part(0))
    assert [keep(cache, number) for number in (6, 7)] == [1, 1] and 0 not in there(cache)


def test_there_is_no_room_if_all_is_pinned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = PartCache(tmp_path, 2 * SIZE)
    for number in range(2):
        cache.pin(part(number))
        keep(cache, number)
    assert keep(cache, 2) is None and not caplog.messages
    cache.keep(part(2), lambda: pytest.fail("it is fetched, and not kept"))
    assert caplog.messages == [
        f"cache of shards {tmp_path}: its limit is 2000 bytes, 2000 of them in use, and a part has 1000; "
        "set a larger cache_size"
    ]
    cache.unpin(part(0))
    assert keep(cache, 2) == 1 and there(cache) == [1, 2]


def test_neighbours_are_kept_by_one_request(tmp_path: Path) -> None:
    cache, asked = PartCache(tmp_path, 100 * SIZE), []

    def fetch(begin: int, end: int) -> bytes:
        asked.append((begin, end))
        return content(begin, end)

    assert cache.keep_now([part(number) for number in (3, 4, 5)], fetch) == 3
    assert cache.keep_now([part(3)], fetch) == 1
    assert cache.keep_now([part(number) for number in (2, 3, 4)], fetch) == 1, "up to the one that is there"
    assert asked == [(3000, 6000), (2000, 3000)]
    for number in range(2, 6):
        begin, end = number * SIZE, (number + 1) * SIZE
        assert cache.read(part(number), begin, end) == content(begin, end)


def test_a_part_that_is_fetched_elsewhere_is_not_waited_for(tmp_path: Path) -> None:
    cache = PartCache(tmp_path, 100 * SIZE)

    def fetch(begin: int, end: int) -> bytes:
        assert keep(PartCache(tmp_path), 3) == 0
        assert keep(PartCache(tmp_path), 2, 3) == 1
        return content(begin, end)

    assert cache.keep_now([part(3)], fetch) == 1
    assert there(cache) == [2, 3]


def test_neighbours_that_cannot_be_fetched_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PartCache(tmp_path, 100 * SIZE)

    def fetch(begin: int, end: int) -> bytes:
        raise StreamError("it is gone")

    with pytest.raises(StreamError, match="it is gone"):
        cache.keep_now([part(1), part(2)], fetch)
    assert not there(cache) and not list(tmp_path.glob("*.part*")) and not cache.closed
    assert keep(cache, 1, 2) == 2
    assert cache.keep_now([part(5), part(6)], lambda begin, end: b"too short") is None
    assert cache.closed and keep(cache, 8) is None
    cache.pin(part(8))
    cache.unpin(part(8))
    refused = PartCache(tmp_path)
    monkeypatch.setattr(fcntl, "lockf", lambda *_: (_ for _ in ()).throw(OSError(37, "No locks available")))
    refused.pin(part(9))
    assert refused.closed
