"""tarkit demo: what it prints was really run, and a pipeline that goes wrong is noticed."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.verbs import demo

from tarkit import read_samples
from tarkit.errors import UsageError
from tarkit.toolbox.demodata import SHAPES, SIDE, demo_samples

Run = Callable[..., Any]


def test_demo(spawn: Run, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = spawn("tarkit", "demo", cwd=tmp_path)
    assert (result.code, result.stderr) == (0, "")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of processor time, so that nothing else that the machine does counts.
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 40, "the promise is 20 s on two idle cores"
    lines = result.lines
    assert lines[-1] == "# All commands did what they should."
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    assert len(typed) > 10
    folder = tmp_path / "tarkit-demo"
    shards = [str(folder / f"shard-00000{number}.tar") for number in range(3)]
    assert sum(1 for _ in read_samples(shards)) == 60
    assert (folder / "checked.tar.failed.tar").exists()
    assert "I do not like this one" in result.stdout.decode()


def test_the_folder_of_a_demo_is_taken_again_and_no_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_steps(monkeypatch, step("true"))
    for _ in range(2):
        assert run("tarkit", "demo", tmp_path / "mine").code == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    refused = run("tarkit", "demo", tmp_path / "other")
    assert (refused.code, refused.stdout) == (2, b"")
    assert "is not empty" in refused.stderr


def step(command: str, check: Any = lambda folder, printed: None, **more: Any) -> demo.Step:
    return demo.Step("a step", command, check, **more)


def with_steps(monkeypatch: pytest.MonkeyPatch, *made: demo.Step) -> None:
    monkeypatch.setattr(demo, "STEPS", made)


def test_a_wrong_exit_code_is_noticed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_steps(monkeypatch, step("exit 4"), step("exit 3", code=3), step("echo shown; echo also >&2"))
    result = run("tarkit", "demo", tmp_path / "d")
    assert result.code == 1
    assert "the exit code is 4, and should be 0" in result.stderr
    assert result.lines[-1] == "# 1 command had an unexpected result, the first: exit 4"
    assert result.lines[-4:-2] == ["shown", "also"]


def test_a_wrong_exit_code_is_noticed_when_the_reader_has_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_steps(monkeypatch, step("exit 4"), step("touch ../done"))
    kept = os.dup(1)
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    try:
        result = run("tarkit", "demo", tmp_path / "d")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writing)
    assert (result.code, (tmp_path / "done").exists()) == (1, True)
    assert "the exit code is 4, and should be 0" in result.stderr


def test_wrong_counts_are_noticed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_steps(
        monkeypatch,
        step("true", demo._has(61, "shard-000000.tar", "shard-000001.tar", "shard-000002.tar")),
        step("true", demo._has(20, "shard-000000.tar", right=lambda sample: "jpg" in sample)),
        step("true", demo._has(20, "shard-000000.tar", right=demo._sum_is_right)),
        step("true", demo._has(20, "shard-000000.tar", right=demo._shape_is_upper_case)),
        step("cmp shard-000000.tar shard-000001.tar"),
        step("echo nothing", demo._prints("something")),
        step("true", demo._has(20, "shard-000000.tar")),
    )
    result = run("tarkit", "demo", tmp_path / "d")
    assert result.code == 1
    assert result.stderr.count("\n") == 6
    assert "should have 61 samples; of 60, 60 are right" in result.stderr
    assert result.lines[-1].startswith("# 6 commands")


def test_a_program_that_is_not_there_is_said_to_be_missing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_steps(monkeypatch, step("exit 1", needs="nosuchprogram"))
    result = run("tarkit", "demo", tmp_path / "d")
    assert result.code == 0
    assert "# (left out: nosuchprogram is not installed)" in result.lines


def test_folders(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_steps(monkeypatch, step("pwd"))
    place = tmp_path / "100%/d"
    assert run("tarkit", "demo", place, "--remove").code == 0
    assert not place.exists()
    place.mkdir()
    assert run("tarkit", "demo", place, "--remove").code == 2
    assert run("tarkit", "demo", place).code == 0
    (place / "mine").write_text("mine")
    (place / ".tarkit-demo").unlink()
    assert run("tarkit", "demo", place).code == 2
    assert run("tarkit", "demo", place, "--force").code == 0
    assert (place / "mine").read_text() == "mine"
    assert run("tarkit", "demo", place / "mine").code == 2
    assert run("tarkit", "demo", place / "mine" / "below").code == 1


def test_programs_of_another_installation_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo._path().split(os.pathsep)[0] == os.path.dirname(os.path.abspath(sys.executable))


def test_missing_programs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("tarkit", "demo", tmp_path / "d")
    assert result.code == 127 and "bash is neither beside" in result.stderr
    assert not (tmp_path / "d").exists()


def test_samples_are_what_they_say() -> None:
    samples = list(demo_samples(30))
    assert samples == list(demo_samples(30))
    assert [sample["__key__"] for sample in samples][:2] == ["000000", "000001"]
    for sample in samples:
        head, pixels = sample["ppm"][: -3 * SIDE * SIDE], sample["ppm"][-3 * SIDE * SIDE :]
        assert head == b"P6\n%d %d\n255\n" % (SIDE, SIDE)
        about = json.loads(sample["json"])
        assert SHAPES[int(sample["cls"])] == about["shape"]
        ink = bytes(about["colour"])
        painted = sum(pixels[at : at + 3] == ink for at in range(0, len(pixels), 3))
        assert 50 < painted < SIDE * SIDE - 50
    with pytest.raises(UsageError):
        list(demo_samples(-1))
