"""Shards that are done, and what they were made with has changed: files, the name of the work, or
the user's mind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.runs.engine import Reporter
from tarkit.runs.work import Work


class Compared(Reporter):
    """Keeps what is reported on files that cannot be compared."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def noted(self, message: str) -> None:
        match = re.fullmatch(
            r"(\d+) shards? done before, with files that cannot be compared \((.*)\); --force .*", message
        )
        assert match is not None
        self.lines.append((int(match[1]), match[2]))


Run = Callable[..., tuple[int, int]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a work over two shards: how many were made, and how many were done before."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        with tarkit.TarWriter(f"s{number}.tar", encoder=False) as writer:
            writer.write({"__key__": "k", "txt": b"%d" % number})

    def call(reporter: Reporter | None = None, **options: Any) -> tuple[int, int]:
        counts = tarkit.process("s{0..1}.tar", outdir="out", reporter=reporter, **options)
        return counts.shards_done, counts.shards_before

    return call


def made() -> bytes:
    content: bytes = next(iter(tarkit.read_samples("out/s1.tar")))["txt"]
    return content


def record(name: str = "s1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"out/{name}.tar.done.json").read_bytes())
    return found


def test_a_script_named_in_the_command_has_changed(run: Run, tmp_path: Path) -> None:
    script, command = tmp_path / "s.sh", f"bash {tmp_path}/s.sh"
    for text, expected in (("one", (2, 0)), ("one", (0, 2)), ("two", (2, 0)), ("two", (0, 2))):
        script.write_text(f"printf {text} > sample.txt")
        assert run(command=command) == expected
        assert made() == text.encode()
    assert [each["path"] for each in record()["files"]] == [str(script)]


def test_a_module_that_the_mapper_imports_has_changed(run: Run, tmp_path: Path) -> None:
    Path("mapper.py").write_text("def f(sample):\n    import helper\n    return {**sample, 'txt': helper.TEXT}\n")
    for text, expected in (("one", (2, 0)), ("one", (0, 2)), ("three", (2, 0))):
        Path("helper.py").write_text(f"TEXT = b'{text}'\n")
        assert run(function="mapper.py:f") == expected
        assert made() == text.encode()
    assert [(each["name"], each["path"]) for each in record()["files"]] == [("helper.py", str(tmp_path / "helper.py"))]


def test_the_module_of_a_mapper_that_is_named_has_changed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of module:function, the file itself is not in the fingerprint."""
    for text, expected in (("one", (2, 0)), ("one", (0, 2)), ("three", (2, 0))):
        Path("namedmapper.py").write_text(f"def f(sample):\n    return {{**sample, 'txt': b'{text}'}}\n")
        assert run(function="namedmapper:f") == expected
        assert made() == text.encode()


def test_the_modules_may_be_in_another_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "mapper.py").write_text("import helper\ndef f(sample): return sample\n")
        Path(folder, "helper.py").write_text("")
    shards, outdir = str(tmp_path / "s{0..1}.tar"), str(tmp_path / "out")
    for folder, before in (("one", 0), ("two", 2)):
        monkeypatch.chdir(tmp_path / folder)
        reporter = Compared()
        counts = tarkit.process(shards, outdir=outdir, function="mapper.py:f", reporter=reporter)
        assert counts.shards_before == before and not reporter.lines


def forget(name: str) -> None:
    Path(f"out/{name}.tar.done.json").write_text(json.dumps({k: v for k, v in record(name).items() if k != "files"}))


def test_what_cannot_be_compared_is_reported_and_never_stale(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    command = f"[ ! -e {script} ] || true"
    assert run(command=command) == (2, 0)
    script.write_text("")
    new, gone, old = Compared(), Compared(), Compared()
    assert run(new, command=command) == (0, 2) and new.lines == [(2, f"it was made without {script}")]
    assert run(command=command, force=True) == (2, 0)
    forget("s0")
    assert run(old, command=command) == (0, 2)
    assert old.lines == [(1, "its record is of a version that noted none")]
    script.unlink()
    assert run(gone, command=command) == (0, 2) and gone.lines == [(1, f"{script} is not on this machine")]


def test_old_records_of_work_without_files_are_not_worth_a_line(run: Run) -> None:
    assert run(command="true") == (2, 0)
    forget("s0")
    reporter = Compared()
    assert run(reporter, command="true") == (0, 2) and not reporter.lines


def test_force_makes_all_anew_and_a_work_id_once(run: Run) -> None:
    assert run(command="true") == (2, 0)
    assert run(command="true", force=True) == (2, 0)
    assert run(command="true") == (0, 2), "--force is not part of what the work is"
    assert run(command="true", work_id="2") == (2, 0)
    assert run(command="true", work_id="2") == (0, 2)


def test_an_old_record_is_gone_before_force_replaces_its_output(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(command="true") == (2, 0)
    monkeypatch.setattr("tarkit.runs.donerecord.DoneRecord.publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(command="true", force=True)
    assert not Path("out/s0.tar.done.json").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"force": True}, "--force goes with -O"),
        ({"force": True, "outdir": "out", "retry_failed": "out"}, "--force goes with -O"),
        ({"work_id": "a"}, "--work-id goes with -O"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        tarkit.process(() if "retry_failed" in options else "in.tar", command="true", **options)


def test_both_options_are_carried_by_manifests() -> None:
    work = Work.from_args(["--force", "--work-id", "a b", "-c", "true"])
    assert work.force and work.work_id == "a b" and Work.from_args(work.to_args()) == work
    assert work.fingerprint() == Work(command="true", work_id="a b").fingerprint() != Work(command="true").fingerprint()
