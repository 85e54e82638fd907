"""Publishing to an emulator of Google Cloud Storage: the object is whole or absent."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from times import fast

import tarkit
from tarkit.errors import AlreadyPublishedError, GivenUpError, StreamError, TarkitError, TemporaryStreamError
from tarkit.store.entries import remove_left_behind
from tarkit.store.objects.gcs import GcsStore
from tarkit.store.objects.sink import ObjectSink
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read

# aiohttp warns of large bodies that are bytes, which is how gcsfs itself sends them.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
PART = 8 << 20
DATA = random.Random(2).randbytes(2 * PART + 12_345)


class Gcs:
    """A bucket of its own, seen without gcsfs."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        self.request("POST", "/storage/v1/b?project=tests", json.dumps({"name": self.bucket}))

    def request(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.endpoint).netloc, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
            return content
        finally:
            connection.close()

    def url(self, name: str) -> str:
        return f"gs://{self.bucket}/{name}"

    def content(self, name: str) -> bytes:
        return self.request("GET", f"/storage/v1/b/{self.bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    def names(self) -> list[str]:
        return [entry["name"] for entry in json.loads(self.request("GET", f"/storage/v1/b/{self.bucket}/o"))["items"]]


@pytest.fixture
def gcs(gcs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    bucket = Gcs(gcs_endpoint)
    monkeypatch.setitem(fsspec.config.conf, "gs", {"endpoint_url": gcs_endpoint, "token": "anon"})
    yield bucket
    theirs = fsspec.get_filesystem_class("gs")
    for kind in (theirs, *theirs.__subclasses__()):
        kind.clear_instance_cache()


def read_all(url: str) -> bytes:
    parts = []
    with open_read(url, compression=None) as stream:
        while data := stream.read(1 << 20):
            parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART, 2 * PART + 12_345])
def test_what_is_read_back_is_what_was_written(gcs: Gcs, size: int) -> None:
    with open_publish(gcs.url("folder/a b.tar")) as out:
        for at in range(0, size, 1_234_567):
            out.write(DATA[at : min(size, at + 1_234_567)])
        assert gcs.names() == []
    assert gcs.names() == ["folder/a b.tar"]
    assert gcs.content("folder/a b.tar") == DATA[:size]
    assert read_all(gcs.url("folder/a b.tar")) == DATA[:size]


def test_discarded_uploads_leave_nothing(gcs: Gcs) -> None:
    with open_publish(gcs.url("old")) as out:
        out.write(b"old")
    for name in ("new", "old"):
        with pytest.raises(KeyError), open_publish(gcs.url(name)) as out:
            out.write(DATA)
            raise KeyError
    assert gcs.names() == ["old"]
    assert gcs.content("old") == b"old"


def test_shards_by_url_and_by_glob(gcs: Gcs) -> None:
    for shard in range(3):
        with tarkit.TarWriter(gcs.url(f"train-{shard:04d}.tar")) as writer:
            writer.write({"__key__": f"{shard}", "txt": "text"})
    shards = list(tarkit.expand(gcs.url("train-*.tar")))
    assert len(shards) == 3
    samples = [sample for shard in shards for sample in tarkit.read_samples(getattr(shard, "url", shard))]
    assert [sample["__key__"] for sample in samples] == ["0", "1", "2"]


@pytest.mark.parametrize("data", [b"small", DATA], ids=["put", "parts"])
def test_if_absent(gcs: Gcs, data: bytes) -> None:
    with open_publish(gcs.url("a"), if_absent=True) as out:
        out.write(data)
    with pytest.raises(AlreadyPublishedError, match="is there already"):
        open_publish(gcs.url("a"), if_absent=True)
    assert gcs.content("a") == data


def test_bucket_that_is_not_there(gcs: Gcs) -> None:
    for data in (b"small", DATA):
        with pytest.raises(StreamError, match="bucket does not exist"), open_publish("gs://no-such-bucket-0/a") as out:
            out.write(data)


def test_killed_writer_leaves_no_object(gcs: Gcs) -> None:
    code = """
        import sys, time
        from tarkit.store.publish import open_publish
        with open_publish(sys.argv[1]) as out:
            for _ in range(4):
                out.write(bytes(8 << 20))
            sys.stdout.write("written\\n")
            sys.stdout.flush()
            time.sleep(1000)
        """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), gcs.url("a")],
        stdout=subprocess.PIPE,
        env={**os.environ, "STORAGE_EMULATOR_HOST": gcs.endpoint},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert gcs.names() == []
    assert list(remove_left_behind(gcs.url(""), older_than=-60, now=time.time())) == []


class FaultyFilesystem:
    """The real filesystem, some calls of which fail: before or after the store did what was asked."""

    def __init__(self, fs: Any, faults: dict[int, tuple[str, Exception]]) -> None:
        self._fs = fs
        self._faults = faults
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        when, error = self._faults.get(len(self.calls), ("", None))
        self.calls.append(method)
        if when == "before" and error:
            raise error
        answer = await self._fs._call(method, path, *args, **kwargs)
        if when == "after" and error:
            raise error
        return answer


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(7))
def test_a_lost_request_or_answer_is_mended(gcs: Gcs, call: int, when: str) -> None:
    if (call, when) == (1, "before"):
        pytest.skip("the emulator says of an empty session that it has one byte")
    fs = FaultyFilesystem(fsspec.filesystem("gs"), {call: (when, ConnectionResetError("gone"))})

    store = GcsStore(fs, f"{gcs.bucket}/a", "token", False)
    url = gcs.url("a")
    sink = ObjectSink(store, fs.loop, url, url, False, fast())
    sink.write(DATA)
    sink.commit()
    # begin, two parts, a look, the last part, a look: one of them twice, or asked about.
    assert len(fs.calls) >= 5
    assert gcs.content("a") == DATA


def test_damage_on_the_way_is_found_and_removed(gcs: Gcs) -> None:
    fs = fsspec.filesystem("gs")

    class Damaging(FaultyFilesystem):
        async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
            if method == "PUT":
                kwargs["data"] = bytes(len(kwargs["data"].getvalue()))
            return await self._fs._call(method, path, *args, **kwargs)

    damaging = Damaging(fs, {})
    url = gcs.url("a")
    sink = ObjectSink(GcsStore(damaging, f"{gcs.bucket}/a", "token", False), fs.loop, url, url, False, fast())
    sink.write(DATA)
    with pytest.raises(TemporaryStreamError, match="bytes were sent, but other ones arrived"):
        sink.commit()
    assert gcs.names() == []


def test_server_that_is_not_there(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFilesystem(fsspec.filesystem("gs"), {n: ("before", ConnectionResetError("gone")) for n in range(99)})

    url = gcs.url("a")
    sink = ObjectSink(GcsStore(fs, f"{gcs.bucket}/a", "token", False), fs.loop, url, url, False, fast())
    with pytest.raises(TarkitError) as caught:
        sink.write(DATA)
    assert isinstance(caught.value, TemporaryStreamError)
    sink.discard()
    assert gcs.names() == []


@pytest.mark.parametrize("before", [None, b"of before"])
def test_an_upload_that_was_answered_but_is_not_there_is_an_error(gcs: Gcs, before: bytes | None) -> None:
    url = gcs.url("a")
    if before is not None:
        with open_publish(url) as out:
            out.write(before)

    class Forgetful(FaultyFilesystem):
        async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
            if method == "PUT":
                # The session answers as if the object were complete.
                return {}, b"{}"
            return await self._fs._call(method, path, *args, **kwargs)

    fs = Forgetful(fsspec.filesystem("gs"), {})
    sink = ObjectSink(GcsStore(fs, f"{gcs.bucket}/a", "token", False), fs.loop, url, url, False, fast())
    sink.write(DATA)
    with pytest.raises(GivenUpError, match="took the upload, but .*under this name; given up after 8"):
        sink.commit()
    assert gcs.names() == ([] if before is None else ["a"])


def test_writer_who_may_not_read_believes_the_answers(gcs: Gcs) -> None:
    class Secretive(FaultyFilesystem):
        async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
            if method == "GET":
                # As gcsfs reports a 403.
                raise OSError(f"Forbidden: {path}")
            return await self._fs._call(method, path, *args, **kwargs)

    fs, url = Secretive(fsspec.filesystem("gs"), {}), gcs.url("a")
    sink = ObjectSink(GcsStore(fs, f"{gcs.bucket}/a", "token", False), fs.loop, url, url, False, fast())
    sink.write(DATA)
    sink.commit()
    assert gcs.content("a") == DATA
