"""``tarkit cat`` with the programs around it: what they make, what they read, and its memory."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def member(name: str, content: bytes = b"x", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info, content


def tar_of(
    *members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.GNU_FORMAT, pax_headers: dict[str, str] | None = None
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, pax_headers=pax_headers) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write(folder: Path, **archives: bytes) -> list[Path]:
    paths = []
    for name, content in archives.items():
        paths.append(folder / f"{name}.tar")
        paths[-1].write_bytes(content)
    return paths


def test_what_is_advised_for_a_key_in_two_shards_makes_one_that_is_read(run: Run, tmp_path: Path) -> None:
    one, two = write(tmp_path, one=tar_of(member("a.txt")), two=tar_of(member("a.txt"), member("d/b.txt")))
    out, other = tmp_path / "out.tar", str(tmp_path / "other.tar")
    advised = run("tarkit", "cat", one, two, "-o", out).stderr.partition("give other keys: ")[2]
    words = [{"SHARD": str(two), "OTHER": other}.get(word, word) for word in shlex.split(advised)]
    assert words[0] == "tarproc" and run(*words).code == 0
    assert run("tarkit", "cat", one, other, "-o", out).code == 0
    assert run("tarkit", "show", out).lines == ["a  txt:1", "NAME-a  txt:1", "NAME-d/b  txt:1"]


def test_what_is_advised_for_files_of_one_sample_that_are_not_adjacent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write(tmp_path, one=tar_of(member("a.txt"), member("b.txt"), member("a.cls")))
    assert "extract the shard and make a new one with tarkit create" in run("tarkit", "show", path).stderr
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path / "d")
    subprocess.run(["tar", "-xf", path], check=True)
    assert run("tarkit", "create", ".", "-o", tmp_path / "new.tar").code == 0
    assert run("tarkit", "show", tmp_path / "new.tar").lines == ["a  cls:1 txt:1", "b  txt:1"]


def test_tools_of_others_read_the_result(run: Run, tmp_path: Path) -> None:
    paths = write(tmp_path, one=tar_of(member("a.txt")), two=tar_of(member("b.txt"), format=tarfile.PAX_FORMAT))
    out = tmp_path / "out.tar"
    assert run("tarkit", "cat", *paths, "-o", out).code == 0
    programs = [program for program in ("tar", "bsdtar") if shutil.which(program)]
    if not programs:
        pytest.skip("neither tar nor bsdtar is installed")
    for program in programs:
        done = subprocess.run([program, "tf", str(out)], capture_output=True, text=True, check=True)
        assert (done.stdout.split(), done.stderr) == (["a.txt", "b.txt"], "")


def large_input(count: int, size: int) -> Iterable[bytes]:
    for number in range(count):
        info = tarfile.TarInfo(f"{number}.bin")
        info.size = size
        yield info.tobuf(tarfile.USTAR_FORMAT)
        yield bytes(size)
    yield bytes(1024)


def test_memory_does_not_grow_with_the_input() -> None:
    """400 MB through a process whose peak is far below that."""
    program = (
        "import re, resource, sys\n"
        "from tarkit.steps.join import concatenate\n"
        "from tarkit.store.publish import open_publish\n"
        "import isal.igzip_lib\n"
        "with open_publish('/dev/null') as out: print(concatenate(['-'], out).samples)\n"
        # Linux lets a new program inherit ru_maxrss of the one that started it, but not VmHWM.
        "linux = sys.platform == 'linux'\n"
        "status = open('/proc/self/status').read() if linux else ''\n"
        "own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', status)[1] if linux else own)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    for piece in large_input(40, 10_000_000 // 512 * 512):
        process.stdin.write(piece)
    process.stdin.close()
    samples, peak = process.stdout.read().split()
    process.stdout.close()
    assert (process.wait(), int(samples)) == (0, 40)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(peak) * unit < 150e6
