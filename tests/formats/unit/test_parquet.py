"""Samples to rows of Parquet and back; pyarrow reads what is written, and writes what is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import DataError, EncodeError, TooLargeError, UsageError
from tarkit.formats import parquet
from tarkit.formats.example import decode_example
from tarkit.formats.recordio import read_records
from tarkit.formats.tally import Tally
from tarkit.readers.create import create_data_reader
from tarkit.steps.convert import convert
from tarkit.steps.encoding import Encoding

pa = pytest.importorskip("pyarrow", reason="NO PYARROW, PARQUET IS NOT CONVERTED")
pq = pytest.importorskip("pyarrow.parquet", reason="NO PYARROW, PARQUET IS NOT CONVERTED")

TYPED = Encoding(typed=True)
SAMPLES: list[dict[str, Any]] = [
    {"__key__": "a/0", "jpg": b"\xff\xd8", "cls": b"0", "b.json": b'{"b": 1}'},
    {"__key__": "a/1", "jpg": b"", "cls": b"1"},
    {"__key__": "\u00e9", "x%2Fy.txt": b"\xff", "cls": b""},
]


def write(path: Path, samples: list[dict[str, Any]]) -> str:
    with tarkit.TarWriter(str(path), encoder=False) as sink:
        for sample in samples:
            sink.write(sample)
    return str(path)


def fields(path: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in sample.items() if k != "__url__"} for sample in tarkit.read_samples(path)]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """As other programs write one: several row groups, nulls, structures, and no keys."""
    columns = {
        "image": pa.array([{"bytes": b"\xff\xd8", "path": "0.jpg"}, None, {"bytes": b"", "path": None}]),
        "label": pa.array([1, None, -(2**63)]),
        "score": pa.array([0.5, 1.0, 1e300]),
        "small": pa.array([0.1, 0.5, None], pa.float32()),
        "ok": pa.array([True, False, None]),
        "text": pa.array(["one", "", "\u00e9\n"]),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "boxes": pa.array([[[1.0, 2.0]], [], None]),
        "turns": pa.array([[{"role": "u", "n": 1}], [], None]),
        "a/b": pa.array([b"1", b"2", None], pa.large_binary()),
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet", row_group_size=2)
    return f"{tmp_path}/in.parquet"


def test_a_tar_comes_back(tmp_path: Path) -> None:
    """Missing fields and empty ones differ; the same samples give the same bytes."""
    source = write(tmp_path / "a.tar", SAMPLES)
    assert convert(source, f"{tmp_path}/a.parquet", verify=True) == 3
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.schema.names == ["__key__", "b.json", "cls", "jpg", "x/y.txt"]
    assert set(map(str, found.schema.types)) == {"string", "binary"}
    assert found["jpg"].to_pylist() == [b"\xff\xd8", b"", None] and found["cls"].to_pylist() == [b"0", b"1", b""]
    assert convert(f"{tmp_path}/a.parquet", f"{tmp_path}/b.tar", verify=True) == 3
    assert (tmp_path / "b.tar").read_bytes() == (tmp_path / "a.tar").read_bytes()
    convert(source, f"{tmp_path}/again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()


def test_a_table_of_another_program_comes_back(table: str, tmp_path: Path) -> None:
    assert convert(table, f"{tmp_path}/a.tar", verify=True) == 3
    first, second, third = fields(f"{tmp_path}/a.tar")
    assert first == {
        "__key__": "000000000",
        "a%2Fb": b"1",
        "boxes.json": b"[[1.0, 2.0]]",
        "image.bytes": b"\xff\xd8",
        "image.path.txt": b"0.jpg",
        "kind.txt": b"x",
        "label.json": b"1",
        "ok.json": b"true",
        "score.json": b"0.5",
        "small.json": b"0.10000000149011612",
        "text.txt": b"one",
        "turns.json": b'[{"role": "u", "n": 1}]',
    }
    assert "label.json" not in second and second["text.txt"] == b"" and second["boxes.json"] == b"[]"
    assert third["image.bytes"] == b"" and third["label.json"] == b"-9223372036854775808"
    assert convert(f"{tmp_path}/a.tar", f"{tmp_path}/b.parquet", encoding=TYPED, verify=True) == 3
    before, after = (pq.read_table(path) for path in (table, f"{tmp_path}/b.parquet"))
    before = before.flatten()
    assert after["__key__"].to_pylist() == ["000000000", "000000001", "000000002"]
    for name in before.schema.names:
        assert after[name].to_pylist() == before[name].to_pylist(), name
    assert str(after.schema.field("label").type) == "int64" and str(after.schema.field("text").type) == "string"


def test_records_and_archives(table: str, tmp_path: Path) -> None:
    source = write(tmp_path / "a.tar", SAMPLES[:2])
    convert(source, f"{tmp_path}/a.parquet")
    convert(f"{tmp_path}/a.parquet", f"{tmp_path}/a.recordio", encoding=Encoding(field="cls"), verify=True)
    assert list(read_records(f"{tmp_path}/a.recordio")) == [b"0", b"1"]
    convert(f"{tmp_path}/a.parquet", f"{tmp_path}/b.recordio", encoding=Encoding(example=True), verify=True)
    assert decode_example(next(read_records(f"{tmp_path}/b.recordio")))["jpg"] == [b"\xff\xd8"]
    convert(f"{tmp_path}/b.recordio", f"{tmp_path}/b.parquet", encoding=Encoding(example=True), verify=True)
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()
    convert(f"{tmp_path}/a.parquet", f"{tmp_path}/c.har")
    convert(f"{tmp_path}/c.har", f"{tmp_path}/c.parquet", verify=True)
    assert (tmp_path / "c.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()
    convert(source, f"{tmp_path}/d.parquet", encoding=Encoding(field="cls"), verify=True)
    assert pq.read_table(tmp_path / "d.parquet").schema.names == ["__key__", "cls"]


def test_rows_of_several_files_have_keys_of_their_own(table: str, tmp_path: Path) -> None:
    assert convert([table, table], f"{tmp_path}/a.tar") == 6
    assert [sample["__key__"] for sample in fields(f"{tmp_path}/a.tar")] == [f"{n:09d}" for n in range(6)]


def test_columns_that_are_named(table: str, tmp_path: Path) -> None:
    convert(table, f"{tmp_path}/a.tar", encoding=Encoding(columns=["image.bytes", "text"]), verify=True)
    assert fields(f"{tmp_path}/a.tar")[0] == {"__key__": "000000000", "image.bytes": b"\xff\xd8", "text.txt": b"one"}
    source = write(tmp_path / "b.tar", SAMPLES)
    convert(source, f"{tmp_path}/b.parquet", encoding=Encoding(columns=["jpg"]), verify=True)
    assert pq.read_table(tmp_path / "b.parquet").to_pylist()[1] == {"__key__": "a/1", "jpg": b""}
    with pytest.raises(DataError, match=r"in\.parquet: has no column png; it has image, label"):
        convert(table, f"{tmp_path}/c.tar", encoding=Encoding(columns=["png"]))
    with pytest.raises(EncodeError, match=r"c\.parquet: no row has the column png"):
        convert(source, f"{tmp_path}/c.parquet", encoding=Encoding(columns=["png", "jpg"]))
    assert not list(tmp_path.glob("c.*"))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([0], pa.timestamp("us")), r"column x is timestamp\[us\], which a field cannot hold; leave it out"),
        (pa.array([[b"1"]]), r"column x is list<.*binary.*>, which a field cannot hold"),
        (pa.array([float("nan")]), "key '000000000': column x has a number that JSON does not have: nan"),
        (pa.array([[0.5, float("inf")]]), "key '000000000': column x has a number that JSON does not have"),
    ],
)
def test_a_column_that_a_field_cannot_hold_is_refused_by_name(tmp_path: Path, column: Any, words: str) -> None:
    pq.write_table(pa.table({"a": [b"1"], "x": column}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=rf"in\.parquet.* {words}"):
        convert(f"{tmp_path}/in.parquet", f"{tmp_path}/a.tar")
    assert convert(f"{tmp_path}/in.parquet", f"{tmp_path}/a.tar", encoding=Encoding(columns=["a"])) == 1
    # It is listed nevertheless.
    assert len(list(parquet.read_sizes(f"{tmp_path}/in.parquet", on_damage="error", tally=Tally()))) == 1


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"__key__": [1]}, DataError, "column __key__ is int64; a key is text"),
        ({"__url__": ["u"]}, DataError, "a column is called __url__, .*; call it url"),
        ({"__index_level_0__": [b"1"]}, EncodeError, "key '000000000': '__index_level_0__' cannot be a field"),
        ({"a": ["x"], "a.txt": [b"y"]}, DataError, "two columns become the field a.txt; leave the column out"),
        ({"a": [{"b": 1}], "a.b": [2]}, DataError, r"has two columns a\.b"),
    ],
)
def test_rows_that_are_not_samples(tmp_path: Path, columns: dict[str, Any], error: type[Exception], words: str) -> None:
    pq.write_table(pa.table({"jpg": [b"1"], **columns}), tmp_path / "in.parquet")
    with pytest.raises(error, match=rf"in\.parquet.*{words}"):
        convert(f"{tmp_path}/in.parquet", f"{tmp_path}/a.tar")
    assert not (tmp_path / "a.tar").exists()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "1.5"], "column a, rows '0' to '1': its values are not all double"),
        (["1", '"x"'], "column a, rows '0' to '1': Could not convert"),
        (['[{"b": 1}]', '[{"c": 1}]'], r"column a, rows '0' to '1': its values are not all list<"),
        ([str(2**64)], "column a, rows '0' to '0'"),
        (["1e400"], "column a, rows '0' to '0': Out of range float values are not JSON compliant"),
        (["null"], "key '0': field a.json is null or an object, so it is not a value of a column; leave out --typed"),
        (['{"b": 1}'], "key '0': field a.json is null or an object"),
        (["{"], "key '0': field 'a.json' cannot be decoded"),
    ],
)
def test_values_that_a_column_would_change_are_refused(tmp_path: Path, values: list[str], words: str) -> None:
    """pyarrow makes 1 of 1.5 where the column is of integers, and leaves out what others do not
    have.
    """
    samples = [{"__key__": str(number), "a.json": value.encode()} for number, value in enumerate(values)]
    source = write(tmp_path / "a.tar", samples)
    with pytest.raises((DataError, EncodeError), match=words):
        convert(source, f"{tmp_path}/a.parquet", encoding=TYPED)
    assert not (tmp_path / "a.parquet").exists()


def test_row_groups_are_bounded_and_have_the_columns_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1000)
    samples: list[dict[str, Any]] = [{"__key__": str(number), "bin": bytes(400)} for number in range(10)]
    source = write(tmp_path / "a.tar", samples)
    convert(source, f"{tmp_path}/a.parquet", verify=True)
    found = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [found.row_group(number).num_rows for number in range(found.num_row_groups)] == [3, 3, 3, 1]
    source = write(tmp_path / "b.tar", [*samples, {"__key__": "x", "new": b"1", "bin": b""}])
    with pytest.raises(EncodeError, match=r"b\.parquet, key 'x': column new is not in rows before .* --columns A,B"):
        convert(source, f"{tmp_path}/b.parquet")
    assert not (tmp_path / "b.parquet").exists()
    convert(source, f"{tmp_path}/b.parquet", encoding=Encoding(columns=["bin", "new"]), verify=True)
    assert pq.read_table(tmp_path / "b.parquet")["new"].to_pylist() == [None] * 10 + [b"1"]
    with pytest.raises(TooLargeError, match=r"row group 0 has .* bytes, and mem allows 1; read it with a larger --mem"):
        convert(f"{tmp_path}/a.parquet", f"{tmp_path}/c.tar", encoding=Encoding(mem=1))


@pytest.mark.parametrize("sample", [{"__key__": "caf\udce9", "a": b"1"}, {"__key__": "k", "caf\udce9": b"1"}])
def test_names_that_are_not_utf8_are_refused(tmp_path: Path, sample: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match=r"a\.parquet: column (__key__|caf.udce9), rows .* can't encode character"):
        convert(write(tmp_path / "a.tar", [sample]), f"{tmp_path}/a.parquet")
    with pytest.raises(UsageError, match=r"a\.parquet\.gz: Parquet compresses its pages; let the name end with"):
        convert(f"{tmp_path}/a.tar", f"{tmp_path}/a.parquet.gz", "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_a_data_set_without_samples(tmp_path: Path) -> None:
    source = write(tmp_path / "a.tar", [])
    assert convert(source, f"{tmp_path}/a.parquet", verify=True) == 0
    assert pq.read_table(tmp_path / "a.parquet").schema.names == ["__key__"]


@pytest.mark.parametrize(
    ("inputs", "output", "encoding", "words"),
    [
        ("in.parquet", "a.tar", Encoding(piece=True), "with a column for each field; leave out --piece"),
        ("in.parquet", "a.tar", Encoding(example=True), "with a column for each field; leave out --example"),
        ("a.tar", "b.parquet", Encoding(example=True), "leave out --example"),
        ("in.parquet", "a.recordio", Encoding(), "say what a record of recordio is, with --field FIELD or --example"),
        ("in.parquet", "b.parquet", Encoding(), "in.parquet is parquet already"),
        ("a.tar", "b.har", Encoding(columns=["x"]), "--columns is for Parquet"),
        ("in.parquet", "b.tar", Encoding(typed=True), "--typed is for fields that become"),
        ("in.parquet a.tar", "b.har", Encoding(), "a.tar is tar, and .*in.parquet is parquet; convert them apart"),
        ("pipe:cat in.parquet", "b.tar", Encoding(), "can be read only once, and Parquet is read from its end"),
    ],
)
def test_what_rows_cannot_be(
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: str,
    output: str,
    encoding: Encoding,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.tar", SAMPLES)
    names = [inputs] if inputs.startswith("pipe:") else inputs.split()
    source = "parquet" if inputs.startswith("pipe:") else None
    with pytest.raises(UsageError, match=words):
        convert(names, output, encoding=encoding, source_format=source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "in.parquet"]


def test_damage_is_an_error_that_names_the_row_group(table: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    convert(f"{tmp_path}/a.tar", f"{tmp_path}/a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[content.index(b"a/0")] ^= 1  # pages have checksums
    (tmp_path / "a.parquet").write_bytes(content)
    for change in ({}, {"on_damage": "skip"}):
        with pytest.raises(
            (DataError, UsageError), match=r"row group 0 cannot be read: .*|damage in parquet cannot be"
        ):
            convert(f"{tmp_path}/a.parquet", f"{tmp_path}/b.tar", **change)
    (tmp_path / "a.parquet").write_bytes(content[:-4])
    with pytest.raises(DataError, match=r"a\.parquet: is not a Parquet file that can be read"):
        convert(f"{tmp_path}/a.parquet", f"{tmp_path}/b.tar")
    assert not (tmp_path / "b.tar").exists()


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "parquet.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(program, "parquet.md", "exec"), {})


def test_the_programs(table: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    (tmp_path / "part-0").write_bytes(Path(table).read_bytes())  # known by its first bytes
    for name in (table, f"{tmp_path}/part-0"):
        assert main(["show", "--count", name]) == 0
        assert capfd.readouterr().out == "3\n"
        assert create_data_reader(name).create_shards() == [(name, 0, 3)]
    words = ["convert", table, "-o", f"{tmp_path}/a.tar", "--columns", "image.bytes,label,text"]
    assert main(words) == 0 and capfd.readouterr().err == "tarkit convert: 3 records\n"
    assert main(["convert", f"{tmp_path}/a.tar", "-o", f"{tmp_path}/b.parquet", "--typed", "-q"]) == 0
    assert pq.read_table(tmp_path / "b.parquet")["label"].to_pylist() == [1, None, -(2**63)]
    assert main(["show", "--json", "-n1", f"{tmp_path}/b.parquet"]) == 0
    assert json.loads(capfd.readouterr().out)["key"] == "000000000"
