"""The policy of trying again, and reading ahead: numbers, threads, forks, closing."""

from __future__ import annotations

import gc
import io
import os
import random
import tarfile
import threading
import time
import weakref

import pytest
from httpserver import Fault, FaultServer
from times import Times, fast
from waiting import wait_for

from tarkit import read_samples
from tarkit.errors import StreamError, TemporaryStreamError, UsageError
from tarkit.store import read
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
from tarkit.store.readahead import ReadAhead
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry

DATA = random.Random(5).randbytes(3 << 20)


def ahead_threads() -> int:
    return sum(thread.name == "tarkit-read-ahead" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Threads of streams that others left are gone."""
    if ahead_threads():
        gc.collect()
    wait_for(lambda: ahead_threads() == 0)


# Policy


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"deadline": -1}, {"base": -0.1}, {"cap": float("nan")}, {"timeout": 0}]
)
def test_numbers_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} of a retry is|^attempts of a retry is 0"):
        Retry(**wrong)  # type: ignore[arg-type]


def test_waits_grow_to_their_cap() -> None:
    most = Retry(base=0.5, cap=30, random=lambda: 1.0)
    assert [most.wait_before(n) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert most.wait_before(100_000) == 30
    # Full jitter: evenly from nothing.
    waits = sorted(DEFAULT_RETRY.wait_before(1) for _ in range(2000))
    assert waits[0] < 0.05 and waits[-1] > 0.45 and 0.2 < waits[1000] < 0.3


def test_attempts_and_deadline() -> None:
    times = Times()
    patience = Patience(fast(times, attempts=3), "s3://b/x")
    for _ in range(5):
        patience.failed(Dropped("no"), 7)
        patience.failed(Dropped("no"), 7)
        patience.progress()
    with pytest.raises(TemporaryStreamError, match=r"^s3://b/x, offset 7: no; failed after 3 attempts in a row"):
        for _ in range(3):
            patience.failed(Dropped("no"), 7)
    patience = Patience(fast(times, attempts=1000, deadline=60, cap=20), "n")
    begin = times.waited
    with pytest.raises(TemporaryStreamError, match=r"no; failed after \d+ attempts in a row within [3-6]\d s"):
        while True:
            patience.failed(Dropped("no"), None)
    assert 30 < times.waited - begin <= 60


def test_a_long_wait_ends_when_the_stream_is_closed() -> None:
    times = Times()
    patience = Patience(fast(times, deadline=1e6), "n")
    patience.failed(Dropped("later", retry_after=100_000), None, None, lambda: times.waited > 3)
    assert 3 < times.waited < 3.3


# Reading ahead


class Source:
    """Counts up; may fail or block at a place."""

    def __init__(self, size: int, fail_at: int = -1, gate: threading.Event | None = None) -> None:
        self.size = size
        self.at = 0
        self.fail_at = fail_at
        self.gate = gate
        self.closed = 0
        self.interrupted = threading.Event()

    def read(self, count: int) -> bytes:
        if self.at == self.fail_at:
            if self.gate is not None:
                self.gate.wait(200)
            raise StreamError("broken", offset=self.at)
        end = min(self.at + count, self.size)
        if self.at < self.fail_at:
            end = min(end, self.fail_at)
        data = bytes(n & 255 for n in range(self.at, end))
        self.at = end
        return data

    def interrupt(self) -> None:
        self.interrupted.set()
        if self.gate is not None:
            self.gate.set()

    def close(self) -> None:
        self.closed += 1


def test_bounded_and_in_order() -> None:
    source = Source(100_000)
    reader = ReadAhead(source, 1000)
    assert reader.size == 100_000
    assert source.at == 0 and ahead_threads() == 0
    got = reader.read(7)
    wait_for(lambda: source.at >= 1000)
    time.sleep(0.02)
    # The piece in hand, and what fills the limit.
    assert source.at <= 3000
    while data := reader.read(333):
        assert len(data) <= 333
        got += data
    assert got == bytes(n & 255 for n in range(100_000))
    assert reader.read(5) == b""
    # A thread that is stopped before it ends closes the source as well.
    wait_for(lambda: ahead_threads() == 0)
    reader.close()
    reader.close()
    assert source.closed == 1


def test_errors_keep_their_place() -> None:
    source = Source(100_000, fail_at=5000)
    reader = ReadAhead(source, 1 << 20)
    got = b""
    for _ in range(2):
        with pytest.raises(StreamError, match="offset 5000: broken"):
            while True:
                got += reader.read(999)
        assert len(got) == 5000
    reader.close()
    assert source.closed


@pytest.mark.parametrize("place", ["full", "blocked", "unread"])
def test_close_is_prompt(place: str) -> None:
    source = Source(1 << 20, fail_at=5000 if place == "blocked" else -1, gate=threading.Event())
    reader = ReadAhead(source, 10_000)
    if place != "unread":
        reader.read(1)
        wait_for(lambda: source.at >= 5000)
    begin = time.monotonic()
    reader.close()
    assert time.monotonic() - begin < 60
    wait_for(lambda: ahead_threads() == 0)
    assert source.closed


def test_a_forgotten_reader_stops_its_thread() -> None:
    source = Source(1 << 20)
    reader = ReadAhead(source, 1000)
    reader.read(1)
    gone = weakref.ref(reader)
    del reader
    gc.collect()
    assert gone() is None
    wait_for(lambda: ahead_threads() == 0)
    assert source.closed


def test_a_forked_child_is_told() -> None:
    source = Source(1 << 20)
    reader = ReadAhead(source, 1000)
    child = os.fork()
    if child == 0:
        try:
            reader.read(1)
        except StreamError as error:
            reader.close()
            os._exit(7 if "before this process was forked" in str(error) and not source.closed else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert reader.read(1) == b"\0"
    reader.close()


def test_the_thread_starts_with_the_first_read(server: FaultServer) -> None:
    # Less than there is, so that the thread does not end.
    with open_read(server.put("d", DATA), read_ahead=1 << 20) as stream:
        assert ahead_threads() == 0
        assert stream.read(20) == DATA[:10]
        assert stream.read(20) == DATA[10:30]
        assert ahead_threads() == 1
    wait_for(lambda: ahead_threads() == 0)


@pytest.mark.parametrize("fault", [Fault("stall", 100_000), Fault("status", headers=(("Retry-After", "200"),))])
def test_closing_a_stream_that_waits(server: FaultServer, fault: Fault) -> None:
    stream = open_read(server.put("w", DATA, Fault("cut", 50_000), always=fault), compression=None)
    assert stream.read(10) == DATA[:10]
    time.sleep(0.1)
    begin = time.monotonic()
    stream.close()
    assert time.monotonic() - begin < 20
    wait_for(lambda: ahead_threads() == 0)


# Through the layers above


def test_through_every_codec(server: FaultServer, tmp_path: os.PathLike[str]) -> None:
    data = DATA[: 1 << 20]
    for codec in ("gz", "zst", "bz2", "xz", "lz4"):
        out = io.BytesIO()
        with open_publish(out, compression=codec) as packing:  # type: ignore[arg-type]
            packing.write(data)
        faults = [Fault("cut", 1_000_001), Fault("stall", 7), Fault("status"), Fault("reset", 100)]
        retry = fast(timeout=0.3, attempts=200, deadline=1e9)
        with open_read(server.put(codec, out.getvalue(), *faults), retry=retry) as stream:
            assert b"".join(iter(lambda: stream.read(99_999), b"")) == data
        # A cut that nobody mends is no end of the stream.
        url = server.put(codec, out.getvalue(), Fault("cut", 1_000_001), always=Fault("drop"))
        with open_read(url, retry=fast()) as stream, pytest.raises(TemporaryStreamError, match="failed after"):
            while stream.read(99_999):
                pass


def test_read_samples(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number in range(300):
            member = tarfile.TarInfo(f"{number:04}.bin")
            member.size = 5000
            tar.addfile(member, io.BytesIO(DATA[number * 5000 : number * 5000 + 5000]))
    shard = buffer.getvalue()
    monkeypatch.setitem(read.open_read.__kwdefaults__, "retry", fast())
    whole = errors = 0
    for seed in range(20):
        draw = random.Random(seed)
        faults = [
            Fault(draw.choice(["cut", "reset", "drop", "status", "replace", "part"]), draw.randrange(len(shard)))
            for _ in range(5)
        ]
        url = server.put("s.tar", shard, Fault("cut", draw.randrange(10, len(shard))), *faults)
        samples = []
        try:
            samples.extend(sample["bin"] for sample in read_samples(url))
        except StreamError as error:
            assert "changed" in str(error)
            errors += 1
        else:
            assert len(samples) == 300
            whole += 1
        assert samples == [DATA[n * 5000 : n * 5000 + 5000] for n in range(len(samples))]
    assert whole > 2 and errors > 2
