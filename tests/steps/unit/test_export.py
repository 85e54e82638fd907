"""Exports, read back with csv, json and pyarrow, and by tarkit itself."""

from __future__ import annotations

import base64
import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import DecodeError, EncodeError, StreamError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.steps import export
from tarkit.steps.export import open_export
from tarkit.store.fieldfile import FieldFile

SAMPLES: list[dict[str, Any]] = [
    {
        "__key__": "a/1",
        "__url__": "s.tar",
        "jpg": b"\xff\0",
        "cls": b"7",
        "txt": 'ä, "x"\n'.encode(),
        "json": b'{"n": 1}',
    },
    {"__key__": "a/2", "__url__": "s.tar", "jpg": b"", "cls": b"-1", "txt": b"", "json": b"[1.5, null]"},
]


def exported(output: Path, to: str, samples: list[dict[str, Any]] = SAMPLES, **options: Any) -> Path:
    with open_export(str(output), to, **options) as write:
        for sample in samples:
            write(sample)
    return output


def test_csv(tmp_path: Path) -> None:
    with open(exported(tmp_path / "o.csv", "csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"__key__": "a/1", "jpg.base64": "/wA=", "cls": "7", "txt": 'ä, "x"\n', "json": '{"n": 1}'},
        {"__key__": "a/2", "jpg.base64": "", "cls": "-1", "txt": "", "json": "[1.5, null]"},
    ]


def test_json_lines(tmp_path: Path) -> None:
    lines = exported(tmp_path / "o.jsonl", "jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"__key__": "a/1", "jpg.base64": "/wA=", "cls": 7, "txt": 'ä, "x"\n', "json": {"n": 1}},
        {"__key__": "a/2", "jpg.base64": "", "cls": -1, "txt": "", "json": [1.5, None]},
    ]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(exported(tmp_path / "o.parquet", "parquet"))
    assert table.to_pylist()[0] == {
        "__key__": "a/1", "jpg": b"\xff\0", "cls": 7, "txt": 'ä, "x"\n', "json": '{"n": 1}',
    }  # fmt: skip
    with pytest.raises(EncodeError, match="column jpg is not one of __key__, cls"):
        exported(tmp_path / "p.parquet", "parquet", columns=["cls"])
    assert not (tmp_path / "p.parquet").exists()


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_paths_in_a_table(tmp_path: Path, to: str) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "t").mkdir()
    output = exported(tmp_path / "t" / f"o.{to}", to, files=str(tmp_path / "media"))
    if to == "csv":
        rows: list[dict[str, Any]] = list(csv.DictReader(output.read_text("utf-8").splitlines()))
    elif to == "jsonl":
        rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(output).to_pylist()
    assert [row["jpg"] for row in rows] == ["../media/a/1.jpg", "../media/a/2.jpg"]
    assert [(output.parent / row["jpg"]).read_bytes() for row in rows] == [b"\xff\0", b""]
    assert sorted(os.listdir(tmp_path / "media" / "a")) == ["1.jpg", "2.jpg"], "text is in the table only"


def test_columns_are_those_of_the_first_sample_or_as_named(tmp_path: Path) -> None:
    first, second = {"__key__": "1", "txt": b"x"}, {"__key__": "2", "bin": b"y", "txt": b"z"}
    with pytest.raises(EncodeError, match=r"key '2': column bin.base64 is not one of __key__, txt; name all columns"):
        exported(tmp_path / "o.csv", "csv", [first, second])
    assert not (tmp_path / "o.csv").exists()
    text = exported(tmp_path / "o.csv", "csv", [first, second], columns=["bin", "txt"]).read_text()
    assert text == "__key__,bin.base64,txt\n1,,x\n2,eQ==,z\n"


def test_large_fields_come_from_files(tmp_path: Path) -> None:
    sample = {"__key__": "1", "bin": FieldFile.keep([b"x" * 1000]), "txt": FieldFile.keep([b"text"])}
    exported(tmp_path / "f", "folder", [sample])
    assert (tmp_path / "f" / "1.bin").read_bytes() == b"x" * 1000
    row = json.loads(exported(tmp_path / "o.jsonl", "jsonl", [sample]).read_text())
    assert row == {"__key__": "1", "bin.base64": base64.b64encode(b"x" * 1000).decode(), "txt": "text"}


def test_a_folder_of_files(tmp_path: Path) -> None:
    folder = exported(tmp_path / "f", "folder")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
    assert found == {
        f"{sample['__key__']}.{field}": value
        for sample in SAMPLES
        for field, value in sample.items()
        if field[:2] != "__"
    }
    with pytest.raises(UsageError, match="has files; --force replaces the folder"):
        exported(folder, "folder")
    exported(folder, "folder", SAMPLES[:1], force=True)
    assert len(list(folder.rglob("*.*"))) == 4 and os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/x", "a//x", ".//x", "x\0", "..", "a/./b", ""])
def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "f"
    sample = {"__key__": key, "txt": b""}
    if key in ("..", ""):
        exported(folder, "folder", [sample])
        assert os.listdir(folder) == [f"{key}.txt"], "a name like any other"
        return
    with pytest.raises(EncodeError, match="is not the path of a file in a folder"):
        exported(folder, "folder", [sample])
    assert os.listdir(tmp_path) == []


def test_files_of_two_samples_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match=r"the file 1\.txt is there already, of another sample"):
        exported(tmp_path / "f", "folder", [{"__key__": "1", "txt": b"x"}, {"__key__": "1", "txt": b"y"}])
    with pytest.raises(EncodeError, match="is there already"):
        exported(tmp_path / "f", "folder", [{"__key__": "1", "txt": b"x"}, {"__key__": "1.txt/2", "txt": b"y"}])
    with pytest.raises(StreamError, match="File name too long"):
        exported(tmp_path / "f", "folder", [{"__key__": "1" * 300, "txt": b"x"}])
    assert os.listdir(tmp_path) == []


def test_values_that_are_not_what_their_extension_says(tmp_path: Path) -> None:
    for field, value in (("cls", b"seven"), ("txt", b"\xff"), ("json", b"{")):
        with pytest.raises(DecodeError, match=f"key '1': field '{field}' cannot be decoded"):
            exported(tmp_path / "o.csv", "csv", [{"__key__": "1", field: value}])
    for to in ("csv", "jsonl"):
        with pytest.raises(EncodeError, match="not Unicode"):
            exported(tmp_path / f"o.{to}", to, [{"__key__": "\udcff", "cls": b"1"}])


def test_targets_that_can_not_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'excel' is not a target; targets are folder"), open_export("o", "excel"):
        pass
    with pytest.raises(UsageError, match="goes with a table"), open_export("o", "hf", files="x"):
        pass
    with pytest.raises(UsageError, match="tarkit put"), open_export("s3://b/o", "folder"):
        pass
    with pytest.raises(UsageError, match="tarkit put"), open_export("-", "folder"):
        pass


def test_hf_files_have_the_types_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "_HF_FILE_BYTES", 10)
    samples = [{**SAMPLES[0], "__key__": str(number), "wav": b"RIFF"} for number in range(3)]
    folder = exported(tmp_path / "d", "hf", samples)
    names = sorted(os.listdir(folder / "data"))
    assert names == [f"train-{number:05d}.parquet" for number in range(3)]
    table = parquet.read_table(folder / "data" / names[1])
    assert table["jpg"].to_pylist() == [{"bytes": b"\xff\0", "path": "1.jpg"}]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["jpg"] == {"_type": "Image"} and features["wav"] == {"_type": "Audio"}
    assert features["cls"] == {"_type": "Value", "dtype": "int64"}
    with pytest.raises(EncodeError, match="column png is not one of"):
        exported(tmp_path / "e", "hf", [*samples, {"__key__": "4", "png": b"x"}])
    one = exported(
        tmp_path / "f", "hf", [{"__key__": "1", "cls": b"1"}, {"__key__": "2", "txt": b"x"}], columns=["txt", "cls"]
    )
    found = [parquet.read_table(path).to_pylist() for path in sorted(one.glob("data/*"))]
    assert found == [[{"__key__": "1", "txt": None, "cls": 1}, {"__key__": "2", "txt": "x", "cls": None}]]


def test_datasets_loads_what_hf_writes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    folder = exported(tmp_path / "d", "hf", [{k: v for k, v in each.items() if k != "jpg"} for each in SAMPLES])
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert [row["cls"] for row in loaded] == [7, -1]


def test_mds_is_what_streaming_reads(tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed")
    folder = exported(tmp_path / "d", "mds")
    loaded = streaming.StreamingDataset(local=str(folder), batch_size=1, shuffle=False)
    assert [loaded[n]["jpg"] for n in range(2)] == [b"\xff\0", b""]


def test_mds_gets_rows_of_equal_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Writer:
        """Stands in for streaming.MDSWriter."""

        def __init__(self, *, out: str, columns: dict[str, str]) -> None:
            self.out, self.columns, self.rows = out, columns, list[Any]()
            made.append(self)

        def __enter__(self) -> Writer:
            return self

        def __exit__(self, *_: object) -> None:
            Path(self.out, "index.json").write_text("{}")

        def write(self, row: dict[str, Any]) -> None:
            self.rows.append(row)

    monkeypatch.setattr(export, "library", lambda *names: type("streaming", (), {"MDSWriter": Writer}))
    folder = exported(tmp_path / "d", "mds")
    assert os.listdir(folder) == ["index.json"]
    assert made[0].columns == {"__key__": "str", "jpg": "bytes", "cls": "int", "txt": "str", "json": "str"}
    assert [row["cls"] for row in made[0].rows] == [7, -1]
    with pytest.raises(EncodeError, match="there is no field cls, and MDS has it in each sample"):
        exported(
            tmp_path / "e", "mds", [SAMPLES[0], {key: SAMPLES[1][key] for key in ("__key__", "jpg", "txt", "json")}]
        )
    with pytest.raises(EncodeError, match="column png is not one of"):
        exported(tmp_path / "e", "mds", [SAMPLES[0], {**SAMPLES[1], "png": b""}])


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "streaming", None)
    with pytest.raises(MissingExtraError, match="pip install mosaicml-streaming"):
        exported(tmp_path / "d", "mds")
    assert os.listdir(tmp_path) == []


def test_names_as_gnu_tar_writes_them(tmp_path: Path) -> None:
    samples = [{**sample, "__key__": f"./{sample['__key__']}"} for sample in SAMPLES]
    output = exported(tmp_path / "o", "folder", samples)
    assert sorted(os.listdir(output)) == ["a"] and (output / "a" / "1.jpg").read_bytes() == b"\xff\0"
    with pytest.raises(EncodeError, match=r"the file a/1.jpg is there already"):
        exported(tmp_path / "p", "folder", [samples[0], SAMPLES[0]])


@pytest.mark.parametrize(("to", "files"), [("folder", None), ("csv", None), ("jsonl", "media"), ("csv", "media")])
def test_a_dry_run_refuses_what_the_export_would_refuse(tmp_path: Path, to: str, files: str | None) -> None:
    options: dict[str, Any] = {"files": files and str(tmp_path / files), "dry_run": True}
    exported(tmp_path / "o", to, **options)
    bad: list[tuple[list[dict[str, Any]], str]] = []
    if to == "folder" or files:
        bad.append(([SAMPLES[0], SAMPLES[0]], "is there already, of another sample"))
        bad.append(([{**SAMPLES[0], "__key__": "../x"}], "is not the path of a file"))
        (tmp_path / (files or "o")).mkdir()
        (tmp_path / (files or "o") / "file").touch()
    if to == "csv":
        bad.append(([SAMPLES[0], {**SAMPLES[0], "x": b""}], "is not one of"))
    for samples, reason in bad if to == "csv" and not files else ():
        with pytest.raises(EncodeError, match=reason):
            exported(tmp_path / "o", to, samples, **options)
    if files or to == "folder":
        with pytest.raises(UsageError, match="has files; --force replaces"):
            exported(tmp_path / "o", to, **options)
        for samples, reason in bad:
            with pytest.raises(EncodeError, match=reason):
                exported(tmp_path / "o", to, samples, force=True, **options)
    assert {path.name for path in tmp_path.rglob("*")} <= {"o", "media", "file"}


def test_a_dry_run_needs_the_library_of_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streaming", None)
    with pytest.raises(MissingExtraError, match="mosaicml-streaming"):
        exported(tmp_path / "o", "mds", dry_run=True)
