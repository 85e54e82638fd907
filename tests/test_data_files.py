"""Which files of a folder, or of a spec, are data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import fsspec
import pytest

from tarkit.errors import MissingInputError
from tarkit.specs.datafiles import data_files


def test_a_folder_that_spark_wrote(tmp_path: Path) -> None:
    for name in ("part-00001", "part-00000", "_SUCCESS", ".part-00000.crc", "part-00000.crc", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "_temporary").mkdir()
    skipped: Counter[str] = Counter()
    found = list(data_files(str(tmp_path), lambda reason: skipped.update([reason])))
    assert found == [str(tmp_path / "part-00000"), str(tmp_path / "part-00001")]
    assert skipped == {"folder": 1, "checksum-file": 2, "hidden-file": 2}


def test_a_folder_at_a_url() -> None:
    files = fsspec.filesystem("memory")
    for name in ("b", "a", "_SUCCESS"):
        files.pipe(f"/data-files/{name}", b"x")
    assert list(data_files("memory://data-files")) == ["memory://data-files/a", "memory://data-files/b"]


def test_what_is_not_a_folder_is_a_spec(tmp_path: Path) -> None:
    (tmp_path / "_x").touch()
    assert list(data_files(str(tmp_path / "_x"))) == [str(tmp_path / "_x")]
    assert list(data_files("s3://b/x-{0..1}")) == ["s3://b/x-0", "s3://b/x-1"]
    assert list(data_files("-")) == ["-"]
    (tmp_path / "list").write_text("a\nb\n")
    assert list(data_files(f"@{tmp_path}/list")) == ["a", "b"]


def test_a_url_of_nothing_is_left_to_the_reader() -> None:
    assert list(data_files("memory://data-files-none/x")) == ["memory://data-files-none/x"]


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        list(data_files(f"{tmp_path}/*"))
