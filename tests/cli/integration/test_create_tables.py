"""tarkit create: rows of tables as samples."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import read_samples

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

Run = Callable[..., Any]


def samples(*shards: Path) -> dict[str, dict[str, bytes]]:
    found = {}
    for sample in (each for shard in shards for each in read_samples(str(shard))):
        found[sample["__key__"]] = {name: value for name, value in sample.items() if not name.startswith("__")}
    return found


def made(run: Run, table: Path, *arguments: str | Path) -> dict[str, dict[str, bytes]]:
    out = table.parent / "out.tar"
    result = run("tarkit", "create", "--table", table, "-o", out, *arguments)
    assert result.code == 0, result.stderr
    return samples(out)


def refused(run: Run, table: Path, *arguments: str | Path, code: int = 65) -> str:
    out = table.parent / "refused.tar"
    result = run("tarkit", "create", "--table", table, "-o", out, *arguments)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (code, b"", 1), result.stderr
    assert not out.exists()
    return str(result.stderr)


def text(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ---- CSV and TSV


def test_csv_as_other_programs_write_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    captions = {"007": 'a "quoted", long\nline', "8": "NA", "9": "1e5", "10": "", "11": "x" * 200_000}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "caption", "cls"], *([key, text, "03"] for key, text in captions.items())])
    found = made(run, path, "--key", "id")
    assert found == {key: {"caption.txt": text.encode(), "cls": b"03"} for key, text in captions.items()}
    # Without a key, rows are numbered; columns are chosen and named.
    found = made(run, path, "--columns", "caption=txt", "--columns", "id")
    assert list(found) == [f"{number:09d}" for number in range(5)]
    assert found["000000000"] == {"id.txt": b"007", "txt": captions["007"].encode()}


def test_byte_order_marks_encodings_and_compression(run: Run, tmp_path: Path) -> None:
    rows = "id,name\r\n1,Zoë\r\n\r\n2,Bär\r\n"
    wanted = {"1": {"name.txt": "Zoë".encode()}, "2": {"name.txt": "Bär".encode()}}
    assert made(run, text(tmp_path, "a.csv", "\ufeff" + rows), "--key", "id") == wanted
    assert made(run, text(tmp_path, "b.csv.gz", gzip.compress(rows.encode())), "--key", "id") == wanted
    assert made(run, text(tmp_path, "c.csv", rows.encode("utf-16")), "--key", "id", "--encoding", "utf-16") == wanted
    cp1252 = text(tmp_path, "d.csv", rows.encode("cp1252"))
    assert made(run, cp1252, "--key", "id", "--encoding", "cp1252") == wanted
    said = refused(run, cp1252, "--key", "id")
    assert "d.csv: line 2 is not text in utf-8" in said and "--encoding cp1252" in said
    assert "encoding 'qq' does not exist" in refused(run, cp1252, "--encoding", "qq", code=2)
    run("tarkit", "create", "--table", "-", "--key", "id", "-o", tmp_path / "e.tar", stdin=rows.encode())
    assert samples(tmp_path / "e.tar") == wanted
    series = ["-o", f"{tmp_path}/f-%d.tar", "--maxcount", "1"]
    result = run("tarkit", "create", "--table", "-", "--key", "id", *series, stdin=b"id,t\n1,a\n2,b\n1,c\n")
    assert result.code == 65 and "key '1': the key of row 4 is that of an earlier row" in result.stderr


def test_a_lone_quote_swallows_no_rows(run: Run, tmp_path: Path) -> None:
    rows = 'id\ttext\n1\t"never closed\n2\t5" disk\n3\tlast\n'
    wanted = {"1": '"never closed', "2": '5" disk', "3": "last"}
    tsv = text(tmp_path, "t.tsv", rows)
    assert made(run, tsv, "--key", "id") == {key: {"text": value.encode()} for key, value in wanted.items()}
    said = refused(run, tsv, "--key", "id", "--quoting", "csv")
    assert "t.tsv: row 2 is not CSV" in said and "--quoting none" in said
    as_csv = text(tmp_path, "t.csv", rows.replace("\t", ","))
    assert "row 2 is not CSV" in refused(run, as_csv, "--key", "id")
    assert list(made(run, as_csv, "--key", "id", "--quoting", "none")) == ["1", "2", "3"]


def test_tables_with_other_delimiters_or_torn_rows(run: Run, tmp_path: Path) -> None:
    semicolons = text(tmp_path, "s.csv", "id;text\n1;a,b\n")
    said = refused(run, semicolons)
    assert "has one column, 'id;text'; if ';' separates them, pass --delimiter ';'" in said
    assert made(run, semicolons, "--key", "id", "--delimiter", ";") == {"1": {"text": b"a,b"}}
    assert "row 3 has 1 value, and there are 2 columns" in refused(run, text(tmp_path, "a.csv", "a,b\n1,2\n3\n"))
    assert "row 2 has 3 values" in refused(run, text(tmp_path, "b.csv", "a,b\n1,2,3\n"))
    assert "has two columns 'a'" in refused(run, text(tmp_path, "c.csv", "a,a\n1,2\n"))
    assert "the table has no rows" in refused(run, text(tmp_path, "d.csv", "a,b\n"), code=66)
    assert "the table has no rows" in refused(run, text(tmp_path, "e.csv", ""), code=66)
    assert "a table is a file named *.csv, *.tsv" in refused(run, text(tmp_path, "f.txt", "a\n1\n"), code=2)
    assert made(run, tmp_path / "f.txt", "--delimiter", ",") == {"000000000": {"a.txt": b"1"}}
    assert "--delimiter 'ab' is not one character" in refused(run, semicolons, "--delimiter", "ab", code=2)
    assert "no such file" in refused(run, tmp_path / "nosuch.csv", code=66)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "row 3 has no key: id is ''"),
        ("1", "rows 2 and 3 have one key"),
        ("../x", "row 3: this cannot be a key"),
        ("/x", "row 3: this cannot be a key"),
        ("a//x", "row 3: this cannot be a key"),
        ("x/./y", "row 3: this cannot be a key"),
        ("a.b", "row 3: this cannot be a key; a key has no dot after its last slash"),
        (".x", "row 3: this cannot be a key"),
        ("__x__/y", "row 3: readers would skip the files of this key"),
    ],
)
def test_keys_that_cannot_be(key: str, said: str, run: Run, tmp_path: Path) -> None:
    path = text(tmp_path, "t.csv", f"id,t\n1,a\n{key},b\n")
    assert said in refused(run, path, "--key", "id")


def test_keys_with_slashes_blanks_and_dots_in_folders(run: Run, tmp_path: Path) -> None:
    path = text(tmp_path, "t.csv", "id,t\na.b/c,1\nd e,2\n")
    assert list(made(run, path, "--key", "id")) == ["a.b/c", "d e"]
    dots = text(tmp_path, "u.csv", "id,t\na.b,1\n")
    assert list(
        read_samples(
            str(write(run, dots, "--key", "id", "--columns", "t=txt", "--key-rule", "last-dot")), rule="last-dot"
        )
    )


def write(run: Run, table: Path, *arguments: str) -> Path:
    out = table.parent / "written.tar"
    assert run("tarkit", "create", "--table", table, "-o", out, *arguments).code == 0
    return out


@pytest.mark.parametrize("name", ["__key__", "__url__", "a b", "a.b", "a/b", ""])
def test_names_of_columns_that_cannot_be_fields(name: str, run: Run, tmp_path: Path) -> None:
    path = text(tmp_path, "t.csv", f"id,{name}\n1,x\n")
    assert f"column {name!r} cannot be the name of a field; name the columns" in refused(run, path, "--key", "id")
    if name:
        assert made(run, path, "--key", "id", "--columns", f"{name}=txt") == {"1": {"txt": b"x"}}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--key", "ID"], 65, "has no column 'ID'; it has id, text, cls"),
        (["--columns", "texts"], 65, "has no column 'texts'"),
        (["--files", "path=jpg"], 65, "has no column 'path'"),
        (["--files", "path"], 2, "'path' is not COLUMN=FIELD"),
        (["--columns", "text="], 2, "'text=' is not COLUMN=FIELD"),
        (["--columns", "text=a/b"], 2, "'a/b' cannot be the name of a field"),
        (["--columns", "text=__x__"], 2, "'__x__' cannot be the name of a field"),
        (["--columns", "id=txt,text=txt"], 65, "row 2: two columns become the field txt"),
        (["--columns", "cls"], 65, "row 2: field 'cls', a value of type str, cannot be encoded"),
        (["--skip-others"], 2, "--skip-others goes with files"),
    ],
)
def test_columns_that_cannot_be(arguments: list[str], code: int, said: str, run: Run, tmp_path: Path) -> None:
    path = text(tmp_path, "t.csv", "id,text,cls\n1,a,cat\n")
    assert said in refused(run, path, *arguments, code=code)


def test_options_of_a_table_need_one(run: Run, tmp_path: Path) -> None:
    for name in ("key", "columns", "files", "delimiter", "quoting", "encoding"):
        value = {"files": "a=b", "quoting": "none", "encoding": "utf-8"}.get(name, "a")
        result = run("tarkit", "create", tmp_path, "-o", tmp_path / "x.tar", f"--{name}", value)
        assert result.code == 2 and f"--{name} goes with --table" in result.stderr


# ---- files that a table names


def test_columns_of_paths(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clips" / "deep").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "clips" / "deep" / f"{number}.mp3").write_bytes(b"%d" % number)
    rows = [f"deep/{number}.mp3\tsentence {number}" for number in range(3)]
    path = text(tmp_path, "clips/t.tsv", "\n".join(["path\tsentence", *rows, ""]))
    found = made(run, path, "--key", "path", "--files", "path=mp3")
    assert found == {f"deep/{n}": {"mp3": b"%d" % n, "sentence.txt": b"sentence %d" % n} for n in range(3)}
    # Of two columns, one may be empty; the paths themselves may be kept.
    two = text(tmp_path, "u.jsonl", '{"id": "a", "x": "1.mp3", "y": null}\n{"id": "b", "x": "2.mp3", "y": "0.mp3"}\n')
    arguments = ["--key", "id", "--files", "x=a.mp3", "--files", "y=b.mp3", "-C", tmp_path / "clips/deep"]
    assert made(run, two, *arguments, "--columns", "x=txt") == {
        "a": {"a.mp3": b"1", "txt": b"1.mp3"}, "b": {"a.mp3": b"2", "b.mp3": b"0", "txt": b"2.mp3"},
    }  # fmt: skip
    said = refused(run, two, "--key", "id", "--files", "x=mp3", code=66)
    assert "1.mp3, key 'a': no such file; relative paths begin in the table's folder" in said
    assert "two columns become the field mp3" in refused(run, two, *arguments[2:], "--files", "x=mp3,y=mp3")


# ---- JSON lines


def test_json_lines(run: Run, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "txt": "ä", "n": 2, "f": 0.5, "b": True, "l": [1, {"x": None}], "cls": 3},
        {"id": "b", "txt": "", "json": {"a": 1}, "n": None, "nan": float("nan")},
    ]
    path = text(tmp_path, "t.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    found = made(run, path, "--key", "id")
    assert found == {
        "1": {"b.json": b"true", "cls": b"3", "f.json": b"0.5", "l.json": b'[1, {"x": null}]', "n.json": b"2",
              "txt": "ä".encode()},
        "b": {"json": b'{"a": 1}', "txt": b""},
    }  # fmt: skip
    result = run("tarkit", "create", "--table", path, "--key", "id", "-o", tmp_path / "x.tar")
    assert "no value: n 1, nan 1" in result.stderr
    numbers = made(run, path, "--key", "id", "--columns", "n=txt,txt=caption.txt")
    assert numbers == {"1": {"caption.txt": "ä".encode(), "txt": b"2"}, "b": {"caption.txt": b""}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1}\n{"a": 1, "a": 2}\n', "line 2 is not JSON: the name 'a' is twice in one object"),
        ('{"a": 1}\n[1]\n', "line 2 is not a JSON object"),
        ('{"a": 1}\n{"a"\n', "line 2 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        ('{"a": Infinity}', "row 1: field 'a.json', a value of type float, cannot be encoded"),
        ('{"a": "\\ud800"}', "row 1: field 'a.txt', a value of type str, cannot be encoded"),
    ],
)
def test_json_lines_that_cannot_be(content: str, said: str, run: Run, tmp_path: Path) -> None:
    assert said in refused(run, text(tmp_path, "t.jsonl", content))


def test_a_column_that_no_line_has(run: Run, tmp_path: Path) -> None:
    path = text(tmp_path, "t.jsonl", '{"id": "a", "x": 1}\n')
    assert "no row has the column 'y'" in refused(run, path, "--key", "id", "--columns", "x,y")
    assert "row 1 has no key: i is None" in refused(run, path, "--key", "i")


# ---- Parquet


def test_parquet_of_every_type(run: Run, tmp_path: Path) -> None:
    day, moment = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    (tmp_path / "p.jpg").write_bytes(b"from the path")
    columns = {
        "id": pyarrow.array([7, 8]),
        "jpg": pyarrow.array([b"\xff\xd8a", None], pyarrow.large_binary()),
        "raw": pyarrow.array([b"abcd", b"efgh"], pyarrow.binary(4)),
        "image": pyarrow.array([{"bytes": b"B", "path": "x.jpg"}, {"bytes": None, "path": "p.jpg"}], image),
        "caption": pyarrow.array(["one", None]).dictionary_encode(),
        "cls": pyarrow.array([3, 4], pyarrow.int8()),
        "score": pyarrow.array([0.25, float("nan")]),
        "ok": pyarrow.array([True, False]),
        "tags": pyarrow.array([["a", "b"], []]),
        "box": pyarrow.array([{"x": 1}, {"x": 2}]),
        "day": pyarrow.array([day, day]),
        "at": pyarrow.array([moment, moment]),
        "price": pyarrow.array([decimal.Decimal("1.50")] * 2, pyarrow.decimal128(5, 2)),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path, row_group_size=1)
    found = made(run, path, "--key", "id", "--files", "image=image")
    common = {"day.txt": b"2026-01-02", "at.txt": b"2026-01-02T03:04:05+00:00", "price.txt": b"1.50"}
    assert found == {
        "7": {"jpg": b"\xff\xd8a", "raw": b"abcd", "image": b"B", "caption.txt": b"one", "cls": b"3",
              "score.json": b"0.25", "ok.json": b"true", "tags.json": b'["a", "b"]', "box.json": b'{"x": 1}', **common},
        "8": {"raw": b"efgh", "image": b"from the path", "cls": b"4", "ok.json": b"false", "tags.json": b"[]",
              "box.json": b'{"x": 2}', **common},
    }  # fmt: skip
    images = ["--files", "image=image", "-o", tmp_path / "x.tar"]
    result = run("tarkit", "create", "--table", path, "--key", "id", *images)
    assert "no value: caption 1, jpg 1, score 1" in result.stderr
    assert made(run, path, "--columns", "cls", "--files", "image=jpg") == {
        "000000000": {"jpg": b"B", "cls": b"3"}, "000000001": {"jpg": b"from the path", "cls": b"4"},
    }  # fmt: skip
    assert "cannot be encoded" in refused(run, write_parquet(tmp_path, x=[[b"a"]]))
    assert "two columns become the field jpg" in refused(run, path, "--columns", "image=jpg,jpg")
    assert "has no column 'nosuch'" in refused(run, path, "--key", "nosuch")
    assert "is not a Parquet file" in refused(run, text(tmp_path, "u.parquet", "PAR1"))
    assert "--delimiter ';' is not one character between the values" in refused(run, path, "--delimiter", ";", code=2)
    assert "the table has no rows" in refused(run, write_parquet(tmp_path, x=[]), code=66)


def write_parquet(folder: Path, **columns: list[Any]) -> Path:
    path = folder / "made.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_a_repeated_or_missing_key_of_parquet_names_its_rows(run: Run, tmp_path: Path) -> None:
    assert "rows 1 and 3 have one key" in refused(run, write_parquet(tmp_path, id=["a", "b", "a"]), "--key", "id")
    assert "row 2 has no key: id is None" in refused(run, write_parquet(tmp_path, id=["a", None]), "--key", "id")
    assert "row 1 has no key: id is 0.5" in refused(run, write_parquet(tmp_path, id=[0.5]), "--key", "id")


def test_a_row_without_any_value_is_named(run: Run, tmp_path: Path) -> None:
    said = refused(run, write_parquet(tmp_path, id=["a", "b"], x=["1", None]), "--key", "id", code=1)
    assert "key 'b': the sample has no fields" in said
