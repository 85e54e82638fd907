"""Writing to HDFS while DataNodes are lost: the sink against a cluster in memory, whose blocks
begin or end badly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tarkit.errors import GivenUpError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.store.hdfs.client import HdfsClient, Status, raise_java
from tarkit.store.hdfs.place import _TAIL, HdfsSink
from tarkit.store.resume import Body, read_up_to
from tarkit.store.retry import Dropped, Retry

BLOCK = 24 << 20
PATH = "/a/b.tar"


@pytest.fixture(scope="module")
def data() -> bytes:
    """60 MiB, in memory only while they are needed."""
    return random.Random(7).randbytes(1 << 20) * 60


class Cluster(HdfsClient):
    """Files of blocks, of which a client sees those that are whole.

    Args:
        loses: for the next blocks that are begun, in order, after how many bytes their DataNode is
            lost; -1: before the first; None: never.
    """

    on_loss = " at a DataNode; webhdfs:// tries others"

    def __init__(self, *loses: int | None) -> None:
        self.retry = Retry(base=0.0)
        self.loses = iter(loses)
        self.files: dict[str, bytearray] = {}
        self.begun: dict[str, int] = {}
        self.closed: set[str] = set()
        self.created = 0

    def shown(self, path: str) -> str:
        return f"hdfs://c{path}"

    def status(self, path: str) -> Status:
        if path not in self.files:
            raise MissingInputError("no such file", url=self.shown(path))
        size = len(self.files[path]) if path in self.closed else self.begun[path]
        return Status(path.rpartition("/")[2], False, size, 1, 1)

    def open(self, path: str, offset: int, stop: int) -> Body:
        return Part(bytes(self.files[path][offset:stop]))

    def create(self, path: str) -> Writer:
        self.created += 1
        self.files[path], self.begun[path] = bytearray(), 0
        return Writer(self, path)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self.files[target] = self.files.pop(source)
        self.closed.add(target)

    def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None


class Part(Body):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, count: int) -> bytes:
        data, self._data = self._data[:count], self._data[count:]
        return data


class Writer:
    """Takes bytes that its DataNode never gets, as a client does that has not heard of the loss
    yet.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster = cluster
        self._path = path
        self._left: int | None = None
        self._lost = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        there = self._cluster.files[self._path]
        for piece in pieces(bytes(data), BLOCK - len(there) % BLOCK):
            if self._lost:
                raise Dropped("refused")
            if len(there) % BLOCK == 0:
                self._cluster.begun[self._path] = len(there)
                self._left = next(self._cluster.loses, None)
            if self._left is not None:
                self._left -= len(piece)
                if self._left < 0:
                    self._lost = 1
                    if len(there) % BLOCK == 0 and self._left == -1 - len(piece):
                        raise Dropped("refused")
                    # It is taken, and goes nowhere.
                    continue
            there += piece

    def close(self) -> None:
        if self._lost:
            raise Dropped("refused")
        self._cluster.closed.add(self._path)

    def abort(self) -> None:
        self._lost = 1


def pieces(data: bytes, first: int) -> Iterator[bytes]:
    while data:
        yield data[:first]
        data, first = data[first:], BLOCK


def written(cluster: Cluster, data: bytes, step: int = 3 << 20) -> bytes:
    sink = HdfsSink(cluster, PATH, False)
    try:
        for start in range(0, len(data), step):
            sink.write(bytearray(data[start : start + step]))
        sink.commit()
    except BaseException:
        sink.discard()
        raise
    assert list(cluster.files) == [PATH], "nothing else is left"
    return bytes(cluster.files[PATH])


@pytest.mark.parametrize(
    "loses",
    [
        (-1,),
        (2 << 20,),
        (None, -1),
        (None, 1 << 20),
        (None, None, -1),
        (-1, 5 << 20, -1, None, -1, None, 7 << 20),
    ],
)
def test_a_datanode_that_is_lost_when_a_block_begins_costs_a_copy(data: bytes, loses: tuple[int | None, ...]) -> None:
    cluster = Cluster(*loses)
    assert written(cluster, data) == data
    assert cluster.created == 1 + sum(lost is not None for lost in loses)


def test_it_is_lost_before_the_end_of_a_small_file_is_known(data: bytes) -> None:
    assert written(Cluster(1000, -1), data[:5000]) == data[:5000]
    assert written(Cluster(), b"") == b""


def test_in_the_middle_of_a_block_it_is_an_error_with_a_way_on(data: bytes) -> None:
    cluster = Cluster(None, _TAIL + (6 << 20))
    with pytest.raises(TemporaryStreamError, match=r"^hdfs://c/a/b.tar, offset \d+: refused at a .* webhdfs") as raised:
        written(cluster, data)
    assert raised.value.exit_code == 75
    assert not cluster.files


def test_when_no_other_datanode_takes_it_nothing_is_left(data: bytes) -> None:
    cluster = Cluster(*[-1] * 50)
    with pytest.raises(GivenUpError, match=r"webhdfs://.* failed after 8 attempts"):
        written(cluster, data)
    assert cluster.created == 9
    assert not cluster.files


def test_what_is_kept_in_memory_is_bounded() -> None:
    sink = HdfsSink(Cluster(), PATH, False)
    for size in (*[1 << 20] * 20, 3 * _TAIL, *[5 << 20] * 5, 100):
        sink.write(bytes(size))
        assert sum(map(len, sink._tail)) <= 2 * _TAIL
    sink.discard()


def test_an_error_of_the_copy_names_the_file_and_not_the_copy(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(None, -1)

    def gone(path: str, offset: int, stop: int) -> Body:
        raise MissingInputError("no such file", url=cluster.shown(path))

    monkeypatch.setattr(cluster, "open", gone)
    with pytest.raises(MissingInputError, match=r"^hdfs://c/a/b.tar: no such file"):
        written(cluster, data)
    assert not cluster.files


def test_a_copy_that_came_out_short_is_not_published(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(None, -1)
    monkeypatch.setattr(cluster, "open", lambda path, offset, stop: Part(b"short"))
    with pytest.raises(TemporaryStreamError, match="bytes were sent, but"):
        written(cluster, data)
    assert not cluster.files


def test_a_block_that_is_not_replicated_yet_is_waited_for() -> None:
    with pytest.raises(Dropped), suppress(StreamError):
        raise_java("org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException", "Not yet: /a", "u", "u")


def test_the_cluster_of_these_tests_gives_whole_blocks(data: bytes) -> None:
    cluster = Cluster()
    file = cluster.create("/x")
    file.write(data[: BLOCK + 5])
    assert read_up_to(cluster.open("/x", 0, cluster.status("/x").size), 2 * BLOCK) == data[:BLOCK]
