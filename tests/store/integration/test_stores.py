"""What every store promises, against a real server or emulator of each: an object is whole or
absent.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Protocol

import pytest

import tarkit
from tarkit.errors import AlreadyPublishedError, DataError, MissingInputError, ReplacedError, StreamError, UsageError
from tarkit.formats.har import HarArchive, HarWriter
from tarkit.formats.recordio import RecordWriter
from tarkit.readers.reader import Task, TaskShard
from tarkit.readers.recordio import RecordIODataReader
from tarkit.store.entries import entries, identify, remove, remove_left_behind, stat
from tarkit.store.publish import check_target, open_publish
from tarkit.store.read import open_read, read_range
from tarkit.store.transfer import copy_file

# aiohttp warns of large bodies that are bytes, which is how s3fs and gcsfs themselves send them.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
PART = 8 << 20
DATA = b""
"""Two parts and a rest, in memory only while the tests of this file run."""
ENDPOINTS = ("s3_endpoint", "gcs_endpoint", "azure_endpoint")


class Store(Protocol):
    """A bucket or a folder in it, of its own; content and names look past tarkit and fsspec."""

    environment: dict[str, str]

    def url(self, name: str) -> str: ...
    def content(self, name: str) -> bytes: ...
    def names(self) -> list[str]: ...


@pytest.fixture(scope="module", autouse=True)
def large_content() -> Iterator[None]:
    global DATA  # noqa: PLW0603 - each fork of a worker takes the longer the more it holds
    DATA = random.Random(3).randbytes(2 * PART + 12_345)
    yield
    DATA = b""


@pytest.fixture(params=ENDPOINTS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    from azure_client import azure_container
    from gcs_client import gcs_bucket
    from s3_client import s3_bucket

    endpoint = request.getfixturevalue(request.param)
    opener = dict(zip(ENDPOINTS, (s3_bucket, gcs_bucket, azure_container), strict=True))[request.param]
    with opener(endpoint) as bucket:
        yield bucket


def put(url: str, data: bytes, **options: bool) -> None:
    with open_publish(url, compression=None, if_absent=options.get("if_absent", False)) as out:
        for at in range(0, len(data), 1_234_567):
            out.write(data[at : at + 1_234_567])


def read_all(url: str) -> bytes:
    with open_read(url, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


@pytest.mark.parametrize("size", [0, PART, 2 * PART + 12_345])
def test_what_is_read_back_is_what_was_written(store: Store, size: int) -> None:
    with open_publish(store.url("folder/a b.tar")) as out:
        for at in range(0, size, 1_234_567):
            out.write(DATA[at : min(size, at + 1_234_567)])
        assert store.names() == []
    assert store.names() == ["folder/a b.tar"]
    assert store.content("folder/a b.tar") == DATA[:size]
    assert read_all(store.url("folder/a b.tar")) == DATA[:size]


def test_discarded_uploads_leave_what_was_there(store: Store) -> None:
    put(store.url("old"), b"old")
    for name in ("new", "old"):
        with pytest.raises(KeyError), open_publish(store.url(name)) as out:
            out.write(DATA)
            assert store.content("old") == b"old"
            raise KeyError
    assert store.names() == ["old"]
    assert store.content("old") == b"old"
    put(store.url("old"), DATA)
    assert store.content("old") == DATA


def test_shards_by_url_and_by_glob(store: Store) -> None:
    for shard in range(3):
        with tarkit.TarWriter(store.url(f"train-{shard:04d}.tar.zst")) as writer:
            writer.write({"__key__": f"{shard}", "txt": "text"})
    expected = [store.url(f"train-{shard:04d}.tar.zst") for shard in range(3)]
    assert list(tarkit.expand(store.url("train-*.tar.zst"))) == expected
    samples = [sample for shard in expected for sample in tarkit.read_samples(shard)]
    assert [sample["__key__"] for sample in samples] == ["0", "1", "2"]


@pytest.mark.parametrize("large", [False, True], ids=["put", "parts"])
def test_if_absent(store: Store, large: bool) -> None:
    data = DATA if large else b"small"
    put(store.url("a"), data, if_absent=True)
    with pytest.raises(AlreadyPublishedError, match="already exists"):
        open_publish(store.url("a"), if_absent=True)
    assert store.content("a") == data


@pytest.mark.parametrize("large", [False, True], ids=["put", "parts"])
def test_of_two_that_publish_if_absent_the_first_wins(store: Store, large: bool) -> None:
    data = DATA if large else b"small"
    if store.url("").startswith("gs:"):
        pytest.skip("the emulator ignores the condition of a request")
    first, second = (open_publish(store.url("a"), if_absent=True) for _ in range(2))
    first.write(b"1" + data)
    first.commit()
    second.write(b"2" + data)
    with pytest.raises(AlreadyPublishedError, match="/a: already exists"):
        second.commit()
    assert store.content("a") == b"1" + data


def test_bucket_that_is_not_there(store: Store) -> None:
    url = f"{store.url('').partition('://')[0]}://no-such-bucket-0/a"
    if url.startswith("s3:"):
        pytest.skip("SeaweedFS makes the bucket")
    for data in (b"small", DATA):
        with pytest.raises(StreamError, match="bucket does not exist"):
            put(url, data)


def test_killed_writer_leaves_no_object(store: Store) -> None:
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
        [sys.executable, "-c", textwrap.dedent(code), store.url("folder/a")],
        stdout=subprocess.PIPE,
        env={**os.environ, **store.environment},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert store.names() == []
    list(remove_left_behind(store.url("folder"), older_than=-60, now=time.time()))
    put(store.url("folder/a"), DATA)
    assert store.content("folder/a") == DATA


def test_lists_looks_up_and_removes(store: Store) -> None:
    for name in ("d/a.tar", "d/b.tar", "d/e/c.tar"):
        put(store.url(name), name.encode())
    assert [(entry.name, entry.is_folder, entry.size) for entry in entries(store.url("d"))] == [
        ("a.tar", False, 7),
        ("b.tar", False, 7),
        ("e", True, None),
    ]
    found = list(entries(store.url("d"), recursive=True))
    assert [entry.name for entry in found] == ["a.tar", "b.tar", "e/c.tar"]
    assert [read_all(entry.url) for entry in found] == [b"d/a.tar", b"d/b.tar", b"d/e/c.tar"]
    one = stat(store.url("d/a.tar"))
    assert (one.name, one.size, one.is_folder) == ("a.tar", 7, False)
    assert one.mtime is not None and one.checksum
    before = identify(store.url("d/a.tar"))
    assert identify(store.url("d/a.tar")) == before
    # Times in seconds may be all that differs.
    time.sleep(1.1)
    put(store.url("d/a.tar"), b"D/A.TAR")
    assert identify(store.url("d/a.tar")) != before
    remove(store.url("d/a.tar"))
    with pytest.raises(UsageError, match="is a folder; pass -r"):
        remove(store.url("d"))
    if store.url("").startswith("s3:"):
        # SeaweedFS keeps a folder that is empty, which S3 does not have.
        for entry in entries(store.url("d"), recursive=True):
            remove(entry.url)
    else:
        remove(store.url("d"), recursive=True)
    assert store.names() == []
    for look in (stat, identify, read_all, remove):
        with pytest.raises(MissingInputError):
            look(store.url("d/a.tar"))


def test_some_bytes_out_of_the_middle(store: Store) -> None:
    put(store.url("a"), DATA)
    assert read_range(store.url("a"), 12_345, 23_456, size=len(DATA)) == DATA[12_345:23_456]
    with pytest.raises(DataError, match="had 17 when"):
        read_range(store.url("a"), 0, 1, size=17)


def test_an_object_that_changes_while_it_is_read_is_an_error(store: Store) -> None:
    put(store.url("a"), DATA)
    with pytest.raises(StreamError, match="changed while it was read"), open_read(store.url("a")) as stream:
        assert stream.read(1)
        # What is read ahead ends before the last bytes.
        time.sleep(1.1)
        put(store.url("a"), b"x" + DATA)
        while stream.read(1 << 20):
            pass


def test_a_copy_of_a_file(store: Store, tmp_path: os.PathLike[str]) -> None:
    there, back = os.path.join(tmp_path, "there"), os.path.join(tmp_path, "back")
    put(there, DATA)
    check_target(store.url("a"))
    assert copy_file(there, store.url("a")) == copy_file(store.url("a"), back) == len(DATA)
    with open(back, "rb") as file:
        assert file.read() == DATA


def test_azure_with_the_account_in_the_url(azure_endpoint: str) -> None:
    from azure_client import ACCOUNT, azure_container

    with azure_container(azure_endpoint) as container:
        root = f"abfs://{container.bucket}@{ACCOUNT}.dfs.core.windows.net"
        put(f"{root}/d/a.tar", b"1")
        assert [entry.url for entry in entries(f"{root}/d")] == [f"{root}/d/a.tar"]
        assert list(tarkit.expand(f"{root}/d/*.tar")) == [f"{root}/d/a.tar"]
        assert read_all(f"{root}/d/a.tar") == b"1"


def test_of_two_writers_of_an_archive_one_wins(store: Store) -> None:
    first, second = HarWriter(store.url("x.har")), HarWriter(store.url("x.har"))
    first.write("a", b"1")
    second.write("b", b"2")
    first.close()
    with pytest.raises(AlreadyPublishedError), second:
        pass
    assert dict(HarArchive(store.url("x.har")).items()) == {"a": b"1"}
    assert store.names() == ["x.har/_index", "x.har/_masterindex", "x.har/part-0"]


def test_ranges_of_a_record_file_that_is_replaced_are_not_mixed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the same length, whose chunks are at the same places."""
    monkeypatch.setattr("tarkit.formats.recordio.read._WINDOW", 100)
    name = store.url("a.recordio")

    def write(fill: bytes) -> None:
        with RecordWriter(name, compression="none", max_chunk_size=30) as writer:
            writer.write_batch([fill * 30] * 40)

    write(b"a")
    reader = RecordIODataReader(name)
    (shard,) = reader.create_shards()
    records = reader.read_records(Task(TaskShard(shard.name, 0, shard.records)))
    assert next(records) == b"a" * 30
    write(b"b")
    with pytest.raises(ReplacedError, match="was replaced while it was read"):
        list(records)
    assert reader.create_shards() == [shard]
    assert set(reader.read_records(Task(TaskShard(shard.name, 0, shard.records)))) == {b"b" * 30}
