"""Lists of keys: their forms, and the part of long ones that is sorted on the disk."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tarkit.errors import DataError, MissingInputError, StreamError, UsageError
from tarkit.steps import keylists
from tarkit.steps.keylists import KeyList
from tarkit.steps.selection import Selection
from tarkit.store import database


def written(folder: Path, name: str, content: bytes | str) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def keys_of(source: str) -> set[str]:
    return {*KeyList(source)._first}


def test_a_list_has_a_key_on_each_line(tmp_path: Path) -> None:
    content = b"a/1\r\n\n#2\nb c\n\xff\nlast"
    assert keys_of(written(tmp_path, "keys.txt", content)) == {"a/1", "#2", "b c", "\udcff", "last"}
    assert keys_of(written(tmp_path, "keys.gz", gzip.compress(content))) == keys_of(str(tmp_path / "keys.txt"))
    assert keys_of(written(tmp_path, "empty", b"")) == set()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a:b.tab", "the key\tx\n" + 'a,"1\t1\n007\t2\n'),
        ("a.csv", '\ufeffid,"the key",x\n1,"a,""1",2\n2,007,3\n3,,4\n'),
        ("a.tsv", "the key\tx\n" + 'a,"1\t1\n007\t2\n'),
        ("a.jsonl", '{"the key": "a,\\"1", "x": 1}\n{"the key": "007"}\n{"the key": null}\n'),
    ],
)
def test_a_column_of_a_table_is_read_as_text(tmp_path: Path, name: str, content: str) -> None:
    source = written(tmp_path, name, content)
    assert keys_of(f"{source}:the key") == {'a,"1', "007"}
    with pytest.raises(DataError, match=r"has no column nokey; it has .*the key"):
        KeyList(f"{source}:nokey")
    with pytest.raises(UsageError, match=r"is a table; name the column of its keys: .*:COLUMN"):
        KeyList(source)


def test_a_column_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = {"n": [1, 2, None], "text": ["a", None, "b"], "bytes": [b"x", b"\xff", b"y"], "real": [1.5, 2.5, 3.5]}
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    assert keys_of(f"{path}:n") == {"1", "2"}
    assert keys_of(f"{path}:text") == {"a", "b"}
    assert keys_of(f"{path}:bytes") == {"x", "y", "\udcff"}
    with pytest.raises(DataError, match="row 1: it is not a key"):
        KeyList(f"{path}:real")
    with pytest.raises(DataError, match="has no column nokey; it has n, text"):
        KeyList(f"{path}:nokey")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("keys.txt", b"a\nb\0c\n", "keys.txt: row 2: it is not a key"),
        ("keys.txt", b"a" * (2 << 20), "row 1: it is not a key"),
        ("a.csv:id", b"id,x\n1,2\n\xff,3\n", "a.csv: line 3 is not text in utf-8"),
        ("a.csv:x", b"id,x\n1,2\n3\n", "row 3 has 1 values?, and there are 2 columns"),
        ("a.tsv:id", b"id\tx\n1\n", "row 2 has 1 values?, and there are 2 columns"),
        ("a.jsonl:id", b'{"id": true}\n', "row 1: it is not a key"),
        ("a.jsonl:id", b"{\n", "line 1 is not JSON: Expecting"),
        ("a.jsonl:id", b"[" * 100_000 + b"\n", "line 1 is not JSON: maximum recursion depth"),
        ("a.jsonl:id", b"3\n", "line 1 is not a JSON object"),
        ("a.jsonl:id", b"[1]\n", "line 1 is not a JSON object"),
        ("a.csv:id", b'id\n"x', "row 2 is not CSV: unexpected end of data"),
    ],
)
def test_files_that_are_no_lists(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    source = written(tmp_path, name.partition(":")[0], content) + "".join(name.partition(":")[1:])
    with pytest.raises(DataError, match=message):
        KeyList(source)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no such file"):
        Selection(keys=str(tmp_path / "none.txt"))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylists, "IN_MEMORY", 10)


@pytest.mark.usefixtures("_small")
def test_a_long_list_is_sorted_on_the_disk(tmp_path: Path) -> None:
    keys = [f"k/{number}" for number in range(3000)]
    source = written(tmp_path, "keys", "\n".join([*keys, *keys[::2]]))
    held = KeyList(source)
    assert len(held._first) == 10
    assert all(key in held for key in keys[5:])
    assert not any(f"x/{number}" in held for number in range(3000))
    assert held.not_found() == (5, ["k/0", "k/1", "k/2"])
    assert keys[3] in held
    assert held.not_found() == (4, ["k/0", "k/1", "k/2"])
    fresh = KeyList(source)
    assert fresh.not_found() == (3000, ["k/0", "k/1", "k/2"])
    assert keys[-1] in fresh
    assert keys[-1] in fresh
    assert fresh.not_found()[0] == 2999


@pytest.mark.usefixtures("_small")
def test_there_is_no_room_for_a_long_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, "keys", "\n".join(map(str, range(2000))))
    monkeypatch.setattr(database, "_SETTINGS", "PRAGMA max_page_count = 4;")
    with pytest.raises(StreamError, match=r"temporary database cannot be written: .* full; set TMPDIR to a folder"):
        KeyList(source)


def test_a_selection_by_keys_counts_the_keys_that_no_sample_has(tmp_path: Path) -> None:
    wanted = written(tmp_path, "wanted", "a\nc\nx\ny\n")
    table = written(tmp_path, "bad.jsonl", "".join(json.dumps({"key": key}) + "\n" for key in ("b", "c", "z")))
    given: list[dict[str, Any]] = [{"__key__": key, "txt": b""} for key in "abcd"]
    with Selection(keys=wanted, without_keys=f"{table}:key", match="a|c") as selection:
        assert [sample["__key__"] for sample in selection.select(given)] == ["a"]
        assert selection.dropped == {"keys": 2, "without_keys": 1}
        assert selection.unknown_keys == {"keys": (2, ["x", "y"]), "without_keys": (1, ["z"])}


def test_memory_does_not_grow_with_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40,000 keys of 60 characters more take 7 MB as texts in a dict."""
    monkeypatch.setattr(keylists, "IN_MEMORY", 1000)
    peaks = []
    for count in (40_000, 80_000):
        source = written(tmp_path, "keys", "\n".join(f"{number:060d}" for number in range(count)))
        tracemalloc.start()
        try:
            assert f"{count - 1:060d}" in KeyList(source)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2_000_000
