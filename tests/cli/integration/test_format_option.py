"""--format, in every program that writes shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]
KEY = "k" * 200


def written(path: Path, format: str) -> bytes:
    with TarWriter(path, encoder=False, format=format) as writer:
        for key in ("a", KEY):
            writer.write({"__key__": key, "txt": key.encode()})
    return path.read_bytes()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    written(tmp_path / "in.tar", "pax")
    return tmp_path / "in.tar"


@pytest.mark.parametrize("format", ["pax", "gnu"])
@pytest.mark.parametrize(
    "command",
    ["tarproc -c true {} -O made", "tarkit split {} -o out.tar%d", "tarkit create --plan plan -o out.tar"],
)
def test_every_writer(command: str, format: str, source: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    Path("plan").write_text(f"a.txt text:a\n{KEY}.txt text:{KEY}\n")
    arguments = command.format(source).split()
    assert run(*arguments, "--format", format, "-q").code == 0
    (made,) = [each for each in (*Path("made").glob("*.tar"), *Path().glob("out.tar*"))]
    assert made.read_bytes() == written(Path("expected.tar"), format)


def test_a_sample_that_does_not_fit_fails_alone(source: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    for output in (["-o", "out.tar"], ["-O", "made"]):
        result = run("tarproc", "-c", "true", source, *output, "--format", "ustar")
        assert result.code == 3 and "format ustar does not have" in result.stderr
    for kept in ("out.tar.failed.tar", "made/in.tar.failed.tar"):
        assert [sample["__key__"] for sample in read_samples(kept)] == [KEY]


def test_what_does_not_fit_is_an_error(source: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    result = run("tarkit", "split", source, "-o", "out.tar%d", "--format", "ustar")
    assert result.code == 1 and not list(Path().glob("out*"))
    assert "format ustar does not have" in result.stderr


def test_another_format_is_other_work(source: Path, run: Run, tmp_path: Path) -> None:
    def again(*options: str) -> str:
        result = run("tarproc", "-c", "true", source, "-O", tmp_path / "made", *options)
        assert result.code == 0
        return str(result.stderr)

    assert "done 1, done before 0" in again()
    assert "done 0, done before 1" in again("--format", "pax")
    assert "done 1, done before 0" in again("--format", "gnu")
    assert "done 0, done before 1" in again("--format", "gnu")
