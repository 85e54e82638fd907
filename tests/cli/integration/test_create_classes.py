"""tarkit create: class folders, lists of files, names and files that are unusual."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import read_samples

Run = Callable[..., Any]


def tree(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def samples(*shards: Path) -> dict[str, dict[str, bytes]]:
    found = {}
    for sample in (each for shard in shards for each in read_samples(str(shard))):
        found[sample["__key__"]] = {name: value for name, value in sample.items() if not name.startswith("__")}
    return found


def test_class_folders_are_numbered_as_imagefolder_does(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "10/1.jpg", "2/1.jpg", "B/1.jpg", "a/deep/2.jpg", "a/1.jpg")
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t-%06d.tar")
    assert (result.code, result.stderr) == (0, "tarkit create: 5 samples in 1 shard, 46 bytes of content\n")
    # torchvision.datasets.folder.find_classes: sorted(entry.name for entry in os.scandir(directory)
    # if entry.is_dir()), enumerated.
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    numbers = {name: number for number, name in enumerate(names)}
    assert json.loads((tmp_path / "classes.json").read_text()) == numbers == {"10": 0, "2": 1, "B": 2, "a": 3}
    found = samples(tmp_path / "t-000000.tar")
    assert {key: fields["cls"] for key, fields in found.items()} == {
        "10/1": b"0", "2/1": b"1", "B/1": b"2", "a/1": b"3", "a/deep/2": b"3",
    }  # fmt: skip
    assert found["a/deep/2"]["jpg"] == b"a/deep/2.jpg"


def test_keys_have_no_blanks_so_that_the_index_holds_them(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "golden retriever/my dog.jpg", "golden retriever/my dog.json", "cat/\u00a01.jpg")
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar", "--index")
    assert result.code == 0
    assert samples(tmp_path / "t.tar") == {
        "cat/_1": {"cls": b"0", "jpg": "cat/\u00a01.jpg".encode()},
        "golden_retriever/my_dog": {
            "cls": b"1",
            "jpg": b"golden retriever/my dog.jpg",
            "json": b"golden retriever/my dog.json",
        },
    }
    assert json.loads((tmp_path / "classes.json").read_text()) == {"cat": 0, "golden retriever": 1}
    assert (tmp_path / "t.idx").exists()


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        (["a b/1.jpg", "a_b/2.jpg"], 65, "the classes 'a b' and 'a_b' differ only in blanks"),
        (["a/1 2.jpg", "a/1_2.json"], 65, "'a/1 2' and 'a/1_2' would both have the key 'a/1_2'"),
        (["a/1.jpg", "b/1.jpg", "1.jpg", "2.jpg"], 65, "1.jpg: no part of a sample: beside the class folders (and 1"),
        (["1.jpg"], 66, "has no folders, so no classes"),
        (["a/1.jpg", "a/1.JPEG"], 65, "'a/1.JPEG' and 'a/1.jpg' would be two jpg fields"),
        (["a/1.jpg", "a/1.cls"], 65, "field 'cls' of this sample is given twice"),
        (["a/1.jpg", "a/README"], 65, "a/README: no part of a sample: no-extension"),
        (["a/README.md/x"], 65, "no part of a sample"),
    ],
)
def test_folders_that_cannot_be_classes(names: list[str], code: int, said: str, run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", *names)
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar")
    assert (result.code, result.stdout) == (code, b"")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["p"]


def test_parts_of_a_data_set_are_not_taken_for_classes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "p", "val/cat/1.jpg", "train/cat/1.jpg")
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar")
    assert result.code == 65
    assert (
        f"(train, val) are parts of a data set, not classes; make each: tarkit create {root}/train --classes -o "
        f"'train-%06d.tar'; tarkit create {root}/val --classes-from classes.json -o 'val-%06d.tar'" in result.stderr
    )
    # The commands do what they say.
    monkeypatch.chdir(tmp_path)
    assert run("tarkit", "create", f"{root}/train", "--classes", "-o", "train-%06d.tar").code == 0
    assert run("tarkit", "create", f"{root}/val", "--classes-from", "classes.json", "-o", "val-%06d.tar").code == 0
    # A class may be called test among others.
    tree(root, "cat/1.jpg")
    assert run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar", "--force").code == 2
    assert run("tarkit", "create", root, "--classes-from", "nosuch.json", "-o", tmp_path / "t.tar").code == 66


def test_validation_data_has_the_numbers_of_the_training_data(run: Run, tmp_path: Path) -> None:
    train, val = tree(tmp_path / "train", "a/1.jpg", "b/1.jpg", "c/1.jpg"), tree(tmp_path / "val", "c/9.jpg")
    assert run("tarkit", "create", train, "--classes", "-o", tmp_path / "train.tar").code == 0
    table = tmp_path / "classes.json"
    before = table.read_bytes()
    result = run("tarkit", "create", val, "--classes-from", table, "-o", tmp_path / "val.tar")
    assert result.code == 0 and "2 classes of the table without a folder" in result.stderr
    assert samples(tmp_path / "val.tar")["c/9"]["cls"] == b"2"
    assert table.read_bytes() == before
    # Without the table, the numbers would be others: the other table there is refused.
    result = run("tarkit", "create", val, "--classes", "-o", tmp_path / "other.tar")
    assert result.code == 2 and "classes.json is there with other numbers; --classes-from uses it" in result.stderr
    assert not (tmp_path / "other.tar").exists()
    tree(val, "d/1.jpg", "e/1.jpg")
    result = run("tarkit", "create", val, "--classes-from", table, "-o", tmp_path / "other.tar")
    assert result.code == 65 and "class 'd' (and 1 more) is not in the table of classes" in result.stderr
    assert run("tarkit", "create", val, "--classes", "-o", tmp_path / "other.tar", "--dry-run").code == 2
    command = ["tarkit", "create", val, "--classes", "-o", tmp_path / "other-%d.tar", "--force"]
    assert run(*command, "--dry-run").code == 0 and table.read_bytes() == before
    assert run(*command).code == 0 and json.loads(table.read_text()) == {"c": 0, "d": 1, "e": 2}


@pytest.mark.parametrize(
    ("name", "text", "numbers"),
    [
        ("t.txt", "a\r\nc\nb\n", {"a": 0, "b": 2, "c": 1}),
        ("t.json", '["c", "a", "b"]', {"a": 1, "b": 2, "c": 0}),
        ("t.json", '\ufeff{"a": 7, "b": 3, "c": 7}', {"a": 7, "b": 3, "c": 7}),
        ("t.txt", "a\n\nb\nc", None),
        ("t.txt", "a\na\nb\nc", None),
        ("t.json", '{"a": "0"}', None),
        ("t.json", '{"a": true}', None),
        ("t.json", '{"a": -1}', None),
        ("t.json", "[1]", None),
        ("t.json", "3", None),
        ("t.json", "{", None),
        ("t.json", '{"a": 0, "b": 1, "c": 2, "a": 3}', None),
        ("t.json", "[" * 100_000, None),
        ("t.txt", "", None),
    ],
)
def test_tables_of_classes(name: str, text: str, numbers: dict[str, int] | None, run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a/1.jpg", "b/1.jpg", "c/1.jpg")
    (tmp_path / name).write_text(text)
    result = run("tarkit", "create", root, "--classes-from", tmp_path / name, "-o", tmp_path / "t.tar")
    if numbers is None:
        assert result.code == 65 and "is not a table of classes" in result.stderr
    else:
        found = {key[0]: int(fields["cls"]) for key, fields in samples(tmp_path / "t.tar").items()}
        assert found == numbers


def test_an_empty_class_keeps_its_number(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a/1.jpg", "c/1.jpg")
    (root / "b").mkdir()
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar")
    assert result.code == 0 and "class b (1) has no sample" in result.stderr
    assert [fields["cls"] for fields in samples(tmp_path / "t.tar").values()] == [b"0", b"2"]


def test_what_programs_leave_in_folders_is_counted(run: Run, tmp_path: Path) -> None:
    root = tree(
        tmp_path / "p", "a/1.jpg", "b/2.jpg", "a/._1.jpg", "a/.DS_Store", "b/Thumbs.db", ".ipynb_checkpoints/1.jpg",
        "a/.ipynb_checkpoints/1.jpg", ".DS_Store", "__MACOSX/1.jpg", "Thumbs.db",
    )  # fmt: skip
    result = run("tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar")
    assert result.code == 0
    assert "left out: hidden 3, hidden folder 3, macos-sidecar 1, system-file 1" in result.stderr
    assert list(samples(tmp_path / "t.tar")) == ["a/1", "b/2"]
    assert json.loads((tmp_path / "classes.json").read_text()) == {"a": 0, "b": 1}
    # Without classes they are an error, unless they are to be left out.
    result = run("tarkit", "create", "-C", root, ".", "-o", tmp_path / "u.tar")
    assert result.code == 65 and "(and 7 more)" in result.stderr
    assert run("tarkit", "create", "-C", root, ".", "-o", tmp_path / "u.tar", "--skip-others").code == 0
    assert list(samples(tmp_path / "u.tar")) == ["a/1", "b/2"]


def test_links_and_loops_end_and_are_counted(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a/1.jpg")
    tree(tmp_path / "elsewhere", "2.jpg")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "loop").symlink_to(root)
    (root / "a" / "dead.jpg").symlink_to("nowhere")
    os.mkfifo(root / "a" / "pipe.jpg")
    command = ["tarkit", "create", root, "--classes", "-o", tmp_path / "t.tar"]
    result = run(*command)
    assert result.code == 65 and "dead.jpg: no part of a sample: link without a target (and 2 more)" in result.stderr
    result = run(*command, "--skip-others")
    assert "left out: link to a folder 1, link without a target 1, not-a-file 1" in result.stderr
    # A class folder that is a link is a class, as for ImageFolder.
    assert {key: fields["cls"] for key, fields in samples(tmp_path / "t.tar").items()} == {"a/1": b"0", "b/2": b"1"}


def test_outputs_inside_of_the_input_are_no_input_of_a_second_run(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a/1.jpg", "b/1.jpg")
    command = ["tarkit", "create", root, "--classes", "-o", root / "t-%d.tar", "--manifest", root / "t.json", "--force"]
    assert run(*command).code == 0
    before = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    result = run(*command)
    assert result.code == 0 and "left out: the output itself 4" in result.stderr
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before
    assert set(before) == {"t-0.tar", "t-0.idx", "t.json", "classes.json"}
    for _ in range(2):
        assert run("tarkit", "create", "-C", root / "a", ".", "-o", root / "a/o.tar", "--index").code == 0
    assert list(samples(root / "a/o.tar")) == ["1"]


def test_unusual_names_come_back(run: Run, tmp_path: Path) -> None:
    names = [b"\xff\xfe.jpg", b"new\nline.jpg", b"x" * 251 + b".jpg", "ü e\u0301.jpg".encode()]
    root = tmp_path / "p"
    root.mkdir()
    for name in names:
        (root / os.fsdecode(name)).write_bytes(name)
    assert run("tarkit", "create", "-C", root, ".", "-o", tmp_path / "t.tar").code == 0
    with tarfile.open(tmp_path / "t.tar") as archive:
        found = {os.fsencode(info.name): archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
    assert found == {name: name for name in names}


def test_lists_of_files(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a.jpg", "#b.jpg", "c/d.jpg", "e f.jpg", "new\nline.jpg", "not.jpg", "@g.jpg")
    out = tmp_path / "t.tar"
    listed = b"\xef\xbb\xbfa.jpg\r\n#b.jpg\r\n\r\nc\ne f.jpg\n@g.jpg"
    assert run("tarkit", "create", "-T", "-", "-C", root, "-o", out, stdin=listed).code == 0
    assert list(samples(out)) == ["#b", "@g", "a", "c/d", "e f"]
    nul = b"a.jpg\0new\nline.jpg\0c/d.jpg\0"
    assert run("tarkit", "create", "-T", "-", "-0", "-C", root, "-o", out, stdin=nul).code == 0
    assert list(samples(out)) == ["a", "c/d", "new\nline"]
    (tmp_path / "list").write_bytes(b"# a comment\na.jpg\n")
    assert run("tarkit", "create", f"@{tmp_path}/list", "e f.jpg", "-C", root, "-o", out).code == 0
    assert list(samples(out)) == ["a", "e f"]
    for arguments, code, said in (
        (["-T", tmp_path / "list"], 66, "# a comment: no such file or folder"),
        (["-T", tmp_path / "nosuch"], 66, "nosuch: no such file"),
        (["-T", "-"], 66, "the list names no file"),
        (["a.jpg", "-0"], 2, "-0 goes with -T"),
    ):
        result = run("tarkit", "create", *arguments, "-C", root, "-o", tmp_path / "u.tar")
        assert (result.code, result.stderr.count("\n")) == (code, 1) and said in result.stderr


def test_pictures_without_labels_are_said(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "p", "a/1.jpg", "b/2.PNG")
    result = run("tarkit", "create", root, "-o", tmp_path / "t.tar")
    assert result.code == 0
    assert "pictures without labels, whose keys are their paths: --classes takes the folders in" in result.stderr
    tree(root, "a/1.json")
    assert "labels" not in run("tarkit", "create", root, "-o", tmp_path / "t.tar").stderr
    assert "labels" not in run("tarkit", "create", root / "b/2.PNG", "-o", tmp_path / "t.tar").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["p", "p", "--classes"], "--classes takes one folder"),
        (["@p", "--classes"], "--classes takes one folder"),
        (["-T", "-", "--classes"], "--classes takes one folder"),
        (["--plan", "p", "--classes"], "--classes goes with files"),
        (["p", "--classes", "-o", "-"], "- has no folder for the table of classes"),
        (["p", "--classes", "-o", "pipe:cat"], "has no folder for the table of classes"),
        (["p", "--classes", "--plan", "p"], "give files, --plan or --table, not both"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree(tmp_path, "p/a/1.jpg"))
    result = run("tarkit", "create", "-o", "t.tar", *arguments)
    assert (result.code, result.stdout) == (2, b"")
    assert said in result.stderr
