"""A few bytes of a compressed shard can stand for gigabytes: every program goes through them in
little memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import warmprogram
from tarbuild import END, header, member

from tarkit.store.publish import open_publish

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux' /proc")

SIZE = 144 << 20
LIMIT = 120_000_000
# The peak is that of this process alone: Linux lets a program inherit ru_maxrss, but not VmHWM.
PROGRAM = """
import importlib, json, sys
code = importlib.import_module(f"tarkit.cli.{sys.argv[1]}").main(sys.argv[2:])
most = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
json.dump([code, most * 1024], open("peak", "w"))
"""


def large_header(name: bytes, size: int) -> bytes:
    """With a base-256 size, as GNU tar writes it from 8 GiB on."""
    return header(name, size_field=b"\x80" + size.to_bytes(11, "big"))


def make_bomb(path: Path, size: int) -> Path:
    """A shard of three samples; in the second one is a member of so many zeros."""
    with open_publish(str(path)) as out:
        out.write(member(b"a.cls", b"1") + member(b"b.cls", b"2") + large_header(b"b.bin", size))
        for _ in range(size >> 20):
            out.write(bytes(1 << 20))
        out.write(member(b"c.cls", b"3") + END)
    return path


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """144 MiB in 5 kB; benchmarks/measures/bombs.py has one of 6 GiB."""
    path = make_bomb(tmp_path_factory.mktemp("bomb") / "bomb.tar.zst", SIZE)
    assert path.stat().st_size < 20_000
    return path


def peak(program: str, argv: Sequence[str | Path], folder: Path) -> tuple[int, int, str, str]:
    """Exit code, peak in bytes, what was printed to standard output and to standard error."""
    command = [sys.executable, "-c", PROGRAM, program, *map(str, argv)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    code, most = json.loads((folder / "peak").read_text())
    assert most < LIMIT, f"{most / 1e6:.0f} MB: {done.stderr}"
    return code, most, done.stdout, done.stderr


def listing(shard: Path, folder: Path) -> list[str]:
    """What ``show`` says of a shard; test_show looks at its memory."""
    done = warmprogram.run(["tarkit", "show", str(shard)], folder, os.environ, None)
    assert done.returncode == 0
    return done.stdout.decode().splitlines()


def test_show(bomb: Path, tmp_path: Path) -> None:
    code, _, printed, _ = peak("tarkit", ["show", bomb], tmp_path)
    assert (code, printed.splitlines()) == (0, ["a  cls:1", f"b  cls:1 bin:{SIZE}", "c  cls:1"])
    assert peak("tarkit", ["show", "--count", bomb], tmp_path)[2] == "3\n"


@pytest.mark.parametrize("options", [(), ("--on-damage", "skip")], ids=" ".join)
def test_cat(bomb: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    code, *_ = peak("tarkit", ["cat", *options, bomb, "-o", "out.tar.zst"], tmp_path)
    assert code == 0
    assert sorted(listing(tmp_path / "out.tar.zst", tmp_path)[1].split()) == ["b", f"bin:{SIZE}", "cls:1"]


@pytest.mark.parametrize("options", [(), ("--rename", "zeros=bin")], ids=" ".join)
def test_select(bomb: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    argv = ["select", bomb, "--where", "size(bin) > 1 and cls == 2", *options, "-o", "out.tar.zst"]
    code, *_ = peak("tarkit", argv, tmp_path)
    assert code == 0
    (found,) = listing(tmp_path / "out.tar.zst", tmp_path)
    assert sorted(found.split()) == ["b", "cls:1", f"zeros:{SIZE}"] if options else ["b", f"bin:{SIZE}", "cls:1"]


def test_cat_of_zeros_between_two_archives(tmp_path: Path) -> None:
    archives = [b"".join(member(name, b"1") for name in (b"a.cls", b"b.bin", b"b.cls")), member(b"c.cls", b"3") + END]
    with open_publish(str(tmp_path / "zeros.tar.zst")) as out:
        out.write(archives[0])
        for _ in range(SIZE >> 20):
            out.write(bytes(1 << 20))
        out.write(archives[1])
    code, *_ = peak("tarkit", ["cat", "zeros.tar.zst", "-o", "out.tar"], tmp_path)
    assert code == 0
    assert (tmp_path / "out.tar").read_bytes().rstrip(b"\0") == b"".join(archives).rstrip(b"\0")


def test_split(bomb: Path, tmp_path: Path) -> None:
    code, _, printed, _ = peak("tarkit", ["split", bomb, "-o", "%d.tar.zst", "--maxsize", "1M"], tmp_path)
    assert (code, printed.split()) == (0, ["0.tar.zst", "1.tar.zst", "2.tar.zst"])
    assert listing(tmp_path / "1.tar.zst", tmp_path) == [f"b  bin:{SIZE} cls:1"]


def test_split_of_a_pattern_holds_no_names(tmp_path: Path) -> None:
    (tmp_path / "s-0.tar").write_bytes(member(b"a.cls", b"1") + member(b"b.cls", b"2") + END)
    argv = ["split", "s-{0..9999999}.tar", "-o", "%d.tar", "--maxcount", "1"]
    code, _, printed, error = peak("tarkit", argv, tmp_path)
    assert (code, printed) == (66, "0.tar\n") and "s-1.tar" in error


def test_create(tmp_path: Path) -> None:
    (tmp_path / "b.bin").touch()
    with open(tmp_path / "b.bin", "r+b") as file:
        file.truncate(SIZE)
    (tmp_path / "plan").write_text(f"b.bin b.bin\nc.bin pipe:head -c {SIZE} /dev/zero\n")
    assert peak("tarkit", ["create", "--plan", "plan", "--allow-pipe", "-o", "x.tar.zst"], tmp_path)[0] == 0
    assert listing(tmp_path / "x.tar.zst", tmp_path) == [f"b  bin:{SIZE}", f"c  bin:{SIZE}"]


def test_tarproc_with_a_command(bomb: Path, tmp_path: Path) -> None:
    command = "[ ! -e sample.bin ] || stat -c %s sample.bin > sample.size"
    code, *_ = peak("tarproc", ["-c", command, bomb, "-o", "out.tar.zst"], tmp_path)
    assert code == 0
    assert listing(tmp_path / "out.tar.zst", tmp_path)[1] == f"b  bin:{SIZE} cls:1 size:{len(str(SIZE)) + 1}"


def test_tarproc_with_a_command_that_fails_keeps_what_it_was_given(bomb: Path, tmp_path: Path) -> None:
    command = "[ ! -e sample.bin ] || { echo more >> sample.bin; exit 1; }"
    code, _, _, complaint = peak("tarproc", ["-c", command, bomb, "-o", "out.tar"], tmp_path)
    assert (code, "failed 1" in complaint) == (3, True)
    assert listing(tmp_path / "out.tar", tmp_path) == ["a  cls:1", "c  cls:1"]
    (failed,) = listing(tmp_path / "out.tar.failed.tar", tmp_path)
    assert f" bin:{SIZE} cls:1" in failed


def test_tarproc_with_a_function_fails_that_sample_by_name(bomb: Path, tmp_path: Path) -> None:
    """And a retry with a command, which gets files, puts it into its place."""
    (tmp_path / "mapper.py").write_text("def same(sample): return sample")
    code, _, _, complaint = peak("tarproc", ["--map", "mapper.py:same", bomb, "-O", "out"], tmp_path)
    assert code == 3
    told = next(line for line in complaint.splitlines() if "too" in line or "--mem" in line)
    assert f"{bomb}, member 'b.bin' of {SIZE} bytes" in told
    assert "--mem is 128M" in told and f"--mem {(SIZE >> 20) + 1}M would hold it" in told
    assert listing(tmp_path / "out" / bomb.name, tmp_path) == ["a  cls:1", "c  cls:1"]
    assert peak("tarproc", ["-c", "true", "-O", "out", "--retry-failed", "out"], tmp_path)[0] == 0
    assert listing(tmp_path / "out" / bomb.name, tmp_path) == ["a  cls:1", f"b  bin:{SIZE} cls:1", "c  cls:1"]
