"""No verb replaces what it reads, or takes an empty selection for a success."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    with TarWriter(str(tmp_path / "data" / "in.tar")) as writer:
        for number in range(3):
            writer.write({"__key__": f"{number:03d}", "txt": f"{number}", "cls": number})
    (tmp_path / "data" / "keys.csv").write_text("id\n001\n")
    (tmp_path / "data" / "keys.txt").write_text("001\n")
    (tmp_path / "data" / "table.json").write_text('{"a": 0, "b": 1, "c": 2}')
    (tmp_path / "link.tar").symlink_to(tmp_path / "data" / "in.tar")
    (tmp_path / "hard.tar").hardlink_to(tmp_path / "data" / "in.tar")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "photo.jpg").write_bytes(b"photo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "export data/in.tar --to folder -o data --force",
        "export link.tar --to hf -o data --force",
        "export data/in.tar --to folder -o . --force",
        "export data/in.tar --to csv -o out.csv --files data --force",
        "export data/in.tar --to csv --keys data/keys.csv:id -o data/keys.csv",
        "export link.tar --to jsonl --keys a/photo.jpg -o out.jsonl --files a --force",
        "pick 001 --from data/in.tar -O data --force",
        "pick @data/keys.txt --from hard.tar -O data --force",
        "stats data/in.tar --html data/in.tar",
        "stats data/in.tar --against link.tar --html link.tar",
        "stats data/in.tar --classes-from data/table.json --html data/table.json",
        "check link.tar --bad-keys data/in.tar",
        "check data/in.tar --manifest data/table.json --bad-keys data/table.json",
        "create . -o a/photo.jpg",
        "create . --classes -o a/photo.jpg",
    ],
)
def test_what_is_read_is_not_replaced(run: Run, folder: Path, words: str) -> None:
    before = contents(folder)
    result = run("tarkit", *words.split())
    assert result.code == 2, result.stderr
    assert "name another" in result.stderr
    assert contents(folder) == before


def test_a_table_is_not_in_the_folder_of_its_files(run: Run, folder: Path) -> None:
    result = run("tarkit", "export", "link.tar", "--to", "csv", "-o", "new/out.csv", "--files", "new")
    assert result.code == 2
    assert "new/out.csv is in new, a folder that will be replaced" in result.stderr
    assert not (folder / "new").exists()


@pytest.mark.parametrize("option", ["--where", "--keys", "--fields", "--rekey"])
def test_an_empty_option_does_not_select_everything(run: Run, folder: Path, option: str) -> None:
    result = run("tarkit", "select", "data/in.tar", option, "", "-o", "out.tar")
    assert result.code in (2, 66), result.stderr
    assert not (folder / "out.tar").exists()


@pytest.mark.parametrize(
    "words",
    [
        "export data/in.tar --to csv -o out.csv",
        "sample data/in.tar --fraction 0.5 -o out.tar",
        "mix data/in.tar link.tar --weights 1,1 --prefixes a,b -o out.tar",
        "pick 001 --from data/in.tar -o out.tar",
        "select data/in.tar -o out.tar",
        "split data/in.tar -o out-%d.tar",
    ],
)
def test_a_selection_of_no_sample_is_no_success(run: Run, folder: Path, words: str) -> None:
    result = run("tarkit", *words.split(), "--match", "nosuch", "-q")
    assert result.code == 3, result.stderr
