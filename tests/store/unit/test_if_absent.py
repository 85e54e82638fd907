"""Publishing only where nothing is: local disks and stores without a way of their own."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tarkit.errors import AlreadyPublishedError, StreamError, UsageError
from tarkit.store.publish import open_publish


def test_what_is_there_is_found_at_once_and_at_commit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first = open_publish(path, if_absent=True)
    second = open_publish(path, if_absent=True)
    first.write(b"first")
    second.write(b"second")
    first.commit()
    with pytest.raises(AlreadyPublishedError, match="a: already exists") as caught:
        second.commit()
    assert isinstance(caught.value, FileExistsError)
    with pytest.raises(AlreadyPublishedError, match="a: already exists"):
        open_publish(path, if_absent=True)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]
    assert path.stat().st_nlink == 1


def test_of_racing_writers_exactly_one_wins(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}"
        gate = threading.Barrier(4)
        outcomes: list[bytes | None] = []

        def publish(
            who: bytes, path: Path = path, gate: threading.Barrier = gate, outcomes: list[bytes | None] = outcomes
        ) -> None:
            out = open_publish(path, if_absent=True, sync=False)
            out.write(who)
            gate.wait()
            try:
                out.commit()
                outcomes.append(who)
            except AlreadyPublishedError:
                outcomes.append(None)

        threads = [threading.Thread(target=publish, args=(b"%d" % who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count(None) == 3
        assert [path.read_bytes()] == [who for who in outcomes if who is not None]
    assert len(os.listdir(tmp_path)) == 20


def test_filesystem_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    first = open_publish(tmp_path / "a", if_absent=True)
    second = open_publish(tmp_path / "a", if_absent=True)
    first.write(b"first")
    first.commit()
    with pytest.raises(AlreadyPublishedError):
        second.commit()
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_link_that_fails_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StreamError, match="input/output error"), open_publish(tmp_path / "a", if_absent=True):
        pass
    assert os.listdir(tmp_path) == []


def test_stores_without_conditions_are_looked_at(memory: MemoryFileSystem) -> None:
    first = open_publish("memory://a", if_absent=True)
    second = open_publish("memory://a", if_absent=True)
    first.write(b"first")
    first.commit()
    with pytest.raises(AlreadyPublishedError, match="memory://a: already exists"):
        second.commit()
    with pytest.raises(AlreadyPublishedError):
        open_publish("memory://a", if_absent=True)
    assert memory.cat("/a") == b"first"


def test_what_has_no_name_can_not_be_absent() -> None:
    for target in ("-", "pipe:cat", io.BytesIO()):
        with pytest.raises(UsageError, match="no name"):
            open_publish(target, if_absent=True)
