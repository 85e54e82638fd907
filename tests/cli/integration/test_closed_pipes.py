"""A closed pipe: success where it is the output; no reason to stop where the output is elsewhere.

Else an error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tarkit.cli.shared.program import exit_code, run_program

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in.tar"
    with TarWriter(str(path), encoder=False) as writer:
        for number in range(300):
            writer.write({"__key__": f"{number:03d}", "bin": bytes(5000)})
    return path


@pytest.fixture
def closed() -> Iterator[int]:
    """The writing end of a pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def split(folder: Path, *more: str) -> list[str | Path]:
    return ["tarkit", "split", folder / "in.tar", "-o", folder / "sp" / "part-%06d.tar", "--maxcount", "3", *more]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_split_goes_on_when_its_names_are_not_read(
    stream: str, spawn: Run, shard: Path, closed: int, tmp_path: Path
) -> None:
    (tmp_path / "sp").mkdir()
    result = spawn(*split(tmp_path), **{stream: closed})
    assert result.code == 0
    assert len(list(read_samples(f"{tmp_path}/sp/*.tar"))) == 300
    if stream == "stderr":
        assert len(result.lines) == 100


def test_split_goes_on_without_standard_output(shell: Run, shard: Path, tmp_path: Path) -> None:
    (tmp_path / "sp").mkdir()
    result = shell("tarkit split in.tar -o sp/part-%06d.tar --maxcount 3 >&-")
    assert (result.code, result.stderr) == (0, "tarkit split: 300 samples in 100 shards, 1500000 bytes of content\n")
    assert len(os.listdir(tmp_path / "sp")) == 100


def test_split_stops_when_the_list_of_names_has_no_room(spawn: Run, shard: Path, tmp_path: Path) -> None:
    """The names go to a file that somebody wants whole: a part of it is no success."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    (tmp_path / "sp").mkdir()
    with open("/dev/full", "wb") as full:
        result = spawn(*split(tmp_path), stdout=full)
    assert (result.code, result.stderr.count("\n")) == (1, 1)
    assert "no space left" in result.stderr.lower()


@pytest.mark.parametrize(
    "command",
    [
        "tarproc -c true in.tar -o fifo",
        "tarkit cat --raw in.tar -o fifo",
        "tarkit create -o fifo -C files .",
    ],
)
def test_a_named_pipe_whose_reader_leaves_is_an_error(command: str, shell: Run, shard: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(20):
        (tmp_path / "files" / f"{number}.bin").write_bytes(bytes(100_000))
    result = shell(f"mkfifo fifo; head -c 1000 fifo > got & {command}; code=$?; wait; exit $code")
    assert result.code == 1
    assert "fifo: its reader closed it before the end" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_descriptor_that_is_not_standard_output_is_an_error_too(shell: Run, shard: Path) -> None:
    result = shell("tarkit cat in.tar -o >(head -c 1000 > got)")
    assert result.code == 1
    assert "its reader closed it before the end" in result.stderr


@pytest.mark.parametrize("name", ["-", "/dev/fd/1"])
def test_standard_output_by_any_name_may_be_closed(name: str, spawn: Run, shard: Path, closed: int) -> None:
    result = spawn("tarkit", "cat", "-q", shard, "-o", name, stdout=closed)
    assert (result.code, result.stderr) == (0, "")


def test_any_other_closed_pipe_or_connection_is_a_failure(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    @click.command()
    def command() -> None:
        with ours:
            ours.sendall(b"x")

    assert run_program(command, "program", []) == 1
    assert capfdbinary.readouterr().err == b"program: system error: Broken pipe\n"
    assert exit_code(BrokenPipeError()) == 1


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_whose_reader_leaves_is_no_error_but_a_full_disk_is(option: str, spawn: Run, closed: int) -> None:
    result = spawn("tarkit", option, stdout=closed)
    assert (result.code, result.stderr) == (0, "")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            result = spawn("tarkit", option, stdout=full)
        assert (result.code, result.stderr) == (
            1,
            "tarkit: standard output cannot be written: No space left on device\n",
        )


def test_what_was_found_before_an_error_is_shown(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "show", shard, tmp_path / "nosuch.tar")
    assert (result.code, len(result.lines)) == (66, 300)


def test_an_error_is_not_hidden_by_a_reader_that_left(spawn: Run, shard: Path, closed: int, tmp_path: Path) -> None:
    result = spawn("tarkit", "show", shard, tmp_path / "nosuch.tar", stdout=closed)
    assert result.code == 66


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["tarkit", "show", "--count", "in.tar", "bad.tar"], 65),
        (["tarkit", "status", "out", "in.tar", "missing.tar"], 1),
        (["kubetpl", "status", "grey", "-O", "out", "--shards", "{in,missing}.tar"], 1),
    ],
)
def test_the_exit_code_that_is_the_result_does_not_depend_on_a_reader(
    command: list[str], code: int, spawn: Run, shard: Path, closed: int, tmp_path: Path
) -> None:
    (tmp_path / "bad.tar").write_bytes(shard.read_bytes()[:10_000])
    assert spawn("tarproc", "-O", tmp_path / "out", "-c", "true", shard).code == 0
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "absent")}
    heard = spawn(*command, cwd=tmp_path, env=environment)
    assert (heard.code, bool(heard.stdout)) == (code, True)
    unheard = spawn(*command, cwd=tmp_path, env=environment, stdout=closed)
    assert (unheard.code, unheard.stderr) == (code, heard.stderr)
