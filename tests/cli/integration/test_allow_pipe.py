"""pipe: commands are taken from the command line and from callers.

From lists only if that is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarproc_support import contents, numbered, tar_bytes

from tarkit import read_samples
from tarkit.errors import UsageError
from tarkit.steps.join import concatenate
from tarkit.store.publish import open_publish

Run = Callable[..., Any]

READERS = {
    "tarproc": ["tarproc", "-c", "true", "-o", "OUT"],
    "cat": ["tarkit", "cat", "-o", "OUT"],
    "cat --raw": ["tarkit", "cat", "--raw", "-o", "OUT"],
    "show": ["tarkit", "show"],
    "show --count": ["tarkit", "show", "--count"],
    "split": ["tarkit", "split", "-o", "OUT-%d.tar", "--force"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.tar").write_bytes(tar_bytes(numbered(3)))
    command = f"pipe:touch {tmp_path}/ran; cat {tmp_path}/in.tar"
    (tmp_path / "list").write_text(f"# one shard\n{command}\n")
    (tmp_path / "command").write_text(command)
    return tmp_path


def arguments(name: str, folder: Path) -> list[str]:
    return [text.replace("OUT", f"{folder}/out") for text in READERS[name]]


@pytest.mark.parametrize("name", READERS)
def test_a_list_runs_nothing(name: str, folder: Path, run: Run) -> None:
    result = run(*arguments(name, folder), f"@{folder}/list")
    assert result.code == 2
    assert "--allow-pipe" in result.stderr and result.stderr.count("\n") == 1
    assert not (folder / "ran").exists()
    assert not list(folder.glob("out*"))


@pytest.mark.parametrize("name", READERS)
def test_a_list_that_is_trusted(name: str, folder: Path, run: Run) -> None:
    expected = run(*arguments(name, folder), folder / "in.tar").stdout
    made = {path.name: path.read_bytes() for path in folder.glob("out*")}
    result = run(*arguments(name, folder), "--allow-pipe", f"@{folder}/list")
    assert result.code == 0, result.stderr
    assert (folder / "ran").exists()
    # What is listed by key has no place for the URL, so that it is the same for a file and a
    # command.
    assert result.stdout == expected
    assert {path.name: path.read_bytes() for path in folder.glob("out*")} == made


@pytest.mark.parametrize("name", READERS)
def test_the_command_line_needs_no_leave(name: str, folder: Path, run: Run) -> None:
    assert run(*arguments(name, folder), (folder / "command").read_text()).code == 0
    assert (folder / "ran").exists()


def test_a_folder_of_outputs(folder: Path, run: Run) -> None:
    options = ("tarproc", "-c", "true", "-O", folder / "outdir")
    result = run(*options, f"@{folder}/list")
    assert (result.code, "--allow-pipe" in result.stderr) == (2, True)
    # A command has no name that its output could have.
    for more in (("--allow-pipe", f"@{folder}/list"), ((folder / "command").read_text(),)):
        result = run(*options, *more)
        assert (result.code, "no file name" in result.stderr) == (2, True)
    assert not (folder / "ran").exists()
    (folder / "list").write_text(f"{folder}/in.tar\n")
    assert run(*options, "--allow-pipe", "--slice", "0/1", f"@{folder}/list").code == 0
    assert len(contents(folder / "outdir" / "in.tar")) == 6


@pytest.mark.parametrize("verb", ["ls", "rm", "get", "put"])
def test_verbs_on_files_run_no_command(verb: str, folder: Path, run: Run) -> None:
    target = [str(folder)] if verb in ("get", "put") else []
    for spec in (f"@{folder}/list", (folder / "command").read_text()):
        result = run("tarkit", verb, spec, *target)
        assert (result.code, result.stderr.count("\n")) == (2, 1), result.stderr
    assert not (folder / "ran").exists()


def test_from_python(folder: Path) -> None:
    def joined(**more: bool) -> int:
        with open_publish(folder / "joined.tar") as stream:
            return concatenate(f"@{folder}/list", stream, **more).samples

    with pytest.raises(UsageError, match="allow_pipe_in_lists"):
        next(read_samples(f"@{folder}/list"))
    with pytest.raises(UsageError, match="allow_pipe_in_lists"):
        joined()
    assert not (folder / "ran").exists()
    keys = [sample["__key__"] for sample in read_samples(f"@{folder}/list", allow_pipe_in_lists=True)]
    assert keys == ["k0", "k1", "k2"]
    assert joined(allow_pipe_in_lists=True) == 3
    first = itertools.islice(read_samples((folder / "command").read_text()), 1)
    assert [sample["__key__"] for sample in first] == ["k0"]
