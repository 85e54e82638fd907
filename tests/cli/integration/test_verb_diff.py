"""tarkit diff: lines, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    contents = {
        "a.tar": [("1", {"txt": b"x"}), ("2", {"cls": b"1", "jpg": b"12345", "old": b"1"}), ("3", {"txt": b"1"})],
        "b.tar": [
            ("2", {"cls": b"12", "jpg": b"54321", "txt": b"new"}),
            ("1", {"txt": b"x"}),
            ("\x1b4", {"txt": b"1"}),
        ],
        "c.tar": [("3", {"txt": b"1"})],
    }
    for name, samples in contents.items():
        with TarWriter(name, encoder=False) as writer:
            for key, fields in samples:
                writer.write({"__key__": key, **fields})
    return tmp_path


def test_lines_and_counts(run: Run, folder: Path) -> None:
    result = run("tarkit", "diff", "a.tar", "--against", "b.tar", "--order")
    assert result.code == 3
    assert result.lines == [
        "only in B: \\x1b4",
        "differs: 2: cls 1 and 2 bytes; jpg 5 bytes, other content; old only in A, 1 byte; txt only in B, 3 bytes",
        "only in A: 3",
        "in another order: 2, sample 1 in A and 0 in B",
    ]
    assert result.stderr == "tarkit diff: samples: 1 equal, 1 differ, 1 only in A, 1 only in B\n"
    assert run("tarkit", "diff", "a.tar", "--against", "b.tar", "-q") == (3, b"", "")


def test_json(run: Run, folder: Path) -> None:
    found = [json.loads(line) for line in run("tarkit", "diff", "a.tar", "--against", "b.tar", "--json").lines]
    assert found[0] == {"kind": "only-b", "key": "\x1b4", "fields": {"txt": [None, 1]}, "places": [None, 2]}
    assert found[1]["fields"] == {"cls": [1, 2], "jpg": [5, 5], "old": [1, None], "txt": [None, 3]}
    assert [each["kind"] for each in found] == ["only-b", "differs", "only-a"]


def test_equal_data_sets_in_any_shards(run: Run, folder: Path) -> None:
    with TarWriter("rest.tar", encoder=False) as writer:
        writer.write({"__key__": "2", "old": b"1", "jpg": b"12345", "cls": b"1"})
        writer.write({"__key__": "1", "txt": b"x"})
    arguments = ["tarkit", "diff", "a.tar", "--against", "c.tar", "--against", "rest.tar"]
    assert run(*arguments) == (0, b"", "tarkit diff: samples: 3 equal, 0 differ, 0 only in A, 0 only in B\n")
    assert run(*arguments, "-q") == (0, b"", "") and run(*arguments, "--order").code == 3
    piped = run("tarkit", "diff", "-", "--against", "a.tar", stdin=Path("a.tar").read_bytes())
    assert piped.code == 0 and "3 equal" in piped.stderr


def test_failures_have_other_codes_than_a_difference(run: Run, folder: Path) -> None:
    assert run("tarkit", "diff", "a.tar").code == 2
    assert run("tarkit", "diff", "--against", "a.tar").code == 2
    result = run("tarkit", "diff", "-", "--against", "-", stdin=b"")
    assert (result.code, result.stdout) == (2, b"") and "name the shards of the other one" in result.stderr
    for arguments in (("nosuch.tar", "--against", "a.tar"), ("a.tar", "--against", "nosuch.tar")):
        result = run("tarkit", "diff", *arguments)
        assert (result.code, result.stdout, result.stderr.count("\n")) == (66, b"", 1) and "nosuch.tar" in result.stderr
    Path("cut.tar").write_bytes(Path("a.tar").read_bytes()[:4600])
    result = run("tarkit", "diff", "a.tar", "--against", "cut.tar")
    assert (result.code, result.stdout, result.stderr.count("\n")) == (65, b"", 1) and "cut.tar" in result.stderr
    result = run("tarkit", "diff", "a.tar", "--against", "cut.tar", "--on-damage", "skip")
    assert result.code == 3 and "bytes lost" in result.stderr
    assert run("tarkit", "diff", ".", "--against", "a.tar").code == 1


def test_a_selection_of_both_data_sets(run: Run, folder: Path) -> None:
    arguments = ["tarkit", "diff", "a.tar", "--against", "b.tar"]
    result = run(*arguments, "--match", "^[12]$", "--fields", "jpg|txt", "--json")
    assert [json.loads(line)["fields"] for line in result.lines] == [{"jpg": [5, 5]}]
    assert "samples dropped by --match 2" in result.stderr
    result = run("tarkit", "diff", "c.tar", "--against", "a.tar", "--where", 'key == "3"', "--rekey", "%02d")
    assert result.code == 0 and "1 equal" in result.stderr, "numbers are those in each data set"
    result = run(*arguments, "--drop-fields", "jgp")
    assert result.code == 65 and "did you mean jpg" in result.stderr
