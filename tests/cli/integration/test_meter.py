"""How far a run is, as it is shown: the part that is done and the time left, where the end is
known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.shared import meter
from tarkit.cli.shared.meter import Meter

from tarkit import TarWriter
from tarkit.specs.shardspec import counted_shards

Run = Callable[..., Any]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Ten shards of five samples."""
    paths = [tmp_path / "in" / f"s{number}.tar" for number in range(10)]
    for path in paths:
        with TarWriter(str(path), encoder=False) as writer:
            for number in range(5):
                writer.write({"__key__": f"{path.stem}-{number}", "txt": b"x" * 1000})
    return paths


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each step, in the place of one every 30 seconds."""
    monkeypatch.setattr(meter, "_LINE_EVERY", 0.0)


def shares(stderr: str) -> list[int]:
    """The percentages, each once, in the order of the lines."""
    found = [int(text) for text in re.findall(r": (\d+)%(?:, about [\d:]+ left)?; ", stderr)]
    assert found == sorted(found), stderr
    return sorted(set(found))


def test_a_line_now_and_then(capfd: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    meter = Meter("program", quiet=False, clock=lambda: now[0])
    due = []
    for _ in range(100):
        due.append(meter.is_due())
        if due[-1]:
            meter.show("so far", (now[0] - 100) / 400)
        now[0] += 1
    assert [second for second, is_due in enumerate(due) if is_due] == [30, 60, 90]
    assert capfd.readouterr().err == "".join(
        f"program: {line} left; so far\n" for line in ("8%, about 06:10", "15%, about 05:40", "22%, about 05:10")
    )
    meter.show("so far", None)
    meter.show("so far", 0.0)
    meter.show("so far", 7.0)
    assert capfd.readouterr().err == "".join(
        f"program: {line}\n" for line in ("so far", "0%; so far", "100%, about 00:00 left; so far")
    )
    quiet = Meter("program", quiet=True, clock=lambda: now[0])
    now[0] += 1000
    assert not quiet.is_due()


def test_what_is_known_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(*specs: str) -> tuple[int, int | None]:
        names, number = counted_shards(specs, allow_pipe_in_lists=True)
        return len(list(names)), number

    assert count("a-{0..9}.tar", "-") == (11, 11)
    assert count("-") == (1, None) and count("pipe:cat x") == (1, None)
    assert count("-", "pipe:cat x") == (2, 2)
    monkeypatch.setattr("tarkit.specs.shardspec._MOST_SHARDS", 5)
    assert count("a-{0..5}.tar") == (6, None) and count("a-{0..4}.tar") == (5, 5)


@pytest.mark.usefixtures("at_once")
def test_tarproc_and_split_over_a_list(run: Run, shards: list[Path], tmp_path: Path) -> None:
    names = tmp_path / "list.txt"
    names.write_text("".join(f"{path}\n" for path in shards))
    result = run("tarproc", "-c", "true", f"@{names}", "-o", tmp_path / "out.tar")
    assert result.code == 0 and set(shares(result.stderr)) >= {50, 90, 100}
    assert "; 50 samples so far, 0 failed\n" in result.stderr
    result = run("tarkit", "split", f"@{names}", "-o", f"{tmp_path}/o-%d.tar", "--maxcount", "5")
    assert result.code == 0 and set(shares(result.stderr)) >= set(range(10, 101, 10))
    assert "; 11 samples so far, 2 shards written\n" in result.stderr
    for command in (["tarproc", "-c", "true"], ["tarkit", "split", "-o", f"{tmp_path}/p-%d.tar"]):
        assert run(*command, "-q", f"@{names}").stderr == ""


@pytest.mark.usefixtures("at_once")
def test_a_stream_has_no_end_that_is_known_but_count_is_one(run: Run, shards: list[Path], tmp_path: Path) -> None:
    result = run("tarproc", "-c", "true", stdin=shards[0].read_bytes())
    assert shares(result.stderr) == [] and "\ntarproc: 5 samples so far, 0 failed\n" in result.stderr
    result = run("tarproc", "-c", "true", "--count", "4", stdin=shards[0].read_bytes())
    assert shares(result.stderr) == [25, 50, 75, 100]


@pytest.mark.usefixtures("at_once")
def test_shards_that_were_done_before_do_not_count(run: Run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("tarproc", "-c", "true", "-O", out, *shards[:5]).code == 0
    result = run("tarproc", "-c", "true", "-O", out, *shards)
    assert result.code == 0 and {20, 40, 60, 80, 100} <= set(shares(result.stderr))
    assert shares(result.stderr)[0] <= 20, "of the five that are left"
    assert ", 9 of 10 shards done\n" in result.stderr


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("verb", ["put", "get"])
def test_files_that_are_copied(verb: str, run: Run, tmp_path: Path) -> None:
    """By bytes, also within a file; a file that is kept or fails is done with, too."""
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (source / "a").write_bytes(bytes(8 << 20))
    (source / "b").write_bytes(bytes(2 << 20))
    (target / "b").write_bytes(bytes(3))
    result = run("tarkit", verb, "-p", "1", "--no-clobber", source, target)
    assert result.code == 1 and "1 file, 8388608 bytes in" in result.stderr
    assert set(shares(result.stderr)) >= {10, 20, 30, 40, 50, 60, 70, 80}
    assert "; 0 of 2 files so far, 1048576 bytes\n" in result.stderr
    assert f"tarkit {verb}: 100%, about 00:00 left; 2 of 2 files so far, 10485760 bytes\n" in result.stderr
    assert run("tarkit", verb, "-q", source, target).stderr == ""


@pytest.mark.usefixtures("at_once")
def test_shards_that_are_indexed(run: Run, shards: list[Path]) -> None:
    result = run("tarkit", "index", *shards)
    assert result.code == 0 and set(shares(result.stderr)) >= set(range(10, 101, 10))
    assert "; 3 of 10 shards so far\n" in result.stderr


@pytest.mark.parametrize("columns", [0, 100])
def test_a_bar_on_a_terminal(columns: int, spawn: Run, shards: list[Path], tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    if columns:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown = bytearray()

    def collect() -> None:
        # All the while, as a terminal does: it holds 4 kB, and then its writer waits.
        with contextlib.suppress(OSError):
            while piece := os.read(master, 65536):
                shown.extend(piece)

    reader = threading.Thread(target=collect)
    reader.start()
    try:
        result = spawn("tarproc", "-c", "sleep 0.02", *shards, "-o", tmp_path / "out.tar", stderr=terminal)
    finally:
        os.close(terminal)
        reader.join()
        os.close(master)
    assert result.code == 0
    text = shown.decode()
    assert re.search(r"\d%\|.*\| \d+ samples so far, 0 failed \[\d\d:\d\d<\d\d:\d\d, [\d.]+/s\]", text), text
    # At the end the bar is gone, and the sum is there.
    assert text.rstrip().endswith("in 50 = out 50 + filtered 0 + failed 0")
