"""Publishing to an emulator of Google Cloud Storage with faults on the way.

Without, see test_stores.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from gcs_client import Gcs, gcs_bucket
from times import fast

from tarkit.errors import GivenUpError, TarkitError, TemporaryStreamError
from tarkit.store.objects.gcs import GcsStore
from tarkit.store.objects.sink import ObjectSink
from tarkit.store.publish import open_publish

# aiohttp warns of large bodies that are bytes, which is how gcsfs itself sends them.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
PART = 256 << 10
DATA = random.Random(2).randbytes(2 * PART + 12_345)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest that the protocol takes; test_stores.py has those of the default size."""
    monkeypatch.setattr("tarkit.store.objects.sink.part_size", lambda number: PART)


@pytest.fixture
def gcs(gcs_endpoint: str) -> Iterator[Gcs]:
    with gcs_bucket(gcs_endpoint) as bucket:
        yield bucket


class FaultyFilesystem:
    """The real filesystem, some calls of which fail: before or after the store did
    what was asked.
    """

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
        if method == "DELETE":
            # Of a session, which the emulator never answers.
            return {}, b""
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
    with pytest.raises(TemporaryStreamError, match="bytes were sent, but other bytes arrived"):
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
    with pytest.raises(GivenUpError, match=r"accepted the upload, but .* this name; failed after 8"):
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


def test_a_session_that_the_store_forgot_is_not_a_missing_bucket(gcs: Gcs) -> None:
    fs = FaultyFilesystem(fsspec.filesystem("gs"), {1: ("before", FileNotFoundError("404"))})
    store = GcsStore(fs, f"{gcs.bucket}/a", "token", False)
    out = ObjectSink(store, fs.loop, gcs.url("a"), gcs.url("a"), False, fast(attempts=2))
    with pytest.raises(TemporaryStreamError, match="the store does not know the upload any more"):
        out.write(DATA)
        out.commit()
    out.discard()
