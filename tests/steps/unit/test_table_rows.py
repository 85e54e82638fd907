"""Rows of a table: order, memory, URLs for a function that reads them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import DataError
from tarkit.formats.parquet import read_sizes
from tarkit.formats.tally import Tally
from tarkit.samples.sample import Sample
from tarkit.steps import tablerows
from tarkit.steps.tablerows import Table, Wanted
from tarkit.store import ranges
from tarkit.store.fieldfile import FieldFile

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_a_row_group_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, path = random.Random(1), tmp_path / "t.parquet"
    rows = pyarrow.table({"jpg": [chance.randbytes(20_000) for _ in range(1000)], "cls": list(range(1000))})
    parquet.write_table(rows, path, row_group_size=1000, write_batch_size=10)
    requests: list[int] = []
    read_range = ranges.read_range

    def noted(url: str, start: int, stop: int, **options: Any) -> bytes:
        requests.append(stop - start)
        return read_range(url, start, stop, **options)

    monkeypatch.setattr(ranges, "read_range", noted)
    samples = Table(str(path)).samples(None)
    next(samples)
    # The pages of a batch of 8 MiB, and the end of the file.
    assert sum(requests) < 12 << 20 and max(requests) <= 2 << 20
    assert sum(1 for _ in samples) == 999
    assert max(requests) <= 2 << 20 and sum(requests) < 25 << 20


def test_large_values_wait_on_disk_while_rows_are_shuffled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablerows, "_SHUFFLED", 5000)
    path = tmp_path / "t.csv"
    path.write_text("id,txt\n" + "".join(f"{number},{'x' * 1000}{number}\n" for number in range(10)))
    found = {sample["__key__"]: sample["txt"] for sample in Table(str(path), "id").samples("seed")}
    assert sorted(found) == list("0123456789") != list(found)
    assert sum(isinstance(value, FieldFile) for value in found.values()) == 6
    contents = {key: value.read() if isinstance(value, FieldFile) else value for key, value in found.items()}
    assert contents == {key: b"x" * 1000 + key.encode() for key in contents}


def test_rows_with_urls_go_to_the_function_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    (tmp_path / "1.jpg").write_bytes(b"local")
    path.write_text("id,file,txt\n0,,none\n1,1.jpg,file\n2,http://h/2.jpg,url\n3,1.jpg,after\n4,s3://b/4.jpg,last\n")
    calls: list[list[tuple[str, list[tuple[str, str]]]]] = []

    def fetched(rows: Iterable[Wanted]) -> Iterator[Sample]:
        calls.append([])
        for sample, sources in rows:
            calls[-1].append((sample["__key__"], sources))
            yield {**sample, **{field: url.encode() for field, url in sources}}

    table = Table(str(path), "id", files={"file": "jpg"}, fetched=fetched)
    found = {sample["__key__"]: sample.get("jpg") for sample in table.samples(None)}
    assert found == {"0": None, "1": b"local", "2": b"http://h/2.jpg", "3": b"local", "4": b"s3://b/4.jpg"}
    assert calls == [[("2", [("jpg", "http://h/2.jpg")]), ("3", []), ("4", [("jpg", "s3://b/4.jpg")])]]
    assert table.notes == ["no value: file 1"]


@pytest.mark.parametrize(
    ("kind", "moment", "reason"),
    [("us", 2**62, "row group|date value out of range"), ("ns", 1, "Nanosecond resolution")],
)
def test_a_time_that_python_does_not_have_is_an_error_of_the_table(
    tmp_path: Path, kind: str, moment: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"at": pyarrow.array([moment], pyarrow.timestamp(kind))}), path)
    with pytest.raises(DataError, match=reason) as raised:
        list(Table(str(path)).samples(None))
    assert raised.value.url == str(path)
    with pytest.raises(DataError, match=reason):
        list(read_sizes(str(path), on_damage="error", tally=Tally()))


@pytest.mark.parametrize("shuffle", [None, "1"])
def test_half_of_a_surrogate_pair_is_no_key(tmp_path: Path, shuffle: str | None) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a\\ud800", "txt": "x"}\n')
    with pytest.raises(DataError, match="row 1: this cannot be a key"):
        list(Table(str(path), "id").samples(shuffle))


def test_a_table_does_not_decide_which_files_are_read(tmp_path: Path) -> None:
    """A row could bring any file of the machine into a shard, without an option that says so."""
    path, other = tmp_path / "t.parquet", tmp_path / "other.jpg"
    other.write_bytes(b"other")
    rows = [{"bytes": b"x", "path": "x.jpg"}, {"bytes": None, "path": str(other)}, {"bytes": None, "path": None}]
    parquet.write_table(pyarrow.table({"img": rows, "n": [1, 2, 3]}), path)
    with pytest.raises(DataError, match="row 2: column img has no bytes, but a path; --files img=FIELD"):
        list(Table(str(path)).samples(None))
    table = Table(str(path), files={"img": "jpg"})
    assert [sample.get("jpg") for sample in table.samples(None)] == [b"x", b"other", None]
    assert table.nulls == {"img": 1}
    assert len(list(Table(str(path), columns={"n": None}).samples(None))) == 3


@pytest.mark.parametrize("name", ["a\\u0000b", "\\ud800"])
def test_what_is_no_path_is_an_error_of_the_row(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"id": "a", "file": "{name}"}}\n')
    with pytest.raises(DataError, match="is not a path") as raised:
        list(Table(str(path), "id", files={"file": "jpg"}).samples(None))
    assert raised.value.key == "a"
