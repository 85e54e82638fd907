"""Files of this machine as fields: one open, read and close, and a look before and behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError
from tarkit.samples import content
from tarkit.samples.content import read_local_file
from tarkit.store.fieldfile import FieldFile


def test_content_and_large_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    for size in (0, 1, 100_000):
        path.write_bytes(b"x" * size)
        assert read_local_file(str(path)) == b"x" * size
    monkeypatch.setattr(content, "LARGE", 10_000)
    found = read_local_file(str(path))
    assert isinstance(found, FieldFile) and found.read() == b"x" * 100_000


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, 10)


def rewrite(path: Path) -> None:
    path.write_bytes(b"y" * 1000)
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"z" * 2000)
    os.replace(other, path)


@pytest.mark.parametrize("change", [grow, shrink, rewrite, replace, Path.unlink])
@pytest.mark.parametrize("when", ["open", "read", "close"])
def test_a_file_that_changes_while_it_is_read(
    change: Callable[[Path], object], when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 1000)
    call = getattr(os, "fstat" if when == "open" else when)

    def changed(*arguments: int) -> object:
        found = call(*arguments)
        monkeypatch.undo()
        change(path)
        return found

    monkeypatch.setattr(os, "fstat" if when == "open" else when, changed)
    with pytest.raises((TemporaryStreamError, MissingInputError)) as caught:
        read_local_file(str(path))
    expected = "no such file" if change is Path.unlink else "changed while it was read: it had 1000 bytes"
    assert expected in str(caught.value) and "a.bin" in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingInputError, match="nosuch: no such file"):
        read_local_file(str(tmp_path / "nosuch"))
    with pytest.raises(StreamError, match="is not a regular file"):
        read_local_file(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StreamError, match="is not a regular file"):
        read_local_file(str(tmp_path / "pipe"))

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(StreamError, match=r"a\.jpg: permission denied"):
        read_local_file("./a.jpg")
