"""Reading through fsspec over a filesystem that fails on schedule."""

from __future__ import annotations

import base64
import errno
import io
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import google_crc32c
import pytest
from fsspec.registry import _registry
from times import Times, fast

from tarkit.errors import MissingInputError, StreamError, TarkitError, TemporaryStreamError
from tarkit.store.faults import is_temporary
from tarkit.store.read import open_read

DATA = random.Random(0).randbytes(200_000)
CANARY = "c4n4ry-t0k3n-4712"


class _FlakyFile(io.BytesIO):
    """Fails where it is told to."""

    def __init__(self, fs: _FlakyFilesystem) -> None:
        super().__init__(fs.content)
        self.fs = fs
        self.fault = fs.faults.pop(0) if fs.faults else None

    def read(self, count: int | None = -1) -> bytes:
        if self.fault is not None:
            at, what = self.fault
            if self.tell() >= at:
                self.fault = None
                if what is None:
                    # What fsspec's caches do when the answer of a store is cut.
                    return b""
                raise what
            count = min(count or 0, at - self.tell())
        return super().read(count)

    def close(self) -> None:
        self.fs.closed += 1
        super().close()


class _FlakyFilesystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    protocol = "gs"
    cachable = False
    content = DATA
    facts: dict[str, Any] = {}
    faults: list[tuple[int, Exception | None]] = []
    on_info: list[Exception] = []
    forgotten = opened = closed = 0

    def invalidate_cache(self, path: str | None = None) -> None:
        type(self).forgotten += 1

    def info(self, path: str, **options: object) -> dict[str, Any]:
        if self.on_info:
            raise self.on_info.pop(0)
        return {"name": path, "type": "file", "size": len(self.content), **self.facts}

    def open(self, path: str, mode: str = "rb", **options: object) -> _FlakyFile:
        type(self).opened += 1
        return _FlakyFile(type(self))  # type: ignore[arg-type]


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_FlakyFilesystem]]:
    monkeypatch.setitem(_registry, "gs", _FlakyFilesystem)
    fs = _FlakyFilesystem
    fs.content, fs.facts, fs.faults, fs.on_info = DATA, {}, [], []
    fs.forgotten = fs.opened = fs.closed = 0
    yield fs
    assert fs.opened == fs.closed


def read(step: int = 30_000, read_ahead: int = 1 << 20, **retry: Any) -> bytes:
    with open_read("gs://b/x", retry=fast(**retry), read_ahead=read_ahead, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(step), b""))


class _WithStatus(Exception):
    def __init__(self, **fields: object) -> None:
        super().__init__("said")
        self.__dict__.update(fields)


def _named(name: str) -> Exception:
    error: Exception = type(name, (Exception,), {})("said")
    return error


TEMPORARY: list[Exception] = [
    TimeoutError("slow"),
    ConnectionResetError("reset"),
    OSError(errno.EBUSY, "SlowDown"),
    OSError(errno.EIO, "InternalError"),
    _WithStatus(status=503),
    _WithStatus(code=429),
    _WithStatus(code="500"),
    _WithStatus(response=_WithStatus(status_code=408)),
    _named("ClientPayloadError"),
    _named("ChunkedEncodingError"),
    EOFError("cut"),
]
PERMANENT: list[Exception] = [
    PermissionError(errno.EACCES, "denied"),
    OSError(errno.EINVAL, "bad"),
    ValueError("what"),
    RuntimeError("?"),
    _WithStatus(status=403),
    _WithStatus(response=_WithStatus(status_code=400)),
    FileNotFoundError("gone"),
]


@pytest.mark.parametrize("error", TEMPORARY, ids=repr)
def test_mended(flaky: type[_FlakyFilesystem], error: Exception) -> None:
    assert is_temporary(error)
    flaky.faults = [(50_000, error), (0, error), (60_001, error)]
    flaky.on_info = [error]
    assert read() == DATA
    assert flaky.opened == 4
    # Each time, and at the end, the store is asked anew.
    assert flaky.forgotten == 6


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_not_tried_again(flaky: type[_FlakyFilesystem], error: Exception) -> None:
    assert not is_temporary(error)
    flaky.faults = [(50_000, error)]
    with pytest.raises(TarkitError) as caught:
        read()
    assert not isinstance(caught.value, TemporaryStreamError)
    assert getattr(caught.value, "offset", None) == 50_000
    assert flaky.opened == 1


def test_missing_and_folder(flaky: type[_FlakyFilesystem]) -> None:
    flaky.on_info = [FileNotFoundError("x")]
    with pytest.raises(MissingInputError, match="gs://b/x: no such file"):
        read()
    flaky.facts = {"type": "directory"}
    with pytest.raises(StreamError, match="is a directory"):
        read()


def test_short_reads_are_not_an_end(flaky: type[_FlakyFilesystem]) -> None:
    flaky.faults = [(50_000, None), (50_000, None), (150_000, None)]
    assert read() == DATA
    flaky.faults = [(50_000, None)] * 9
    with pytest.raises(TemporaryStreamError, match="50000 bytes came, but the object has 200000; failed after 8"):
        read()


def change_content(fs: type[_FlakyFilesystem]) -> None:
    fs.content = DATA[:-1]


@pytest.mark.parametrize("mark", ["ETag", "generation", "mtime", "LastModified", "modificationTime"])
@pytest.mark.parametrize("fault", [True, False])
def test_changed(flaky: type[_FlakyFilesystem], mark: str, fault: bool) -> None:
    flaky.facts = {mark: "old"}
    flaky.faults = [(50_000, TimeoutError())] if fault else []
    with open_read("gs://b/x", retry=fast(), read_ahead=0, compression=None) as stream:
        got = stream.read(10)
        flaky.facts = {mark: "new"}
        with pytest.raises(StreamError, match=f"changed while it was read: its {mark} is different") as caught:
            while data := stream.read(30_000):
                got += data
    assert got == (DATA[:50_000] if fault else DATA)
    assert caught.value.offset == len(got)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_content, "its size is different"),
        (lambda fs: fs.on_info.append(FileNotFoundError("x")), "it was removed"),
        (lambda fs: fs.faults.append((0, _named("FileExpired"))), "changed while it was read"),
    ],
)
def test_replaced(flaky: type[_FlakyFilesystem], change: Callable[[type[_FlakyFilesystem]], None], said: str) -> None:
    flaky.faults = [(50_000, TimeoutError())]
    with open_read("gs://b/x", retry=fast(), read_ahead=0, compression=None) as stream:
        assert stream.read(10) == DATA[:10]
        change(flaky)
        with pytest.raises(StreamError, match=said):
            while stream.read(30_000):
                pass


def test_longer_than_the_store_says(flaky: type[_FlakyFilesystem]) -> None:
    flaky.facts = {"size": 199_999}
    with pytest.raises(StreamError, match="200000 bytes came, but the object has 199999"):
        read()


def test_checksum_of_gcs(flaky: type[_FlakyFilesystem]) -> None:
    good = struct.pack(">I", google_crc32c.value(DATA))
    flaky.faults = [(50_000, TimeoutError())]
    flaky.facts = {"crc32c": base64.b64encode(good).decode()}
    assert read() == DATA
    flaky.facts = {"crc32c": base64.b64encode(good[::-1]).decode()}
    with pytest.raises(StreamError, match="the crc32c of the received bytes is"):
        read()
    flaky.facts["contentEncoding"] = "gzip"
    assert read() == DATA


def test_given_up_without_secrets(flaky: type[_FlakyFilesystem]) -> None:
    flaky.faults = [(9, ConnectionError(f"https://u:{CANARY}@h/x?sig={CANARY} failed"))] * 99
    times = Times()
    with pytest.raises(TemporaryStreamError, match=r"offset 9: ConnectionError: .*failed after 3 attempts") as caught:
        read(times=times, attempts=3)
    assert CANARY not in f"{caught.value}{caught.value!r}"
    assert 0 < times.waited <= 1.5


def test_random_faults(flaky: type[_FlakyFilesystem]) -> None:
    for seed in range(100):
        draw = random.Random(seed)
        flaky.faults = [
            (draw.randrange(len(DATA)), draw.choice([*TEMPORARY, None])) for _ in range(draw.randrange(1, 12))
        ]
        assert read(step=draw.randrange(100, 50_000), read_ahead=draw.choice([0, 999, 1 << 20]), attempts=20) == DATA
