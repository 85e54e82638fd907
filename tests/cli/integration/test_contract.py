"""What all programs and verbs do alike: help, usage errors, bad and missing input,
closed streams.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from programs import commands
from tarkit.cli.shared.program import run_program, standard_options

from tarkit import TarWriter

Run = Callable[..., Any]

NAMES = [name for name, _ in commands()]
# What makes each one read the input that comes last, and write to standard output if it can.
READING = {
    "tarkit cat": ["-o", "OUT"],
    "tarkit convert": ["-o", "OUT", "--to", "recordio"],
    "tarkit count": [],
    "tarkit export": ["--to", "csv", "-o", "OUT"],
    "tarkit pick": ["0001", "-o", "OUT", "--from"],
    "tarkit sample": ["--fraction", "0.5", "-o", "OUT"],
    "tarkit show": [],
    "tarkit select": ["-o", "OUT", "--match", "0"],
    "tarkit split": ["-o", "OUT-%d.tar"],
    "tarkit stats": [],
    "tarproc": ["-c", "true"],
}
TO_STDOUT: dict[str, list[str]] = {
    "tarkit cat": [],
    "tarkit count": [],
    "tarkit export": ["--to", "jsonl", "-o", "-"],
    "tarkit pick": ["0001", "-o", "-", "--from"],
    "tarkit sample": ["--number", "50", "-o", "-"],
    "tarkit select": ["-o", "-"],
    "tarkit show": [],
    "tarproc": ["-c", "true", "-o", "-"],
}
# Those that take no shard, or move and list files without a look into them; of index, diff, mix,
# dedup, join, check and salvage, their own files test the same.
WITHOUT_INPUT = {
    "kubetpl",
    "kubetpl cancel",
    "kubetpl configmap",
    "kubetpl dedup",
    "kubetpl indexed",
    "kubetpl job",
    "kubetpl join",
    "kubetpl jobs",
    "kubetpl local",
    "kubetpl logs",
    "kubetpl pai",
    "kubetpl pod",
    "kubetpl reduce",
    "kubetpl retry",
    "kubetpl scale",
    "kubetpl service",
    "kubetpl shuffle",
    "kubetpl sort",
    "kubetpl status",
    "kubetpl train",
    "kubetpl wait",
    "tarkit",
    "tarkit audit",
    "tarkit check",
    "tarkit completion",
    "tarkit create",
    "tarkit dedup",
    "tarkit demo",
    "tarkit diff",
    "tarkit explain",
    "tarkit feed-test",
    "tarkit get",
    "tarkit help",
    "tarkit index",
    "tarkit join",
    "tarkit ls",
    "tarkit mix",
    "tarkit pai",
    "tarkit pai check",
    "tarkit pai convert",
    "tarkit pai submit",
    "tarkit put",
    "tarkit recordio-gen",
    "tarkit reduce",
    "tarkit rm",
    "tarkit salvage",
    "tarkit serve",
    "tarkit shuffle",
    "tarkit sort",
    "tarkit status",
    "tarkit zoo",
    "tarkit zoo build",
    "tarkit zoo init",
    "tarkit zoo push",
}


def arguments(name: str, table: dict[str, list[str]], folder: Path) -> list[str]:
    program, *verb = name.split()
    return [program, *verb, *(text.replace("OUT", str(folder / "out")) for text in table[name])]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in.tar"
    with TarWriter(str(path), encoder=False) as writer:
        for number in range(60):
            writer.write({"__key__": f"{number:04d}", "txt": b"%d" % number * 100})
    return path


def test_all_programs_and_verbs_are_looked_at() -> None:
    scripts = {entry.name for entry in importlib.metadata.distribution("tarkit").entry_points}
    assert {name.split()[0] for name in NAMES} == scripts
    assert set(NAMES) == set(READING) | WITHOUT_INPUT


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, run: Run) -> None:
    result = run(*name.split(), "-h")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: {name} ".encode())


@pytest.mark.parametrize("name", ["tarproc", "tarkit", "tarkit cat", "kubetpl"])
def test_version(name: str, run: Run) -> None:
    result = run(*name.split(), "--version")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.decode().split() == [name.split(maxsplit=1)[0], importlib.metadata.version("tarkit")]


@pytest.mark.parametrize("name", ["tarproc", "tarkit", "tarkit cat", "kubetpl", "kubetpl status"])
def test_unknown_option_is_a_usage_error(name: str, run: Run) -> None:
    result = run(*name.split(), "--no-such-option")
    assert (result.code, result.stdout) == (2, b"")
    assert "--no-such-option" in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_time_is_nan() -> None:
    """No bound is below or above it: what waits until it is over waits for ever."""
    ranges = [
        (name, param)
        for name, context in commands()
        for param in context.command.get_params(context)
        if isinstance(param.type, click.FloatRange)
    ]
    assert {name for name, _ in ranges} >= {"tarproc", "tarkit serve", "kubetpl local"}
    for _, param in ranges:
        with pytest.raises(click.BadParameter, match="'nan' is not a time"):
            param.type.convert("nan", param, None)
        assert param.type.convert("1.5", param, None) == 1.5


@pytest.mark.parametrize("name", sorted(READING))
def test_missing_input(name: str, run: Run, tmp_path: Path) -> None:
    result = run(*arguments(name, READING, tmp_path), tmp_path / "nosuch.tar")
    assert (result.code, result.stdout) == (66, b"")
    assert "nosuch.tar" in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", sorted(READING))
def test_input_that_is_no_tar(name: str, run: Run, tmp_path: Path) -> None:
    result = run(*arguments(name, READING, tmp_path), "-", stdin=b"<html>not found</html>" * 100)
    assert (result.code, result.stdout) == (65, b"")
    assert "HTML" in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", sorted(READING))
def test_cut_input_publishes_nothing(name: str, run: Run, shard: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(shard.read_bytes()[:-10240])
    result = run(*arguments(name, READING, tmp_path), cut)
    assert result.code == 65
    assert "cut.tar" in result.stderr
    assert sorted(os.listdir(tmp_path)) == ["cut.tar", "in.tar"]


@pytest.mark.parametrize("name", ["tarkit cat", "tarkit select", "tarproc"])
def test_a_folder_is_no_input(name: str, run: Run, tmp_path: Path) -> None:
    result = run(*arguments(name, READING, tmp_path), tmp_path)
    assert result.code == 1
    assert "is a directory" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["tarkit cat", "tarkit select"])
def test_unreadable_input(name: str, spawn: Run, shard: Path, tmp_path: Path) -> None:
    shard.chmod(0)
    if os.access(shard, os.R_OK):
        pytest.skip("this user may read everything (root), so no file is unreadable")
    result = spawn(*arguments(name, READING, tmp_path), shard)
    assert result.code == 1
    assert "permission denied" in result.stderr


@pytest.mark.parametrize("name", sorted(TO_STDOUT))
def test_reader_that_goes_away_is_no_error(name: str, spawn: Run, shard: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = spawn(*arguments(name, TO_STDOUT, tmp_path), shard, stdout=writing)
    finally:
        os.close(writing)
    assert (result.code, "bug" in result.stderr, "Traceback" in result.stderr) == (0, False, False)


@pytest.mark.parametrize("name", sorted(TO_STDOUT))
def test_full_disk_under_standard_output(name: str, spawn: Run, shard: Path, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "wb") as full:
        result = spawn(*arguments(name, TO_STDOUT, tmp_path), shard, stdout=full)
    assert result.code == 1
    assert "no space left" in result.stderr.lower()
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", sorted(TO_STDOUT))
def test_closed_standard_output(name: str, shell: Run, shard: Path, tmp_path: Path) -> None:
    command = " ".join(f"'{text}'" for text in [*arguments(name, TO_STDOUT, tmp_path), str(shard)])
    result = shell(f"{command} >&-")
    assert result.code == 1
    assert "bug" not in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["tarkit cat", "tarkit select", "tarproc"])
def test_closed_standard_input(name: str, shell: Run, tmp_path: Path) -> None:
    command = " ".join(f"'{text}'" for text in arguments(name, READING, tmp_path))
    result = shell(f"{command} - <&-")
    assert result.code == 1
    assert "bug" not in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["tarkit split", "tarproc"])
def test_closed_standard_error(name: str, shell: Run, shard: Path, tmp_path: Path) -> None:
    command = " ".join(f"'{text}'" for text in [*arguments(name, READING, tmp_path), str(shard)])
    assert shell(f"{command} 2>&-").code == 0


def test_verbose_shows_where(run: Run, tmp_path: Path) -> None:
    result = run("tarkit", "show", tmp_path / "nosuch.tar", "-v")
    assert result.code == 66
    assert "Traceback" in result.stderr


def test_a_traceback_has_no_bytes_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @standard_options
    def command(verbose: bool) -> int:
        raise ValueError("\x1b]0;title\x07 one\r\ntwo \x9b31m http:/u:CANARY@h/x")

    assert run_program(command, "tarkit", ["-v"]) == 1
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == [r"ValueError: \x1b]0;title\x07 one\r", r"two \x9b31m http:/h/x"]
    assert last.startswith(r"tarkit: unexpected ValueError: \x1b]0;title\x07 one two \x9b31m http:/h/x; this is a bug")


def test_exit_codes_page_names_every_code() -> None:
    from tarkit import errors

    page = (Path(__file__).resolve().parents[3] / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    table = page.partition("\n## ")[0]
    named = {int(row.split("|")[1]) for row in table.splitlines() if row.startswith("| ") and row[2].isdigit()}
    assert named == codes


def test_the_programs_start_without_the_heavy_libraries() -> None:
    loaded = "[m for m in ('fsspec', 'isal') if m in sys.modules]"
    program = f"import sys, tarkit.cli.tarkit, tarkit.cli.tarproc; print({loaded})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
