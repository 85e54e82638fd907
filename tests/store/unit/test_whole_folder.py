"""A folder appears whole or not at all, and what killed writers left is removed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.store.temporary import temporary_name
from tarkit.store.wholefolder import whole_folder


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with whole_folder(f"{target}/") as path:
        Path(path, "file").write_text("x")
        assert not target.exists()
    assert os.listdir(tmp_path) == ["out"] and os.listdir(target) == ["file"]
    with pytest.raises(RuntimeError), whole_folder(str(tmp_path / "other")) as path:
        Path(path, "file").write_text("x")
        raise RuntimeError
    assert os.listdir(tmp_path) == ["out"]


def test_an_empty_folder_is_used_and_another_is_replaced_with_force(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with whole_folder(str(target)) as path:
        Path(path, "one").write_text("x")
    with pytest.raises(UsageError, match="has files; --force replaces the folder"), whole_folder(str(target)):
        pass
    with pytest.raises(RuntimeError), whole_folder(str(target), force=True):
        raise RuntimeError
    assert os.listdir(target) == ["one"]
    (tmp_path / "link").symlink_to(target)
    with whole_folder(str(tmp_path / "link"), force=True) as path:
        Path(path, "one").write_text("x")
    (tmp_path / "link").unlink()
    with whole_folder(str(target), force=True) as path:
        Path(path, "two").write_text("x")
    assert os.listdir(tmp_path) == ["out"] and os.listdir(target) == ["two"]


def test_places_that_can_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"), whole_folder(str(tmp_path / "file")):
        pass
    with pytest.raises(StreamError, match="No such file"), whole_folder(str(tmp_path / "none" / "out")):
        pass
    with pytest.raises(UsageError, match="on this machine only"), whole_folder("s3://bucket/x"):
        pass


def test_someone_else_may_write_the_name_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="cannot be written"), whole_folder(str(tmp_path / "out")):
        (tmp_path / "out").write_text("a file now")
    assert os.listdir(tmp_path) == ["out"]


def test_only_what_dead_writers_left_is_removed(tmp_path: Path) -> None:
    dead, alive, other = (tmp_path / temporary_name(name) for name in ("out", "out", "out2"))
    for path in (dead, alive, other):
        path.mkdir()
        (path / "file").write_text("x")
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with whole_folder(str(tmp_path / "out")):
        pass
    os.close(lock)
    assert {*os.listdir(tmp_path)} == {"out", alive.name, other.name}
