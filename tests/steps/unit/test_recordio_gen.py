"""RecordIO files of images, tables, shards, and of what a model file prepares."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from PIL import Image
from tarkit.cli.tarkit import main

import tarkit
from tarkit.errors import TemporaryStreamError
from tarkit.formats.example import decode_example
from tarkit.formats.recordio import read_records
from tarkit.steps import recordfiles, tables
from tarkit.steps.prepare import prepare_images
from tarkit.steps.sourcefiles import SourceFile

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["recordio-gen", *words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Pictures of three classes, in folders, and what is not a picture."""
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "bird/x.PNG"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numpy.full((2, 3), len(name), "uint8")).save(path, "PNG")
    (tmp_path / "images" / "README").write_text("hello")
    (tmp_path / "images" / ".hidden").mkdir()
    (tmp_path / "images" / ".hidden" / "1.png").write_bytes(b"")
    return tmp_path / "images"


def examples(*names: str) -> list[dict[str, object]]:
    return [
        {key: None if value is None else list(value) for key, value in decode_example(record).items()}
        for name in names
        for record in read_records(name)
    ]


def test_images_in_folders(run: Run, images: Path) -> None:
    (images / "linked").symlink_to(images / "cat")
    # Whose reader would wait for ever.
    os.mkfifo(images / "cat" / "pipe.png")
    code, out, err = run("images", "-o", "out", "--records_per_file", "3")
    assert (code, out) == (0, "out/data-00000\nout/data-00001\n")
    skipped = "hidden 1, linked-folder 1, no-record 1, not-a-file 1"
    assert err == f"tarkit recordio-gen: 4 records in 2 files; skipped files: {skipped}\n"
    found = examples("out/data-00000", "out/data-00001")
    assert [example["label"] for example in found] == [[0], [1], [1], [2]]
    assert found[1]["image"] == [(images / "cat" / "1.png").read_bytes()]


def test_images_in_a_tar_as_floats(run: Run, images: Path) -> None:
    with tarfile.open("images.tar.gz", "w:gz") as tar:
        tar.add("images", filter=lambda info: info if "hidden" not in info.name else None)
    assert run("images.tar.gz", "-o", "out", "--image", "floats", "--classes", "dog,cat,bird", "-q")[0] == 0
    found = examples("out/data-00000")
    assert sorted(example["label"] for example in found) == [[0], [1], [1], [2]]
    assert {len(example["image"]) for example in found} == {6}  # type: ignore[arg-type]
    Path("images/cat/1.png").write_bytes(b"broken")
    code, _, err = run("images", "-o", "out1", "--image", "floats")
    assert code == 65 and "member 'cat/1.png': is not an image that can be decoded" in err
    code, _, err = run("images.tar.gz", "-o", "out2", "--classes", "dog,cat")
    assert code == 65 and "the folder 'bird' is not one of the classes" in err


def test_tar_shards(run: Run, tmp_path: Path) -> None:
    with tarkit.TarWriter(f"{tmp_path}/a.tar") as sink:
        for number in range(3):
            sink.write({"__key__": f"k{number}", "cls": number, "txt": "hello"})
    assert run("--kind", "shards", "a.tar", "-o", "out")[0] == 0
    assert examples("out/data-00000")[2] == {"__key__": [b"k2"], "cls": [2], "txt": [b"hello"]}
    assert run("--kind", "shards", "a.tar", "-o", "one", "--fields", "cls")[0] == 0
    assert examples("one/data-00000")[0] == {"__key__": [b"k0"], "cls": [0]}
    assert run("a.tar", "a.tar", "a.tar", "-o", "three")[2] == "tarkit recordio-gen: 9 records in 1 file\n"
    assert run("{a,a}.tar", "-o", "both")[1:] == ("both/data-00000\n", "tarkit recordio-gen: 6 records in 1 file\n")
    code, _, err = run("--kind", "shards", "a.tar", "-o", "none", "--fields", "jpg")
    assert code == 65 and "a.tar, key 'k0': the sample has no field jpg" in err


def test_a_damaged_tar_is_an_error_or_what_is_lost_is_counted(run: Run, images: Path, tmp_path: Path) -> None:
    for kind, names in (("files", ["cat/1.png", "cat/2.png", "dog/1.png"]), ("shards", ["1.png", "2.png", "3.png"])):
        path = tmp_path / f"{kind}.tar"
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for name in names:
                tar.add(images / "cat" / "1.png", arcname=name)
        path.write_bytes(path.read_bytes()[: 2 * 1024 + 520])
        words = (path.name, "-o", f"out-{kind}", "--kind", kind)
        code, _, err = run(*words)
        assert code == 65 and err.endswith("read it with --on-damage skip (on_damage='skip')\n")
        code, _, err = run(*words, "--on-damage", "skip", "-q")
        assert code == 3 and "damage: 1 stretch" in err
        assert len(examples(f"out-{kind}/data-00000")) == 2


def test_a_table_without_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "iris.data").write_text("5.1,3.5,Iris-setosa\n6.2,2.9,Iris-virginica\n\n")
    assert run("iris.data", "-o", "out", "--columns", "length,width,class", "--label", "class")[0] == 0
    found = examples("out/data-00000")
    assert [example["label"] for example in found] == [[0], [1]]
    assert found[1]["length"] == pytest.approx([6.2]) and set(found[0]) == {"length", "width", "label"}


def test_a_table_with_names_and_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "census.csv").write_text('age, work, num\n39, "State, gov", 13\n50, ?, 13\n')
    code, _, err = run("census.csv", "-o", "out")
    assert (code, err) == (0, "tarkit recordio-gen: 2 records in 1 file; columns of text: work\n")
    assert examples("out/data-00000") == [
        {"age": [39.0], "work": [b"State, gov"], "num": [13.0]},
        {"age": [50.0], "work": [b"?"], "num": [13.0]},
    ]
    code, _, err = run("census.csv", "-o", "out2", "--label", "income")
    assert code == 2 and "census.csv has no column income; it has age, work, num" in err
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    code, _, err = run("bad.csv", "-o", "out3")
    assert code == 65 and "bad.csv, offset 8: row 3 has 1 columns, and there are 2 names" in err


def test_the_first_row_is_names_or_data_and_never_the_other(run: Run, tmp_path: Path) -> None:
    rows = "5.1,3.5,setosa\n6.2,2.9,virginica\n"
    (tmp_path / "iris.data").write_text(rows)
    code, _, err = run("iris.data", "-o", "out")
    assert code == 2 and "iris.data has 5.1 in the row of names; name the columns with --columns, and pass rows" in err
    (tmp_path / "named.csv").write_text(f"a,b,c\n{rows}")
    code, _, err = run("named.csv", "-o", "out", "--columns", "a,b,c")
    assert code == 2 and "named.csv has a row of these names; leave out --columns, or pass that row over" in err
    (tmp_path / "counted.csv").write_text(f"2,2,setosa,virginica\n{rows}")
    assert run("counted.csv", "-o", "out", "--skip-rows", "1", "--columns", "a,b,c", "--label", "c")[0] == 0
    (tmp_path / "census.test").write_text(f"|1x3 Cross validator\na,b,label\n{rows}")
    words = ("census.test", "-o", "same", "--kind", "csv", "--skip-rows", "1", "--label", "label")
    assert run(*words)[0] == 0
    assert examples("same/data-00000") == examples("out/data-00000")
    assert [example["label"] for example in examples("out/data-00000")] == [[0], [1]]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">II5B", 60_000, 60_000, 8, 0, 0, 0, 0))
        + chunk(b"IEND", b""),
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">II5B", 9, 9, 8, 0, 0, 0, 0)) + b"\xff" * 30,
        b"P6 9999999999 1 255\n",
    ],
    ids=["large", "broken", "wide"],
)
def test_an_image_that_does_not_decode(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.png").write_bytes(content)
    code, _, err = run("images", "-o", "out", "--image", "floats")
    assert code == 65 and "'cat/1.png': is not an image that can be decoded: " in err


def test_a_network_that_fails_is_not_a_damaged_image() -> None:
    def read() -> bytes:
        raise TemporaryStreamError("no answer", url="s3://b/cat/1.png")

    prepare = prepare_images(["cat"], "floats")
    with pytest.raises(TemporaryStreamError):
        list(prepare(SourceFile("cat/1.png", "s3://b/cat/1.png", read)))


MODEL = """
import numpy
from PIL import Image
from types import SimpleNamespace

def prepare_data_for_a_single_file(file, name):
    if name.endswith("README"):
        return None
    return numpy.array(Image.open(file), "float32"), numpy.array(len(name))

def feature_columns():
    return [SimpleNamespace(key="image")]

def label_columns():
    return [SimpleNamespace(key="label")]
"""


def test_a_model_file(run: Run, images: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    assert run("images", "-o", "out", "--model_file=model.py", "--records_per_file=200")[0] == 0
    found = examples("out/data-00000")
    assert found[0] == {"image": [10.0] * 6, "label": [10]} and len(found) == 4
    assert run("images", "-o", "raw", "--model_file=model.py", "--codec_type=bytes")[0] == 0
    assert [len(record) for record in read_records("raw/data-00000")] == [6 * 4 + 8] * 4


def test_a_tar_of_the_current_folder_has_no_hidden_files(run: Run, images: Path) -> None:
    with tarfile.open("dot.tar", "w") as tar:
        tar.add("images", "./images")
    code, _, err = run("dot.tar", "-o", "out")
    assert code == 0 and "4 records in 1 file; skipped files: " in err and "hidden 1" in err


def test_model_files_of_other_shapes(run: Run, images: Path, tmp_path: Path) -> None:
    (tmp_path / "by_name.py").write_text(
        "import pathlib\ndef prepare_data_for_a_single_file(filename):\n"
        "    yield pathlib.Path(filename).read_bytes()[:4]\n    yield {'name': filename.encode()}\n"
    )
    assert run("images", "-o", "a", "--model_file", "by_name.py")[0] == 0
    assert len(list(read_records("a/data-00000"))) == 10
    with tarfile.open("images.tar", "w") as tar:
        tar.add("images")
    code, _, err = run("images.tar", "-o", "b", "--model_file", "by_name.py")
    assert code == 2 and "takes files on disk; name a folder of them" in err
    for text, message, expected in (
        ("x = 1\n", "has no function prepare_data_for_a_single_file", 2),
        ("def prepare_data_for_a_single_file(f, n): return 3\n", "gave int; it gives bytes, a dict", 65),
        ("def prepare_data_for_a_single_file(f, n): 1 / 0\n", "raised ZeroDivisionError: division by zero", 65),
        ("import nosuchmodule\n", "model file 'model.py' raised ModuleNotFoundError: No module named", 2),
        ("import sys\nsys.exit(3)\n", "model file 'model.py' raised SystemExit: 3", 2),
        ("def prepare_data_for_a_single_file(f, n): exit(3)\n", "raised SystemExit: 3", 65),
        ("def (\n", "model file 'model.py' is not Python: invalid syntax", 2),
        ("def prepare_data_for_a_single_file(f, n): return 1, 2\n", "so it needs a function feature_columns", 2),
    ):
        (tmp_path / "model.py").write_text(text)
        code, _, err = run("images", "-o", "c", "--model_file", "model.py")
        assert code == expected and message in err
    assert run("images", "-o", "d", "--model_file", "nothing.py")[0] == 66


def test_files_of_an_earlier_run_are_not_mixed(run: Run, images: Path, tmp_path: Path) -> None:
    assert run("images", "-o", "out", "--records-per-file", "1")[0] == 0
    code, _, err = run("images", "-o", "out")
    assert code == 2 and "out has 4 files of an earlier run, such as data-00000; --force replaces them" in err
    (tmp_path / "out" / "data.txt").touch()
    assert run("images", "-o", "out", "--force")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["data-00000", "data.txt"]


def test_nothing_comes_of_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty" / "a").mkdir(parents=True)
    code, _, err = run("empty", "-o", "out")
    assert code == 2 and "empty gives no record" in err
    code, _, err = run("a", "b", "-o", "out", "--kind", "csv")
    assert code == 2 and "any other SOURCE is one" in err
    Image.fromarray(numpy.zeros((2, 3), "uint8")).save("empty/1.png")
    code, _, err = run("empty", "-o", "out")
    assert code == 65 and "an image is in no folder, so it has no class" in err and "--kind shards" in err


def test_the_files_are_the_same_each_time(run: Run, images: Path) -> None:
    run("images", "-o", "a")
    run("images", "-o", "b")
    assert Path("a/data-00000").read_bytes() == Path("b/data-00000").read_bytes()
    assert io.BytesIO(Path("a/data-00000").read_bytes()).read(4) == b"\x04\x03\x02\x01"


def test_files_without_a_record_are_counted(run: Run, images: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(f, n): return b'' if 'dog' in n else None\n")
    code, _, err = run("images", "-o", "out", "--model_file", "model.py")
    assert (code, err) == (0, "tarkit recordio-gen: 1 record in 1 file; skipped files: hidden 1, no-record 4\n")


def test_of_two_runs_into_one_folder_at_once_one_wins(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("images", "-o", "out", "--records_per_file", "2")[0] == 0
    before = [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())]
    # The other run has published since this one looked.
    monkeypatch.setattr(recordfiles, "clear_record_files", lambda *_, **__: 0)
    code, _, err = run("images", "-o", "out", "--records_per_file", "3")
    assert code == 1 and "out/data-00000: already exists" in err
    assert [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())] == before


def test_files_of_an_earlier_run_stay_if_there_is_nothing_new(run: Run, images: Path, tmp_path: Path) -> None:
    assert run("images", "-o", "out")[0] == 0
    (tmp_path / "empty").mkdir()
    assert run("nothing", "-o", "out", "--force")[0] == 66
    assert run("empty", "-o", "out", "--force")[0] == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data-00000"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("images --label x", "--label is not for SOURCE of the kind files"),
        ("a.csv --classes x,y", "--classes is not for SOURCE of the kind csv"),
        ("images --codec tf_example", "--codec_type goes with --model_file"),
        ("images --model_file m.py --image floats", "--image goes without --model_file"),
    ],
)
def test_no_option_is_ignored(run: Run, images: Path, words: str, message: str) -> None:
    code, _, err = run(*words.split(), "-o", "out")
    assert code == 2 and message in err


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"a,b\n1,caf\xe9\n", 65, "t.csv, offset 4: row 2 cannot be read: 'utf-8' codec"),
        (
            b"a,b\n1," + b"x" * 200_000 + b"\n",
            65,
            "t.csv, offset 4: row 2 cannot be read: field larger than field limit",
        ),
        (b'a,b\n1,"open\n2,3\n', 65, "t.csv, offset 4: ends inside of a quoted field"),
        (b'a,b\n1,"x"y\n', 65, "row 2 cannot be read: ',' expected after '\"'"),
        (b"a,b\n1,2\n1\n", 65, "t.csv, offset 8: row 3 has 1 columns, and there are 2 names"),
        (b"a,a\n1,2\n", 2, "t.csv has two columns a; name them with --columns"),
    ],
)
def test_tables_that_are_damaged(run: Run, tmp_path: Path, content: bytes, code: int, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    found, _, err = run("t.csv", "-o", "out")
    assert found == code and message in err and not (tmp_path / "out").exists()


def test_a_row_is_what_csv_says(run: Run, tmp_path: Path) -> None:
    """Blanks in quotes are kept, and a quote in the middle of a field is a character."""
    (tmp_path / "t.csv").write_text('a , b\n1,"  x "\n 2, 5" disk\n3 ,6" disk\n')
    assert run("t.csv", "-o", "out")[0] == 0
    assert [found["b"] for found in examples("out/data-00000")] == [[b"  x "], [b'5" disk'], [b'6" disk']]
    assert [found["a"] for found in examples("out/data-00000")] == [[1.0], [2.0], [3.0]]


def test_a_table_of_many_columns(run: Run, tmp_path: Path) -> None:
    """The time grows with their number, not with its square: a minute for these."""
    many = 60_000
    (tmp_path / "t.csv").write_text(f"{','.join(f'c{number}' for number in range(many))}\n{','.join('1' * many)}\n")
    # Of processor time, so that nothing else that the machine does counts.
    begin = time.process_time()
    assert run("t.csv", "-o", "out", "--label", "c7")[0] == 0
    assert time.process_time() - begin < 20
    (found,) = examples("out/data-00000")
    assert len(found) == many and found["label"] == [0]


@pytest.mark.parametrize("label", [[], ["--label", "b"]], ids=["numbers", "label"])
@pytest.mark.parametrize("new", ["a,b\nx,9\n", "a,b\n3,4\n"], ids=["other-type", "other-value"])
def test_a_table_that_is_replaced_between_the_two_readings(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: list[str], new: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    numbered = 0

    def replacing(text: str) -> bool:
        nonlocal numbered
        numbered += 1
        if numbered == 2:
            (tmp_path / "new").write_text(new)
            (tmp_path / "new").replace(tmp_path / "t.csv")
        return is_number(text)

    is_number = tables._is_number
    monkeypatch.setattr(tables, "_is_number", replacing)
    code, _, err = run("t.csv", "-o", "out", *label)
    assert code == 75 and "t.csv: was replaced while it was read" in err and not (tmp_path / "out").exists()


def test_a_column_is_not_replaced_by_the_label(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbflabel,c\n1,x\n")
    assert "two columns label" in run("t.csv", "-o", "out", "--label", "c")[2]
    assert run("t.csv", "-o", "out", "--label", "c", "--columns", "a,c", "--skip-rows", "1")[0] == 0
    assert examples("out/data-00000") == [{"a": [1.0], "label": [0]}]


def test_numbers_that_a_float_cannot_hold_stay_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,d,e,f\n16777216,16777217,1_0,1e39,inf,0.1\n")
    assert run("t.csv", "-o", "out")[0] == 0
    (found,) = examples("out/data-00000")
    assert found.pop("f") == [pytest.approx(0.1)]
    assert found == {"a": [16777216.0], "b": [b"16777217"], "c": [b"1_0"], "d": [b"1e39"], "e": [b"inf"]}


def test_a_table_that_cannot_be_read_twice(run: Run) -> None:
    code, _, err = run("-", "-o", "out", "--kind", "csv")
    assert code == 2 and "- is read twice; name a file" in err


def test_shards_with_odd_keys_and_classes(run: Run, tmp_path: Path) -> None:
    with tarfile.open("t.tar", "w") as tar:
        for name, content in (("a\udcff.cls", b"--5"), ("b.cls", b" -5 "), ("c.cls", b"9" * 20)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    assert run("t.tar", "-o", "out", "--kind", "shards")[0] == 0
    assert examples("out/data-00000") == [
        {"__key__": [b"a\xff"], "cls": [b"--5"]},
        {"__key__": [b"b"], "cls": [-5]},
        {"__key__": [b"c"], "cls": [b"9" * 20]},
    ]
