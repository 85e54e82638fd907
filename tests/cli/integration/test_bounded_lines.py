"""A line on stderr is of bounded length, whatever names and exceptions hold, and what to do comes
last in it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from tarkit.cli.shared.program import run_program
from tarproc_support import numbered, tar_bytes

from tarkit import errors

Run = Callable[..., Any]
LONG = "x" * 60_000
MOST = 2200
"""Bytes of a line: 2,000 characters, what was left out, and the program's name."""


def own(stderr: str) -> str:
    """The program's own lines.

    What a mapper writes to stderr, its traceback too, is shown as it is.
    """
    return "".join(line for line in stderr.splitlines(keepends=True) if line.startswith("tarproc: "))


def bounded(stderr: str) -> str:
    """The lines, none of which is too long."""
    assert stderr and max(map(len, stderr.splitlines())) <= MOST, [len(line) for line in stderr.splitlines()]
    return stderr


def member(name: str, content: bytes = b"1") -> bytes:
    """A tar with one member of any name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["tarproc", "tarkit", "tarkit cat", "kubetpl"])
def test_of_a_usage_error(name: str, run: Run) -> None:
    result = run(*name.split(), f"--{LONG}")
    assert result.code == 2
    assert bounded(result.stderr).count("\n") == 1
    assert result.stderr.endswith("--help')\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tarkit", "show", f"s3x://{LONG}/a.tar"], ""),
        (["tarkit", "show", LONG], ""),
        (["tarkit", "cat", "-", "-o", f"{LONG}/x.tar"], ""),
        (["tarkit", "show", "-", "--key-rule", LONG], ""),
        (["tarkit", "get", f"http://127.0.0.1:1/{LONG}", "-"], "copy streams"),
        (["tarproc", "-", "-c", "true", "--mem", LONG], "write for example 500k, 128M or 2G (try 'tarproc --help')"),
        (["tarproc", "-", "-S", LONG], "on the path"),
        (["tarproc", "-", "--map", f"{LONG}:f"], ""),
        (["kubetpl", "job", "-n", "x", "-c", "true", "--memory", LONG], ""),
    ],
)
def test_of_an_argument(arguments: list[str], hint: str, run: Run, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, stdin=tar_bytes(numbered(1)))
    assert result.code != 0
    assert hint in bounded(result.stderr)
    assert "bug" not in result.stderr


def test_of_a_name_in_a_shard(run: Run) -> None:
    """The first is cut in the middle of its content, the second has a key that comes back."""
    shard = member(f"{LONG}.jpg", bytes(50_000))
    result = run("tarkit", "show", stdin=shard[:-30_000])
    assert result.code == 65 and f"{len(LONG) + 4} characters" in bounded(result.stderr)
    blocks = member(f"a.{LONG}")[:-10240] + member(f"a.{LONG}")
    result = run("tarkit", "show", stdin=blocks)
    assert result.code == 65
    bounded(result.stderr)


def test_of_an_exception_of_a_mapper(run: Run, tmp_path: Path) -> None:
    """The sample keeps more of it, and not all."""
    mapper = tmp_path / "mapper.py"
    mapper.write_text(
        "def f(sample):\n    if sample['__key__'] != 'k0': raise ValueError('x' * 300_000)\n    return sample\n"
    )
    shard, out, report = tmp_path / "in.tar", tmp_path / "out.tar", tmp_path / "report.json"
    shard.write_bytes(tar_bytes(numbered(3)))
    arguments = ["tarproc", "--map", f"{mapper}:f", shard, "-o", out]
    result = run(*arguments)
    assert result.code == 3
    assert bounded(own(result.stderr)).count("ValueError: xxx") == 2
    with tarfile.open(f"{out}.failed.tar") as archive:
        sizes = [info.size for info in archive if info.name.endswith("__error__.txt")]
    assert len(sizes) == 2 and all(4096 <= size < 10_000 for size in sizes)
    result = run(*arguments, "-e", "abort", "--report", report)
    assert result.code == 1
    assert "--errors abort ends the run; nothing was published\n" in bounded(own(result.stderr))
    assert len(json.loads(report.read_bytes())["error"]) <= MOST


@pytest.mark.parametrize("error", [RuntimeError(LONG), OSError(LONG), OSError(36, "File name too long", LONG)])
def test_of_an_exception_that_is_not_ours(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise error

    assert run_program(command, "program", []) == 1
    assert bounded(capfd.readouterr().err).startswith("program: ")


def test_what_to_do_comes_last_in_every_error() -> None:
    located = errors.DataError(LONG, url=LONG, member=LONG, key=LONG, hint="fetch the shard again")
    for error in (located, errors.UsageError(f"{LONG}; fetch the shard again")):
        assert len(str(error)) <= MOST
        assert str(error).endswith("; fetch the shard again")


@pytest.mark.parametrize("before", [0, 100, 1190, 1500, 2000])
def test_no_secret_comes_to_light_by_the_cut(before: int) -> None:
    text = f"{'x' * before} https://user:{'pass' * 600}@host/a {'y' * 100}"
    assert "pass" not in str(errors.UsageError(text)) and "pass" not in errors.printable(text)
