"""Parts of remote files on this machine: fetched once, within a bound, and never half of one."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pickle
import random
import resource
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.store.cache import Part, PartCache, default_folder, range_part
from tarkit.store.entries import Identity

URL, IDENTITY = "s3://bucket/a.tar", Identity(10_000, "tag")


def part(number: int, size: int = 1000) -> Part:
    return range_part(URL, IDENTITY, number * 10_000, number * 10_000 + size)


def content(found: Part) -> bytes:
    return random.Random(found.name).randbytes(found.size)


def kept(cache: PartCache, found: Part) -> bytes | None:
    cache.keep(found, lambda: content(found))
    return cache.read(found, found.start, found.start + found.size)


def not_called() -> bytes:
    raise AssertionError("it is fetched again")


def held(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.iterdir() if not entry.name.startswith((".lock-", ".sum")))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith((".lock-", ".sum")))


def test_a_part_is_fetched_once_and_read_in_pieces(tmp_path: Path) -> None:
    cache = PartCache(tmp_path / "a" / "b", 10_000)
    one = part(3)
    assert not cache.has(one) and cache.read(one, 30_000, 30_001) is None
    assert kept(cache, one) == content(one)
    for other in (cache, PartCache(tmp_path / "a" / "b", 10_000), pickle.loads(pickle.dumps(cache))):
        other.keep(one, not_called)
        assert other.has(one) and other.read(one, 30_010, 30_020) == content(one)[10:20]
    assert cache.read(one, 30_990, 31_010) is None, "what is not in it is not cut"
    assert stat.S_IMODE(os.stat(cache.folder).st_mode) == 0o700


def test_what_is_got_is_fetched_once_or_where_it_cannot_be_kept(tmp_path: Path) -> None:
    cache, asked = PartCache(tmp_path, 1000), list[Part]()

    def get(found: Part) -> bytes:
        def fetch() -> bytes:
            asked.append(found)
            return content(found)

        return cache.get(found, fetch)

    assert get(part(1)) == get(part(1)) == content(part(1)) and asked == [part(1)]
    assert get(part(2, 1001)) == content(part(2, 1001)) and not cache.has(part(2, 1001))
    assert cache.keep(part(3), lambda: content(part(3))) == content(part(3))
    assert cache.keep(part(3), not_called) is None


def test_what_makes_another_part() -> None:
    found = [
        range_part(URL, IDENTITY, 0, 10),
        range_part("s3://other/a.tar", IDENTITY, 0, 10),
        range_part(URL, Identity(10_001, "tag"), 0, 10),
        range_part(URL, Identity(10_000, "gat"), 0, 10),
        range_part(URL, IDENTITY, 0, 11),
        range_part(URL, IDENTITY, 1, 11),
        range_part(URL, IDENTITY, 0, 10, "index"),
    ]
    assert len({each.name for each in found}) == len(found)
    assert range_part(URL, Identity(10_000, "tag"), 0, 10) == found[0]


def test_the_bound_holds_and_what_was_used_last_stays(tmp_path: Path) -> None:
    cache, draw = PartCache(tmp_path, 10_000), random.Random(5)
    favourite = part(0, 500)
    for number in range(1, 50):
        kept(cache, favourite)
        # As if it had been used this second.
        os.utime(tmp_path / favourite.name, ns=(0, time.time_ns() + number))
        found = part(number, draw.randrange(1, 3000))
        assert kept(cache, found) == content(found)
        assert held(tmp_path) <= 10_000
        cache.keep(favourite, not_called)
    assert not cache.closed and len(names(tmp_path)) > 2


@pytest.mark.parametrize("use", [lambda cache: cache.read(part(0), 0, 1), lambda cache: kept(cache, part(0))])
def test_reading_and_asking_count_as_use(tmp_path: Path, use: Callable[[PartCache], object]) -> None:
    cache = PartCache(tmp_path, 3000)
    for number in range(3):
        kept(cache, part(number))
        os.utime(tmp_path / part(number).name, (0, number))
    use(cache)
    kept(cache, part(3))
    assert [cache.has(part(number)) for number in range(4)] == [True, False, False, True]


def test_a_part_that_is_larger_than_the_bound_is_not_fetched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = PartCache(tmp_path, 999)
    for _ in range(2):
        cache.keep(part(0), not_called)
    why = "its limit is 999 bytes, 0 of them in use, and a part has 1000; set a larger cache_size"
    assert caplog.messages == [f"cache of shards {tmp_path}: {why}"]
    assert not cache.closed and kept(cache, part(1, 999)) is not None
    with pytest.raises(UsageError, match="cache_size is 0; it must be a number of bytes, at least 1"):
        PartCache(tmp_path, 0)


def test_parts_that_are_being_fetched_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, other = PartCache(tmp_path, 3000), PartCache(tmp_path, 3000)
    kept(cache, part(7))

    def fetch() -> bytes:
        other.keep(part(1), not_called)
        assert kept(other, part(2, 400)) is not None
        assert held(tmp_path) == 2900
        return content(part(0, 2500))

    cache.keep(part(0, 2500), fetch)
    assert cache.has(part(0, 2500)) and not cache.has(part(7)) and held(tmp_path) == 2900
    assert caplog.messages[0].endswith("3000 bytes, 2500 of them in use, and a part has 1000; set a larger cache_size")


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> bytes:
        raise StreamError("the object was changed")

    cache = PartCache(tmp_path, 3000)
    for number in range(20):
        with pytest.raises(StreamError, match=r"^the object was changed$"):
            cache.keep(part(number), fails)
    assert names(tmp_path) == [] and not cache.closed
    assert kept(cache, part(0)) == content(part(0))


@pytest.mark.parametrize("text", [b"", b"-5", b"x" * 20, b"9" * 19])
def test_a_sum_that_is_wrong_is_counted_anew(tmp_path: Path, text: bytes) -> None:
    cache = PartCache(tmp_path, 3000)
    for number in range(3):
        kept(cache, part(number))
    (tmp_path / ".sum").write_bytes(text)
    assert kept(cache, part(3)) is not None
    assert held(tmp_path) <= 3000 and int((tmp_path / ".sum").read_bytes()) == held(tmp_path)


def test_files_of_others_and_parts_of_another_length_are_not_touched_or_believed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    cache = PartCache(tmp_path, 2000)
    kept(cache, part(0))
    os.truncate(tmp_path / part(0).name, 999)
    assert not cache.has(part(0)) and cache.read(part(0), 0, 10) is None
    assert kept(cache, part(0)) == content(part(0))
    kept(cache, part(1))
    kept(cache, part(2))
    assert (tmp_path / "notes.txt").exists() and held(tmp_path) <= 2000


def closed(caplog: pytest.LogCaptureFixture, cache: PartCache, reason: str) -> None:
    """Nothing more is kept, a warning came once, and what is there can be read."""
    for number in range(1, 4):
        cache.keep(part(number), not_called)
    expected = f"cache of shards {cache.folder}: {reason}; all other parts are read from the remote shards"
    assert caplog.messages == [expected] and caplog.records[0].levelno == logging.WARNING
    assert cache.closed and cache.read(part(1), 10_000, 10_001) is None


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that may not grow fails as a full disk does."""
    cache = PartCache(tmp_path, 10**9)
    kept(cache, part(0))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
        cache.keep(part(1, 6000), lambda: bytes(6000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    closed(caplog, cache, "file too large")
    assert names(tmp_path) == [part(0).name] and cache.read(part(0), 0, 1) is not None


def test_a_disk_that_fills_while_a_part_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> None:
        os.write(fd, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tarkit.store.cache.write_all", full)
    cache = PartCache(tmp_path, 10**9)
    assert cache.keep(part(0), lambda: content(part(0))) == content(part(0)), "it need not be fetched again"
    closed(caplog, cache, "no space left on device")
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    closed(caplog, PartCache(tmp_path / "file" / "cache"), "not a directory")


def test_a_folder_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another user has fetched is there, though its time of use cannot be set."""
    PartCache(tmp_path).keep(part(0), lambda: content(part(0)))
    os.utime(tmp_path / part(0).name, (0, 0))

    def refuse(file: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    assert PartCache(tmp_path).read(part(0), part(0).start, part(0).start + part(0).size) == content(part(0))


def test_a_file_system_without_locks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    closed(caplog, PartCache(tmp_path), "no locks available")


def test_where_it_is_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert PartCache().folder == default_folder() == f"{tmp_path}/tarkit/shards"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_folder() == os.path.expanduser("~/.cache/tarkit/shards")


def test_half_of_the_free_disk_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cache has itself is free without it."""
    disk = 8000
    monkeypatch.setattr("shutil.disk_usage", lambda folder: _Usage(disk - held(tmp_path)))
    cache = PartCache(tmp_path)
    for number in range(20):
        kept(cache, part(number))
        assert held(tmp_path) <= 4000
    assert held(tmp_path) >= 3000


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free
