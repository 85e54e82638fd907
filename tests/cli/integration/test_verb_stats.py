"""tarkit stats: text, JSON and a page, of one data set and of two."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path

from tarkit import TarWriter

Run = Callable[..., Any]
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for shard in range(3):
        with TarWriter(f"s-{shard}.tar", encoder=False) as writer:
            for number in range(10):
                writer.write({"__key__": f"{shard}{number}", "cls": b"%d" % (number % 4), "txt": b"x" * number})
    return "s-{0..2}.tar"


def test_text_and_json(run: Run, shards: str) -> None:
    result = run("tarkit", "stats", shards)
    assert (result.code, result.stderr) == (0, "")
    assert result.lines[0] == "30 samples, 165 bytes of content"
    row = next(line.split() for line in result.lines if line.startswith("txt characters"))
    assert row == ["txt", "characters", "30", "0", "0", "2", "4.5", "7", "9", "9", "4.5", "135"]
    found = json.loads(run("tarkit", "stats", shards, "--json").stdout)
    assert found["fields"]["txt"]["bytes"]["median"] == 4.5
    assert found["fields"]["cls"]["class"] == {
        "count": 30,
        "values": {"0": 9, "1": 9, "2": 6, "3": 6},
        "rest": 0,
    }
    outputs = {run("tarkit", "stats", shards, "--json", "-p", number).stdout for number in "12"}
    assert outputs == {run("tarkit", "stats", shards, "--json").stdout}
    assert json.loads(run("tarkit", "stats", "s-0.tar", "-n", "3", "--json").stdout)["samples"] == 3
    assert run("tarkit", "stats", stdin=Path("s-0.tar").read_bytes()).lines[0] == "10 samples, 55 bytes of content"


def test_a_page_on_standard_output(run: Run, shards: str) -> None:
    result = run("tarkit", "stats", shards, "--html", "-")
    assert (result.code, result.stderr) == (0, "") and result.stdout.startswith(b"<!DOCTYPE html>")
    assert run("tarkit", "stats", shards, "--html", "page.html", "-q").stdout and Path("page.html").exists()
    assert Path("page.html").read_bytes() == result.stdout
    assert run("tarkit", "stats", shards, "--html", "-", "--json").code == 2


def test_two_data_sets(run: Run, shards: str) -> None:
    result = run("tarkit", "stats", "s-0.tar", "--against", "s-1.tar", "--against", "s-2.tar")
    assert result.lines[:2] == ["A: 10 samples, 55 bytes of content", "B: 20 samples, 110 bytes of content"]
    assert result.lines[3:5] == ["Differences", "none of fields, values, shares or medians"]
    found = json.loads(run("tarkit", "stats", "s-0.tar", "--against", "s-1.tar", "-n", "1", "--json").stdout)
    assert [found["sets"][label]["samples"] for label in "AB"] == [1, 1] and found["differences"] == []


def test_classes(run: Run, shards: str) -> None:
    Path("classes.json").write_text('{"cat": 0, "dog": 1, "owl": 9}')
    found = json.loads(run("tarkit", "stats", shards, "--classes-from", "classes.json", "--json").stdout)
    names = [*found["fields"]["cls"]["class"]["values"]]
    assert names == ["0 cat", "1 dog", "2 (not in the table)", "3 (not in the table)", "9 owl"]
    result = run("tarkit", "stats", shards, "--class", "label")
    assert (result.code, result.stdout) == (2, b"") and "no sample has the field 'label'" in result.stderr


def test_what_was_lost_or_skipped_is_said(run: Run, shards: str, tmp_path: Path) -> None:
    damaged = bytearray((tmp_path / "s-1.tar").read_bytes())
    damaged[damaged.index(b"15.txt")] ^= 1
    (tmp_path / "s-1.tar").write_bytes(damaged)
    result = run("tarkit", "stats", shards)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (65, b"", 1) and "s-1.tar" in result.stderr
    result = run("tarkit", "stats", shards, "--on-damage", "skip", "--html", "x.html")
    assert result.code == 3 and "bytes lost" in result.stderr and (tmp_path / "x.html").exists()
    result = run("tarkit", "stats", shards, "--html", tmp_path / "no" / "x.html")
    assert result.code == 2 and "no/x.html: the folder " in result.stderr


def page_of(run: Run, folder: Path, *arguments: str) -> str:
    with TarWriter(f"{folder}/hostile.tar", encoder=False) as writer:
        for number in range(20):
            fields = {"cls": HOSTILE.encode(), "json": json.dumps({HOSTILE: number}).encode(), "txt": b"\xff"}
            writer.write({"__key__": f"{number}{HOSTILE.replace('/', '')}", **fields, "x": bytes(number)})
    assert run("tarkit", "stats", f"{folder}/hostile.tar", "--html", f"{folder}/page.html", *arguments).code == 0
    return (folder / "page.html").read_text("utf-8")


def test_the_page_needs_nothing_else_and_has_no_element_of_the_data(run: Run, shards: str, tmp_path: Path) -> None:
    text = page_of(run, tmp_path, "--against", shards)
    assert "<img" not in text and "http:" not in text.replace("http://www.w3.org/2000/svg", "") and "https:" not in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="NO chromium: pages are not opened in a browser")
def test_a_browser_shows_the_page(run: Run, shards: str, tmp_path: Path) -> None:
    page_of(run, tmp_path, "--against", shards)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--enable-logging=stderr", "--dump-dom", f"file://{tmp_path}/page.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    shown = done.stdout.partition("<main")[2].partition("</main>")[0]
    assert shown.count("<figure") >= 10 and "<img" not in shown and "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert shown.count("<svg") >= 3 and 'class="set1"' in shown and "only in A: json, x" in shown


def test_the_first_samples_of_a_stream_that_does_not_end(run: Run, shards: str) -> None:
    """A sample ends where the next one begins: the tenth is not known to be whole."""
    reading, writing = os.pipe()
    os.write(writing, Path("s-0.tar").read_bytes()[:12000])
    try:
        command = [program_path("tarkit"), "stats", "-", "-n", "4"]
        done = subprocess.run(command, stdin=reading, capture_output=True, text=True, check=True, timeout=60)
    finally:
        os.close(reading)
        os.close(writing)
    assert done.stdout.startswith("4 samples, 10 bytes of content\n")


def test_an_interrupt_ends_a_wait_for_standard_input(shards: str) -> None:
    reading, writing = os.pipe()
    os.write(writing, Path("s-0.tar").read_bytes()[:12000])
    command = [program_path("tarkit"), "stats", "-", "-v"]
    try:
        with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            while True:  # until it waits in a read of the pipe, which it has emptied
                if not select.select([reading], [], [], 0.05)[0]:
                    break
            program.send_signal(signal.SIGINT)
            assert program.wait(30) == 130
    finally:
        os.close(reading)
        os.close(writing)


def test_a_selection(run: Run, shards: str) -> None:
    result = run("tarkit", "stats", shards, "--against", "s-0.tar", "--where", "cls == 1", "--json")
    sets = json.loads(result.stdout)["sets"]
    assert [sets[label]["fields"]["cls"]["class"]["values"] for label in "AB"] == [{"1": 9}, {"1": 3}]
    assert result.stderr == "tarkit stats: samples dropped by --where 28\n"
    result = run("tarkit", "stats", shards, "--drop-fields", "tx")
    assert (result.code, result.stdout) == (65, b"") and "did you mean txt" in result.stderr
