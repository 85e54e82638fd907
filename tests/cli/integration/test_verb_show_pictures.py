"""tarkit show --text, --html and --picture: what is in the samples."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter
from tarkit.formats.recordio import RecordWriter

Image = pytest.importorskip("PIL.Image")

Run = Callable[..., Any]


def photo(width: int = 64) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, 48), "red").save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "s.tar"
    with TarWriter(str(path), encoder=False) as writer:
        for number in range(4):
            writer.write({"__key__": f"a/{number}", "png": photo(), "txt": b"text\x1b[2J", "bin": b"\0\1"})
        writer.write({"__key__": "broken", "png": photo()[:60], "txt": "é".encode() * 2000})
    return path


def test_text(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "show", "--text", shard, "-n", "1")
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == ["a/0", "  bin: 2 bytes", f"  png: {len(photo())} bytes", "  txt: text\\x1b[2J"]
    result = run("tarkit", "show", "--text", shard)
    assert result.lines[-1] == f"  txt: {'é' * 1000}…"
    assert run("tarkit", "show", "--text", shard, shard).lines[0] == f"{shard}: a/0"
    found = [json.loads(line) for line in run("tarkit", "show", "--text", "--json", shard).lines]
    assert found[0]["texts"] == {"txt": "text\x1b[2J"} and found[0]["fields"]["txt"] == 8
    assert found[4]["texts"] == {"txt": "é" * 2000}
    assert "texts" not in json.loads(run("tarkit", "show", "--json", shard).lines[0])


def test_text_of_a_large_member_is_its_size(run: Run, tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "s.tar"), encoder=False) as writer:
        writer.write({"__key__": "a", "txt": b"x" * 70_000_000, "cls": b"1"})
    assert run("tarkit", "show", "--text", tmp_path / "s.tar").lines == ["a", "  cls: 1", "  txt: 70000000 bytes"]


def test_html(run: Run, shard: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "sheet.html"
    result = run("tarkit", "show", shard, "--html", page)
    assert (result.code, result.stdout) == (0, b"")
    broken, summary = result.stderr.splitlines()
    assert broken == f"tarkit show: {shard}, key 'broken', png: {broken.rpartition(': ')[2]}" and "runcated" in broken
    assert re.fullmatch(rf"tarkit show: {page}: 5 samples, 0\.0 MB\. 1 picture could not be decoded\.", summary)
    content = page.read_bytes()
    assert content.startswith(b"<!DOCTYPE html>") and content.count(b"data:image/jpeg;base64,") == 4
    assert b"<title>" + bytes(shard) in content
    first = run("tarkit", "show", "-", "--html", "-", "-n", "2", "-p", "1", "-q", stdin=shard.read_bytes())
    assert (first.code, first.stderr, first.stdout.count(b"data:image/jpeg;base64,")) == (0, "", 2)
    assert b"There are more samples: these are the first 2" in first.stdout
    run("tarkit", "show", shard, "--html", page, "--thumbnail", "32", "-q")
    assert len(page.read_bytes()) < len(content)


def test_many_broken_pictures_are_counted(run: Run, tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "s.tar"), encoder=False) as writer:
        for number in range(30):
            writer.write({"__key__": str(number), "jpg": b""})
    lines = run("tarkit", "show", tmp_path / "s.tar", "--html", tmp_path / "a.html", "-q").stderr.splitlines()
    assert len(lines) == 21 and lines[-1].endswith("30 pictures could not be decoded.")


def test_a_page_is_published_whole_or_not_at_all(run: Run, shard: Path, tmp_path: Path) -> None:
    page = tmp_path / "sheet.html"
    shard.write_bytes(shard.read_bytes()[:5000])
    result = run("tarkit", "show", shard, "--html", page)
    assert result.code == 65 and not page.exists()
    result = run("tarkit", "show", shard, "--html", page, "--on-damage", "skip")
    assert result.code == 3 and page.exists() and "bytes lost" in result.stderr.splitlines()[-1]


def test_selected_samples(run: Run, shard: Path, tmp_path: Path) -> None:
    chosen = ["--where", "size(txt) > 5", "--match", "^a/[13]$", "--fields", "txt png", "--rekey", "new/%d"]
    result = run("tarkit", "show", shard, *chosen)
    assert result.lines == [f"new/{number}  png:{len(photo())} txt:8" for number in range(2)]
    assert result.stderr == "tarkit show: samples dropped by --match 3\n"
    assert json.loads(run("tarkit", "show", shard, "--json", "--match", "3").lines[0])["offset"] > 0
    assert run("tarkit", "show", shard, *chosen, "--text", "-n", "1").lines[0] == "new/0"
    page = run("tarkit", "show", shard, *chosen, "--html", "-", "-q")
    assert (page.code, page.stderr, page.stdout.count(b"data:image/jpeg;base64,")) == (0, "", 2)
    for more in ([], ["--html", tmp_path / "a.html"]):
        result = run("tarkit", "show", shard, "--where", "tx == 1", *more)
        assert result.code == 65 and "no sample has the field 'tx'; did you mean txt?" in result.stderr
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--html", "s.tar", "s.tar"], "--html 's.tar': the name of a page ends with .html"),
        (["--html", "a.html", "--count"], "--count and --html are different outputs: choose one of them"),
        (["--text", "--picture"], "--text and --picture are different outputs"),
        (["--html", "a.html", "--json"], "--json goes with a list, not with --html"),
        (["--picture", "--json"], "--json goes with a list, not with --picture"),
        (["--count", "--match", "a"], "samples are selected for a list, --text, --html and --picture"),
        (["--from", "recordio", "--match", "a"], "samples are selected for a list"),
        (["-p", "2"], "-p goes with --html"),
        (["--picture", "--thumbnail", "99"], "--thumbnail goes with --html"),
        (["--html", "a.html", "-n", "2001"], "a page has at most 2000 samples, not 2001"),
        (
            ["--html", "a.html", "--from", "recordio"],
            "--html shows samples, which tar shards have, and --from is recordio",
        ),
    ],
)
def test_usage(
    run: Run, shard: Path, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = shard.read_bytes()
    result = run("tarkit", "show", shard, *words)
    assert result.code == 2 and result.stderr.count("\n") == 1 and message in result.stderr
    assert shard.read_bytes() == content and not Path("a.html").exists()


def test_a_page_does_not_replace_its_shard(run: Run, shard: Path, tmp_path: Path) -> None:
    link = tmp_path / "a.html"
    link.symlink_to(shard)
    result = run("tarkit", "show", shard, "--html", link)
    assert result.code == 2 and "is an input, and the same file as the output" in result.stderr


@pytest.mark.parametrize("mode", [["--text"], ["--html", "a.html"]])
def test_other_formats_have_no_samples(
    run: Run, mode: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RecordWriter(tmp_path / "records") as writer:
        writer.write(bytes(10))
    result = run("tarkit", "show", "records", *mode)
    assert result.code == 65 and "not a tar" in result.stderr and not Path("a.html").exists()


def install(folder: Path, text: str) -> None:
    program = folder / "bin" / "chafa"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def with_path(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


def test_picture(spawn: Run, shard: Path, tmp_path: Path) -> None:
    """The program gets a JPEG file of its own, in order with what tarkit prints, and no input."""
    install(tmp_path, 'head -c 3 "$1" | od -An -tx1; cat')
    result = spawn("tarkit", "show", "--picture", "-", stdin=shard.read_bytes(), env=with_path(tmp_path))
    assert (result.code, result.stderr) == (0, "")
    assert result.lines[:6] == ["a/0", "  png: 64 × 48 PNG", " ff d8 ff", "a/1", "  png: 64 × 48 PNG", " ff d8 ff"]
    assert result.lines[12] == "broken" and result.lines[13].startswith("  png: ") and len(result.lines) == 14
    result = spawn("tarkit", "show", "--picture", shard, "-n", "1", env=with_path(tmp_path))
    assert len(result.lines) == 3


def test_picture_that_is_too_large(spawn: Run, tmp_path: Path) -> None:
    install(tmp_path, "exit 7")
    with TarWriter(str(tmp_path / "s.tar"), encoder=False) as writer:
        writer.write({"__key__": "a", "jpg": bytes(70_000_000)})
    result = spawn("tarkit", "show", "--picture", tmp_path / "s.tar", env=with_path(tmp_path))
    assert (result.code, result.lines) == (0, ["a", "  jpg: too large to be read"])


def test_picture_with_a_program_that_fails(spawn: Run, shard: Path, tmp_path: Path) -> None:
    install(tmp_path, "exit 7")
    result = spawn("tarkit", "show", "--picture", shard, env=with_path(tmp_path))
    assert (result.code, result.lines) == (1, ["a/0", "  png: 64 × 48 PNG"])
    assert result.stderr == f"tarkit: {tmp_path}/bin/chafa ended with status 7\n"


def test_picture_whose_reader_leaves_is_no_error(spawn: Run, shard: Path, tmp_path: Path) -> None:
    install(tmp_path, "kill -PIPE $$")
    result = spawn("tarkit", "show", "--picture", shard, env=with_path(tmp_path))
    assert (result.code, result.stderr) == (0, "")


def test_picture_without_a_program(run: Run, shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("tarkit", "show", "--picture", shard)
    assert (result.code, result.stdout) == (127, b"") and result.stderr.count("\n") == 1
    assert "install chafa" in result.stderr and "pip install termvisage" in result.stderr
