"""tarkit show: what is in a shard, also one that never ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path

from tarkit import TarWriter
from tarkit.formats.recordio import RecordWriter
from tarkit.formats.registry import FORMATS, has_names, holds_rows, named_writer
from tarkit.formats.sequencefile import PairWriter

Run = Callable[..., Any]


def tar_of(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


RECORDS = [name for name in FORMATS if not holds_rows(name)]


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for shard in range(3):
        with TarWriter(str(tmp_path / f"s-{shard}.tar"), encoder=False) as writer:
            for number in range(shard + 1):
                writer.write({"__key__": f"{shard}/k{'k' * number}", "cls": b"1", "seg.png": bytes(1000)})
    return f"{tmp_path}/s-{{0..2}}.tar"


def test_listing(run: Run, shards: str, tmp_path: Path) -> None:
    """Of several shards, each line says which one it is of."""
    result = run("tarkit", "show", shards)
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == [
        f"{tmp_path}/s-0.tar: 0/k  cls:1 seg.png:1000",
        f"{tmp_path}/s-1.tar: 1/k  cls:1 seg.png:1000",
        f"{tmp_path}/s-1.tar: 1/kk  cls:1 seg.png:1000",
        f"{tmp_path}/s-2.tar: 2/k   cls:1 seg.png:1000",
        f"{tmp_path}/s-2.tar: 2/kk  cls:1 seg.png:1000",
        f"{tmp_path}/s-2.tar: 2/kkk  cls:1 seg.png:1000",
    ]
    assert run("tarkit", "show", tmp_path / "s-1.tar").lines == ["1/k  cls:1 seg.png:1000", "1/kk  cls:1 seg.png:1000"]
    assert run("tarkit", "show", shards, "-n", "2").lines == result.lines[:2]
    assert run("tarkit", "show", shards, "-n", "0").lines == []


def test_json_says_where_samples_are(run: Run, tmp_path: Path) -> None:
    members = [("a.x", b"1"), ("._b", b""), ("b" * 120 + ".x", b"22"), ("c.x", b"333"), ("c.y", b""), ("c.__z__", b"")]
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(*members))
    found = [json.loads(line) for line in run("tarkit", "show", "--json", path, "-q").lines]
    assert [each["key"] for each in found] == ["a", "b" * 120, "c"]
    assert [each["fields"] for each in found] == [{"x": 1}, {"x": 2}, {"x": 3, "y": 0}]
    assert {each["url"] for each in found} == {str(path)}
    with tarfile.open(path) as archive:
        offsets = {info.name: info.offset for info in archive}
    assert [each["offset"] for each in found] == [offsets["a.x"], offsets["b" * 120 + ".x"], offsets["c.x"]]


def test_names_can_not_write_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    name = b"\x1b[2Ja\n\xff.x".decode("utf-8", "surrogateescape")
    path.write_bytes(tar_of((name, b"1"), ("ä.x", b"2")))
    shown = "\\x1b[2Ja\\n\\udcff"
    assert run("tarkit", "show", path).lines == [f"{shown}  x:1", f"{'ä'.ljust(len(shown))}  x:1"]
    assert json.loads(run("tarkit", "show", "--json", path, "-n", "1").stdout)["key"] + ".x" == name


def test_count(run: Run, shards: str, tmp_path: Path) -> None:
    assert run("tarkit", "show", "--count", tmp_path / "s-2.tar").stdout == b"3\n"
    rows = [line.split() for line in run("tarkit", "show", "--count", shards).lines]
    assert rows == [
        ["samples", "members", "bytes", "shard"],
        ["1", "2", "1001", str(tmp_path / "s-0.tar")],
        ["2", "4", "2002", str(tmp_path / "s-1.tar")],
        ["3", "6", "3003", str(tmp_path / "s-2.tar")],
        ["6", "12", "6006", "total"],
    ]
    lines = run("tarkit", "show", "--count", "--json", shards).lines
    assert json.loads(lines[2]) == {"url": str(tmp_path / "s-2.tar"), "samples": 3, "members": 6, "bytes": 3003}
    assert run("tarkit", "show", "--count", "-n", "1", shards).code == 2


def test_count_goes_on_behind_a_bad_shard(run: Run, shards: str, tmp_path: Path) -> None:
    bad = tmp_path / "s-1.tar"
    bad.write_bytes(bad.read_bytes()[:4000])
    result = run("tarkit", "show", "--count", shards)
    assert result.code == 65
    assert [line.split(None, 3) for line in result.lines[1:]] == [
        ["1", "2", "1001", f"{tmp_path}/s-0.tar"],
        ["1", "2", "1001", f"{bad} (bad; counted up to the error)"],
        ["3", "6", "3003", f"{tmp_path}/s-2.tar"],
        ["5", "10", "5005", "total (1 of 3 shards bad)"],
    ]
    assert result.stderr.count("\n") == 1 and f"tarkit show: {bad}, offset 3584" in result.stderr
    found = [json.loads(line) for line in run("tarkit", "show", "--count", "--json", shards).lines]
    assert [each.get("error", "")[: len(str(bad))] for each in found] == ["", str(bad), ""]
    bad.unlink()
    assert run("tarkit", "show", "--count", shards).code == 66
    (tmp_path / "s-0.tar").write_bytes(b"nonsense")
    assert run("tarkit", "show", "--count", shards).code == 65, "one is bad, one is missing"
    result = run("tarkit", "show", "--count", tmp_path / "s-0.tar")
    assert (result.code, result.stdout) == (65, b""), "no number where it would not be that of the shard"


def test_what_is_skipped_is_told(run: Run) -> None:
    archive = tar_of(("a.x", b""), ("README", b""), (".hidden", b""), ("LICENSE", b""))
    result = run("tarkit", "show", stdin=archive)
    assert (result.code, result.lines) == (0, ["a  x:0"])
    assert result.stderr == "tarkit show: skipped members: hidden 1, no-extension 2\n"
    assert run("tarkit", "show", "-q", stdin=archive).stderr == ""


def test_what_was_lost_is_told_even_when_quiet(run: Run) -> None:
    archive = tar_of(("a.x", b"1"), ("a.x", b"22"))
    result = run("tarkit", "show", "-q", "--on-duplicate-field", "last", stdin=archive)
    assert (result.code, result.lines) == (3, ["a  x:2"])
    assert "duplicate fields dropped: 1" in result.stderr


def test_samples_before_damage_are_shown(run: Run) -> None:
    archive = tar_of(("a.x", b"1"), ("b.x", b"2"), ("c.x", b"3"))
    result = run("tarkit", "show", stdin=archive[: 2 * 1024 + 300])
    assert (result.code, result.lines) == (65, ["a  x:1"])
    assert "offset 2048" in result.stderr


def test_a_stream_that_never_ends() -> None:
    process = subprocess.Popen(
        [program_path("tarkit"), "show", "-n", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None

    def feed(file: Any) -> None:
        number = 0
        try:
            while True:
                file.write(tar_of((f"{number}.x", b"1"))[:1024])
                number += 1
        except (BrokenPipeError, ValueError):
            pass

    feeder = threading.Thread(target=feed, args=(process.stdin,), daemon=True)
    feeder.start()
    assert process.stdout.read().split() == [b"0", b"x:1", b"1", b"x:1", b"2", b"x:1"]
    assert process.wait(timeout=120) == 0
    feeder.join(timeout=120)
    process.stdout.close()
    try:
        process.stdin.close()
    except BrokenPipeError:
        assert process.stdin.closed


# ---- what is in a shard besides files

EVERY_PROGRAM = [
    ("tarkit", "show"),
    ("tarkit", "show", "--count"),
    ("tarkit", "split", "-o", "OUT/%d.tar"),
    ("tarproc", "-c", "true", "-o", "OUT/x.tar"),
    ("tarproc", "-c", "true"),
    ("tarproc", "-c", "true", "-O", "OUT"),
    ("tarkit", "cat", "-o", "OUT/x.tar"),
]


def with_others(folder: Path, *kinds: bytes) -> Path:
    """A shard of two whole samples, and between them one member of each kind that is
    called 2.cls.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind in [
            ("1.cls", tarfile.REGTYPE),
            *(("2.cls", kind) for kind in kinds),
            ("3.cls", tarfile.REGTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "1.cls"
            archive.addfile(info)
    (folder / "OUT").mkdir()
    (folder / "x.tar").write_bytes(buffer.getvalue())
    return folder / "x.tar"


@pytest.mark.parametrize("argv", EVERY_PROGRAM, ids=" ".join)
def test_hard_links_are_an_error_or_counted_by_every_program(run: Run, tmp_path: Path, argv: tuple[str, ...]) -> None:
    shard = with_others(tmp_path, tarfile.LNKTYPE)
    command = [each.replace("OUT", str(tmp_path / "OUT")) for each in argv]
    if argv[1] != "cat":  # which copies it as it is
        result = run(*command, shard)
        assert result.code == 65
        assert "member '2.cls'" in result.stderr and "--hard-dereference" in result.stderr
        assert list((tmp_path / "OUT").glob("*.tar")) == []
    result = run(*command, shard, "--on-damage", "skip")
    assert result.code == 3
    assert "hard-link 1, incomplete-sample 1" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("argv", EVERY_PROGRAM, ids=" ".join)
def test_links_and_fifos_are_reported_once_by_every_program(run: Run, tmp_path: Path, argv: tuple[str, ...]) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    result = run(*[each.replace("OUT", str(tmp_path / "OUT")) for each in argv], with_others(tmp_path, *kinds))
    assert result.code == 0
    assert "device 2, fifo 1, symlink 2" in result.stderr.splitlines()[-1]
    assert "folder" not in result.stderr


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_every_format(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"records.{name}"
    with named_writer(name, str(path)) as write:
        for number in range(3):
            write(f"key{number}", bytes(number * 1000))
    labels = [f"key{number}" if has_names(name) else str(number) for number in range(3)]
    lines = [f"{label}  {number * 1000}" for number, label in enumerate(labels)]
    assert run("tarkit", "show", path).lines == lines
    assert [json.loads(line) for line in run("tarkit", "show", "--json", "-n", "2", path).lines] == [
        {"key": label if has_names(name) else None, "url": str(path), "number": number, "size": number * 1000}
        for number, label in enumerate(labels[:2])
    ]
    assert run("tarkit", "show", "--count", path).stdout == b"3\n"
    found = json.loads(run("tarkit", "show", "--count", "--json", path).stdout)
    assert found == {"url": str(path), "samples": 3, "members": 3, "bytes": 3000}
    if name == "har":
        assert run("tarkit", "show", f"{path}/").lines == lines
    else:
        assert run("tarkit", "show", "--from", name, "-", stdin=path.read_bytes()).lines == lines


@pytest.mark.parametrize("name", ["tar", *RECORDS])
def test_an_error_of_damage_names_the_option_that_goes_on(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"records.{name}"
    if name == "tar":
        path.write_bytes(tar_of(*((f"{number}.txt", bytes(9000)) for number in range(3))))
    else:
        with named_writer(name, str(path)) as write:
            for number in range(3):
                write(f"k{number}", os.urandom(9000))
    file = path / "part-0" if name == "har" else path
    file.write_bytes(file.read_bytes()[:20_000])
    result = run("tarkit", "show", path)
    assert result.code == 65
    assert result.stderr.splitlines()[-1].endswith("read it with --on-damage skip (on_damage='skip')")
    assert run("tarkit", "show", path, "--on-damage", "skip").code == 3


def test_counts_of_several_formats(run: Run, shards: str, tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "records") as writer:
        for _ in range(4):
            writer.write(bytes(10))
    rows = run("tarkit", "show", "--count", shards, tmp_path / "records").lines
    assert rows[-2].split() == ["4", "4", "40", str(tmp_path / "records")]
    assert rows[-1].split() == ["10", "16", "6046", "total"]
    content = bytearray((tmp_path / "records").read_bytes())
    content[-1] ^= 1
    (tmp_path / "records").write_bytes(content)
    result = run("tarkit", "show", "--count", shards, tmp_path / "records")
    assert result.code == 65
    assert result.lines[-2].split(None, 3)[3] == f"{tmp_path}/records (bad; counted up to the error)"
    assert run("tarkit", "show", "--count", tmp_path / "records").code == 65
    result = run("tarkit", "show", "--count", "--on-damage", "skip", tmp_path / "records")
    assert (result.code, result.stdout) == (3, b"0\n") and "records 0 to 3" in result.stderr
    assert run("tarkit", "show", "--from", "excel", tmp_path / "records").code == 2


def test_a_folder_is_its_data(run: Run, shards: str, tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    result = run("tarkit", "show", "--count", tmp_path)
    assert result.lines == run("tarkit", "show", "--count", shards).lines
    assert result.stderr == "tarkit show: skipped members: metadata 1\n"
    for end in (".done.json", ".failed.tar"):
        (tmp_path / f"s-0.tar{end}").write_bytes(b"what tarproc -O writes beside a shard")
    result = run("tarkit", "show", "--count", tmp_path)
    assert result.lines == run("tarkit", "show", "--count", shards).lines
    assert result.stderr == "tarkit show: skipped members: done-record 1, failed-samples 1, metadata 1\n"
    (tmp_path / "empty").mkdir()
    result = run("tarkit", "show", tmp_path / "empty")
    assert result.code == 66 and "there are no data files in this folder" in result.stderr


def test_a_named_pipe_is_read_once(run: Run, shards: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "s-2.tar").read_bytes()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content))
    writer.start()
    assert run("tarkit", "show", "--count", tmp_path / "pipe").stdout == b"3\n"
    writer.join()


def test_pairs_of_any_class_have_a_size(run: Run, tmp_path: Path) -> None:
    for kind, value, size in (("IntWritable", 7, 4), ("Text", "äb", 3), ("NullWritable", None, 0)):
        with PairWriter(tmp_path / "x", "LongWritable", kind) as writer:
            writer.write(5, value)
        assert run("tarkit", "show", tmp_path / "x").lines == [f"5  {size}"]
