"""Publishing to a real S3 server (SeaweedFS): the object is whole or absent, whatever happens on
the way.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fsspec
import object_servers
import pytest
from s3_client import S3, s3_bucket
from s3proxy import Fault, S3Proxy, s3_proxy
from times import Times, fast
from waiting import wait_for

import tarkit
from tarkit.errors import AlreadyPublishedError, GivenUpError, StreamError, TarkitError, TemporaryStreamError
from tarkit.store.entries import remove_left_behind
from tarkit.store.objects.place import open_sink
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.read import open_read
from tarkit.store.transfer import copy_all, copy_file, plan_copies

# aiohttp warns of large bodies that are bytes, which is how s3fs itself sends them.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
CANARY = "c4n4ry-t0k3n-0815"
PART = 5 << 20
LARGE = DATA = b""
"""Two parts and a rest, and one with it, in memory only while the tests of this file run."""


@pytest.fixture(scope="module", autouse=True)
def large_contents() -> Iterator[None]:
    global LARGE, DATA  # noqa: PLW0603 - each fork of a worker takes the longer the more it holds
    LARGE = random.Random(1).randbytes(2 * PART + 12_345)
    DATA = LARGE[: PART + 12_345]
    yield
    LARGE = DATA = b""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest that S3 takes; test_stores.py has those of the default size."""
    monkeypatch.setattr("tarkit.store.objects.sink.part_size", lambda number: PART)


@pytest.fixture
def s3(s3_endpoint: str) -> Iterator[S3]:
    with s3_bucket(s3_endpoint) as bucket:
        yield bucket


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[S3Proxy]:
    with s3_proxy(s3_endpoint) as running:
        yield running


@pytest.fixture
def bad_day(s3_endpoint: str, proxy: S3Proxy) -> Iterator[S3]:
    """A bucket that is reached through the proxy."""
    with s3_bucket(s3_endpoint, proxy.endpoint) as bucket:
        yield bucket


def opened(url: str, if_absent: bool = False, times: Times | None = None) -> PublishStream:
    return PublishStream(open_sink(url, url, if_absent=if_absent, retry=fast(times, attempts=4)), url, None)


def write_in_pieces(out: PublishStream, data: bytes, step: int = 1_234_567) -> None:
    for at in range(0, len(data), step):
        out.write(data[at : at + step])


def read_all(url: str) -> bytes:
    parts = []
    with open_read(url, compression=None) as stream:
        while data := stream.read(1 << 20):
            parts.append(data)
    return b"".join(parts)


# Without faults


@pytest.mark.parametrize("size", [0, 2 * PART + 12_345])
def test_what_is_read_back_is_what_was_written(s3: S3, size: int) -> None:
    with open_publish(s3.url("folder/a b+c.tar")) as out:
        write_in_pieces(out, LARGE[:size])
        assert s3.names() == []
    assert s3.names() == ["folder/a b+c.tar"]
    assert s3.content("folder/a b+c.tar") == LARGE[:size]
    assert read_all(s3.url("folder/a b+c.tar")) == LARGE[:size]
    assert fsspec.filesystem("s3").cat(f"{s3.bucket}/{s3.folder}/folder/a b+c.tar") == LARGE[:size]
    assert s3.uploads() == []


def test_one_large_write_is_cut_into_parts(bad_day: S3, proxy: S3Proxy) -> None:
    with open_publish(bad_day.url("a")) as out:
        out.write(memoryview(LARGE))
    assert bad_day.content("a") == LARGE
    assert sorted(part for name, part in proxy.seen if name == "part" and part) == [1, 2, 3]


def test_small_objects_are_put_at_once(bad_day: S3, proxy: S3Proxy) -> None:
    with open_publish(bad_day.url("a")) as out:
        out.write(b"small")
    assert [name for name, _ in proxy.seen if name != "head"] == ["put"]


def test_listings_made_before_do_not_hide_it(s3: S3) -> None:
    fs = fsspec.filesystem("s3")
    folder = f"{s3.bucket}/{s3.folder}"
    for name in ("a", "b"):
        with open_publish(s3.url(name)) as out:
            out.write(b"x")
        assert fs.ls(folder, detail=False)[-1] == f"{folder}/{name}"


def test_parts_travel_together_but_not_without_bound(bad_day: S3, proxy: S3Proxy) -> None:
    # The first one passes when the second one is there; all stay a while, so that one too many
    # would be seen.
    both = Fault("part", "slow", times=-1, seconds=0.3, hook=lambda: wait_for(lambda: proxy.most_parts_at_once > 1))
    proxy.faults.append(both)
    with open_publish(bad_day.url("a")) as out:
        for _ in range(10):
            out.write(bytes(PART))
    assert 2 <= proxy.most_parts_at_once <= 4
    assert len(bad_day.content("a")) == 10 * PART


@pytest.mark.filterwarnings("ignore:.*its writer was never closed:ResourceWarning")
def test_discarded_and_forgotten_uploads_leave_nothing(s3: S3) -> None:
    out: PublishStream | None = open_publish(s3.url("a"))
    assert out is not None
    write_in_pieces(out, LARGE)
    assert s3.uploads() == ["a"]
    out.discard()
    assert (s3.uploads(), s3.names()) == ([], [])
    with pytest.raises(KeyError), open_publish(s3.url("b")) as out:
        write_in_pieces(out, LARGE)
        raise KeyError
    assert (s3.uploads(), s3.names()) == ([], [])
    out = open_publish(s3.url("c"))
    write_in_pieces(out, LARGE)
    out = None
    gc.collect()
    assert (s3.uploads(), s3.names()) == ([], [])


def test_the_old_object_stays_until_the_new_one_is_whole(s3: S3) -> None:
    open_publish(s3.url("a")).commit()
    with pytest.raises(KeyError), open_publish(s3.url("a")) as out:
        write_in_pieces(out, DATA)
        raise KeyError
    assert s3.content("a") == b""
    with open_publish(s3.url("a")) as out:
        write_in_pieces(out, DATA)
        assert s3.content("a") == b""
    assert s3.content("a") == DATA


def test_shards_by_url_and_by_glob(s3: S3) -> None:
    for shard in range(3):
        with tarkit.TarWriter(s3.url(f"train-{shard:04d}.tar.gz")) as writer:
            for number in range(5):
                writer.write({"__key__": f"{shard}-{number}", "txt": f"text {number}"})
    expected = [f"{shard}-{number}" for shard in range(3) for number in range(5)]
    for spec in ("train-*.tar.gz", "train-{0000..0002}.tar.gz"):
        urls = [shard.url if hasattr(shard, "url") else str(shard) for shard in tarkit.expand(s3.url(spec))]
        assert urls == [s3.url(f"train-{shard:04d}.tar.gz") for shard in range(3)]
        samples = [sample for url in urls for sample in tarkit.read_samples(url)]
        assert [sample["__key__"] for sample in samples] == expected
        assert {sample["txt"] for sample in samples} == {f"text {number}".encode() for number in range(5)}


def test_users_metadata_stay_beside_ours(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(s3.settings, "s3_additional_kwargs", {"Metadata": {"team": "vision"}})
    with open_publish(s3.url("a")) as out:
        out.write(DATA)
    metadata = s3.client().head_object(Bucket=s3.bucket, Key=f"{s3.folder}/a")["Metadata"]
    assert metadata["team"] == "vision"
    assert len(metadata["tarkit-upload"]) == 32


# With faults

MENDED = [
    Fault("create", 500),
    Fault("create", "reset"),
    Fault("part", 500, part=2),
    Fault("part", 503, part=1, code="SlowDown"),
    Fault("part", "reset", part=2),
    Fault("part", "cut", part=1),
    Fault("part", "lose", part=2),
    Fault("part", "slow", part=1, seconds=0.2),
    Fault("part", 400, part=1, code="RequestTimeout"),
    Fault("complete", 500),
    Fault("complete", 503, times=2),
    Fault("complete", "reset"),
    Fault("complete", "lose"),
    Fault("head", 500),
]


@pytest.mark.parametrize(
    ("fault", "if_absent"),
    [(fault, False) for fault in MENDED]
    + [(fault, True) for fault in MENDED if fault.operation in ("complete", "head")],
    ids=lambda f: f"{f.operation}-{f.part}-{f.action}-{f.code}" if isinstance(f, Fault) else str(f),
)
def test_what_passes_is_mended(bad_day: S3, proxy: S3Proxy, fault: Fault, if_absent: bool) -> None:
    proxy.faults.append(Fault(**vars(fault)))
    with opened(bad_day.url("a"), if_absent) as out:
        write_in_pieces(out, DATA)
    assert proxy.faults[0].times == 0, "the fault did not happen"
    assert bad_day.content("a") == DATA
    assert bad_day.uploads() == []


@pytest.mark.parametrize("action", [500, "reset", "lose"])
@pytest.mark.parametrize("if_absent", [False, True])
def test_small_puts_are_mended(bad_day: S3, proxy: S3Proxy, action: int | str, if_absent: bool) -> None:
    proxy.faults.append(Fault("put", action))
    with opened(bad_day.url("a"), if_absent) as out:
        out.write(b"small")
    assert bad_day.content("a") == b"small"
    assert proxy.faults[0].times == 0


LASTING = [
    (Fault("create", 500, times=-1), GivenUpError),
    (Fault("part", 500, part=2, times=-1), GivenUpError),
    (Fault("part", "reset", part=1, times=-1), GivenUpError),
    (Fault("part", "cut", part=2, times=-1), GivenUpError),
    (Fault("part", 403, part=2, code="AccessDenied"), StreamError),
    (Fault("part", 400, part=2, code="EntityTooLarge"), StreamError),
    (Fault("complete", 500, times=-1), GivenUpError),
    (Fault("complete", "reset", times=-1), GivenUpError),
    (Fault("complete", 400, code="InvalidPart"), StreamError),
    (Fault("put", 500, times=-1), GivenUpError),
    (Fault("put", 403, code="AccessDenied"), StreamError),
]


@pytest.mark.parametrize(
    ("fault", "kind"), LASTING, ids=lambda f: getattr(f, "code", "") and f"{f.operation}-{f.action}"
)
def test_what_does_not_pass_leaves_nothing(bad_day: S3, proxy: S3Proxy, fault: Fault, kind: type[TarkitError]) -> None:
    proxy.faults.append(Fault(**vars(fault)))
    out = opened(bad_day.url("a"))
    with pytest.raises(kind) as caught, out:
        write_in_pieces(out, b"small" if fault.operation == "put" else DATA)
    assert type(caught.value) is kind
    assert caught.value.exit_code == (75 if kind is GivenUpError else 1)
    assert str(caught.value).startswith(f"{bad_day.url('a')}: ")
    assert bad_day.names() == []
    assert bad_day.uploads() == []
    if fault.times < 0:
        # The retries of s3fs and botocore are switched off; aiohttp sends once more if a kept
        # connection breaks.
        assert 4 <= proxy.seen.count((fault.operation, fault.part)) <= 8
    with pytest.raises(kind):
        out.commit()


def test_abort_that_fails_is_tried_again_and_hides_nothing(bad_day: S3, proxy: S3Proxy) -> None:
    proxy.faults.append(Fault("abort", 500, times=2))
    out = opened(bad_day.url("a"))
    write_in_pieces(out, DATA)
    out.discard()
    assert bad_day.uploads() == []
    proxy.faults[:] = [Fault("abort", 500, times=-1), Fault("part", 403, part=2, code="AccessDenied")]
    with pytest.raises(StreamError, match="AccessDenied: because"), opened(bad_day.url("b")) as out:
        write_in_pieces(out, DATA)
    assert bad_day.names() == []
    assert bad_day.uploads() == ["b"]


def test_lost_answer_and_then_no_server_is_said_to_be_unknown(bad_day: S3, proxy: S3Proxy) -> None:
    gone = Fault("head", 503, times=-1)
    proxy.faults.append(Fault("complete", "lose", times=-1, hook=lambda: proxy.faults.append(gone)))
    with pytest.raises(TemporaryStreamError, match="not known"), opened(bad_day.url("a")) as out:
        write_in_pieces(out, DATA)
    assert bad_day.content("a") == DATA, "lost was only the answer"


def test_writer_who_may_not_read_believes_the_answers(bad_day: S3, proxy: S3Proxy) -> None:
    proxy.faults.append(Fault("head", 403, times=-1))
    with opened(bad_day.url("a")) as out:
        write_in_pieces(out, DATA)
    assert bad_day.content("a") == DATA


def test_default_retries_of_every_layer_together(s3_endpoint: str, proxy: S3Proxy) -> None:
    proxy.faults += [Fault("part", 503, part=1, times=2), Fault("complete", "lose")]
    with s3_bucket(s3_endpoint, proxy.endpoint, retries=4) as bucket:
        with open_publish(bucket.url("a"), if_absent=True) as out:
            write_in_pieces(out, DATA)
        assert bucket.content("a") == DATA
        assert bucket.uploads() == []


def test_bucket_that_is_not_there(bad_day: S3, proxy: S3Proxy) -> None:
    # SeaweedFS says "access denied" of such buckets; S3 itself says this.
    proxy.faults += [Fault(name, 404, times=-1, code="NoSuchBucket") for name in ("put", "create")]
    for data in (b"small", DATA):
        with pytest.raises(StreamError, match="the bucket does not exist"), opened("s3://no-such-bucket/a") as out:
            write_in_pieces(out, data)


@pytest.mark.parametrize("operation", ["part", "complete"])
def test_an_upload_that_the_store_forgot_is_begun_anew(
    bad_day: S3, proxy: S3Proxy, operation: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(DATA)
    proxy.faults.append(Fault(operation, 404, code="NoSuchUpload"))
    with pytest.raises(TemporaryStreamError, match="the store does not know the upload any more"):
        copy_file(str(tmp_path / "a"), bad_day.url("a"))
    assert bad_day.names() == []
    proxy.faults.append(Fault(operation, 404, code="NoSuchUpload"))
    (done,) = copy_all(plan_copies([str(tmp_path / "a")], bad_day.url("a")))
    assert (done.error, bad_day.content("a") == DATA) == (None, True)


def content_for(request: str) -> bytes:
    """What is published by this request, the last one of its way."""
    return {"put": b"small", "complete": DATA}[request]


@pytest.mark.parametrize("request_", ["put", "complete"])
def test_an_upload_that_was_answered_but_is_not_there_is_an_error(bad_day: S3, proxy: S3Proxy, request_: str) -> None:
    for before in (None, b"of before"):
        if before is not None:
            bad_day.client().put_object(Bucket=bad_day.bucket, Key=f"{bad_day.folder}/a", Body=before)
        # An answer 200 with an error in it would be noticed at once.
        proxy.faults[:] = [Fault(request_, 200, times=-1, body=b"<CompleteMultipartUploadResult/>")]
        said = "accepted the upload, but .* this name; failed"
        with pytest.raises(GivenUpError, match=said) as caught, opened(bad_day.url("a")) as out:
            write_in_pieces(out, content_for(request_))
        assert caught.value.exit_code == 75 and caught.value.answered
        assert bad_day.names() == ([] if before is None else ["a"])
        assert before is None or bad_day.content("a") == before


@pytest.mark.parametrize("request_", ["put", "complete"])
@pytest.mark.parametrize("lie", [404, "stale"])
def test_an_upload_that_shows_late_is_waited_for(bad_day: S3, proxy: S3Proxy, request_: str, lie: int | str) -> None:
    bad_day.client().put_object(Bucket=bad_day.bucket, Key=f"{bad_day.folder}/a", Body=b"of before")
    late = Fault("head", lie, times=3, code="NotFound")
    proxy.faults.append(Fault(request_, "pass", hook=lambda: proxy.faults.append(late)))
    with opened(bad_day.url("a")) as out:
        write_in_pieces(out, content_for(request_))
    assert late.times == 0
    assert bad_day.content("a") == content_for(request_)


def test_an_answer_200_with_an_error_in_it_is_an_error(bad_day: S3, proxy: S3Proxy) -> None:
    proxy.faults.append(Fault("complete", 200))
    with opened(bad_day.url("a")) as out:
        write_in_pieces(out, DATA)
    assert (proxy.count("complete"), bad_day.content("a")) == (2, DATA)
    proxy.faults.append(Fault("complete", 200, times=-1))
    with pytest.raises(GivenUpError, match="because; failed"), opened(bad_day.url("b")) as out:
        write_in_pieces(out, DATA)
    assert (bad_day.names(), bad_day.uploads()) == (["a"], [])


OPERATIONS = ["create", "part", "part", "complete", "abort", "head", "head", "put", "put"]
FAULTS = [500, 503, "reset", "cut", "lose", "twice"]
LIES = {"head": [404, "stale", "length", "etag"], "complete": [200, "etag"], "put": [200, "etag"], "part": ["etag"]}


def random_faults(draw: random.Random) -> list[Fault]:
    faults = []
    for _ in range(draw.randrange(1, 6)):
        operation = draw.choice(OPERATIONS)
        action = draw.choice([*FAULTS, *LIES.get(operation, ())])
        faults.append(Fault(operation, action, times=draw.choice([1, 1, 2, 5, 30])))
    return faults


@pytest.mark.parametrize("schedules", [12, pytest.param(200, marks=pytest.mark.elasticdl)])
def test_random_schedules_leave_the_object_whole_or_absent(bad_day: S3, proxy: S3Proxy, schedules: int) -> None:
    outcomes = Counter[str]()
    for seed in range(schedules):
        draw = random.Random(seed)
        data = draw.randbytes(draw.choice([0, 10, PART, PART + 1, len(LARGE)]))
        name, if_absent = str(seed), draw.random() < 0.3
        before = b"of before" if not if_absent and draw.random() < 0.5 else None
        if before is not None:
            bad_day.client().put_object(Bucket=bad_day.bucket, Key=f"{bad_day.folder}/{name}", Body=before)
        proxy.faults[:] = random_faults(draw)
        said = ""
        try:
            with opened(bad_day.url(name), if_absent) as out:
                write_in_pieces(out, data)
        except (StreamError, AlreadyPublishedError) as error:
            said = str(error)
        shown = [f"{fault.operation} {fault.action} {fault.times}" for fault in proxy.faults]
        proxy.faults.clear()
        there = bad_day.content(name) if name in bad_day.names() else None
        # Whole without an error, else what was there before. What arrived damaged is removed. An
        # error beside a whole object says so: the last answer was lost, or the store denies what it
        # took.
        right = {data} if not said else {None if "arrived" in said else before}
        if "not known" in said or "the store accepted the upload, but" in said:
            right.add(data)
        assert there in right, (seed, said, shown)
        outcomes["error" if said else "whole"] += 1
    assert outcomes["whole"] > 0.3 * schedules and outcomes["error"] > 0.2 * schedules, outcomes


# Only if there is none


@pytest.mark.parametrize("large", [False, True], ids=["put", "parts"])
def test_if_absent(s3: S3, large: bool) -> None:
    data = DATA if large else b"small"
    first = open_publish(s3.url("a"), if_absent=True)
    second = open_publish(s3.url("a"), if_absent=True)
    for out in (first, second):
        write_in_pieces(out, data)
    first.commit()
    with pytest.raises(AlreadyPublishedError, match=r"s3://.*/a: already exists"):
        second.commit()
    with pytest.raises(AlreadyPublishedError):
        open_publish(s3.url("a"), if_absent=True)
    assert s3.content("a") == data
    assert s3.uploads() == []


@pytest.mark.parametrize(("large", "races"), [(False, 3), (True, 2)], ids=["put", "parts"])
def test_of_racing_publishers_exactly_one_wins(bad_day: S3, large: bool, races: int) -> None:
    data = DATA if large else b"small"
    for number in range(races):
        url = bad_day.url(f"{number}")
        outcomes: list[str] = []
        gate = threading.Barrier(4, timeout=120)

        def publish(who: int, url: str = url, outcomes: list[str] = outcomes, gate: threading.Barrier = gate) -> None:
            out = open_publish(url, if_absent=True)
            out.write(bytes([who]) + data)
            gate.wait()
            try:
                out.commit()
                outcomes.append(f"won {who}")
            except AlreadyPublishedError:
                outcomes.append("lost")

        threads = [threading.Thread(target=publish, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        *losers, winner = sorted(outcomes)
        assert losers == ["lost"] * 3
        assert bad_day.content(str(number)) == bytes([int(winner.split()[1])]) + data
    assert bad_day.uploads() == []


def test_store_that_ignores_the_condition_is_looked_at(bad_day: S3, proxy: S3Proxy) -> None:
    client = bad_day.client()

    def other() -> None:
        client.put_object(Bucket=bad_day.bucket, Key=f"{bad_day.folder}/a", Body=b"of another")

    # Between our look and our put another one comes, and the put is answered as if it had been
    # done.
    proxy.faults.append(Fault("put", 200, hook=other))
    out = opened(bad_day.url("a"), if_absent=True)
    out.write(b"ours!")
    with pytest.raises(AlreadyPublishedError):
        out.commit()
    assert bad_day.content("a") == b"of another"


# Killed

WRITER = """
    import sys, time
    from tarkit.store.publish import open_publish
    with open_publish(sys.argv[1]) as out:
        for _ in range(4):
            out.write(bytes(8 << 20))
        sys.stdout.write("written\\n")
        sys.stdout.flush()
        time.sleep(1000)
    """


def test_killed_writer_leaves_no_object_and_what_it_leaves_can_be_removed(s3: S3) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), s3.url("folder/a.tar")],
        stdout=subprocess.PIPE,
        env={**os.environ, **s3.environment},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert s3.names() == []
    assert s3.uploads() == ["folder/a.tar"]
    now = time.time()
    assert list(remove_left_behind(s3.url("folder/"), older_than=3600, now=now)) == [], "it may still be alive"
    assert list(remove_left_behind(s3.url("folder2/"), older_than=-60, now=now)) == []
    assert s3.uploads() == ["folder/a.tar"]
    removed = list(remove_left_behind(s3.url("folder"), older_than=3600, now=now + 7200))
    assert removed == [f"{s3.url('folder/a.tar')} (an unfinished upload)"]
    assert s3.uploads() == []
    assert list(remove_left_behind(s3.url("folder"), older_than=3600, now=now + 7200)) == []


def test_interrupted_writer_aborts_its_upload(s3: S3) -> None:
    # A busy server needs longer than the 1.5 s that a terminated program has.
    code = f"from tarkit.store import waits\nwaits._LAST_CLEANUP_SECONDS = 100.0\n{textwrap.dedent(WRITER)}"
    child = subprocess.Popen(
        [sys.executable, "-c", code, s3.url("a.tar")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **s3.environment},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=300)
    assert child.returncode != 0
    assert b"KeyboardInterrupt" in errors
    assert (s3.names(), s3.uploads()) == ([], [])


# Secrets


def test_credentials_are_never_shown(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in ({"secret": CANARY}, {"key": CANARY, "secret": CANARY, "token": CANARY}):
        for name, value in settings.items():
            monkeypatch.setitem(s3.settings, name, value)
        for data in (b"small", DATA):
            with pytest.raises(StreamError) as caught, opened(s3.url("a")) as out:
                write_in_pieces(out, data)
            for text in (str(caught.value), repr(caught.value)):
                assert CANARY not in text
                assert object_servers.SECRET_KEY not in text
            assert caught.value.__cause__ is None
        with pytest.raises(TarkitError) as caught_too:
            list(remove_left_behind(s3.url("folder/"), older_than=60, now=time.time()))
        assert CANARY not in str(caught_too.value)
