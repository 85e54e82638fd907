"""tarkit audit: whether each sample was used once, and which were not."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import commands

from tarkit import TarWriter
from tarkit.trainers.auditlog import audit_line, read_lines
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource

Run = Callable[..., Any]
(EPILOG,) = (context.command.epilog or "" for name, context in commands() if name == "tarkit audit")
EXAMPLES = [line.strip() for line in EPILOG.splitlines() if line.strip().startswith("tarkit ")]
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "audit.md").read_text("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """148 shards, of a sample each, and the audit of a training that used all of them."""
    monkeypatch.chdir(tmp_path)
    with TarWriter("train-0000.tar", index=True) as writer:
        writer.write({"__key__": "a", "cls": 1})
    for number in range(1, 148):
        for end in ("tar", "idx"):
            shutil.copy(f"train-0000.{end}", f"train-{number:04}.{end}")
    list(training())
    return tmp_path


def training(folder: str = "audited", **options: Any) -> EpochLoader:
    return EpochLoader(BatchSource("train-{0000..0147}.tar", batch=4, audit=folder, **options))


def test_the_examples_of_the_help_and_exit_codes(run: Run, folder: Path) -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        assert run(*shlex.split(example)) == (0, b"epoch 0: complete: 148 of 148 samples used\n", "")
    result = run("tarkit", "audit", "nosuch")
    assert (result.code, result.stdout) == (66, b"") and "nosuch: no audit of a training" in result.stderr
    result = run("tarkit", "audit", "audited", "train-0000.tar")
    assert (result.code, result.stdout) == (2, b"") and "these are not the shards of the training" in result.stderr
    shutil.copy("train-0007.tar", "whole.tar")
    (folder / "train-0007.tar").write_bytes(b"")
    list(training("failed", on_error="count"))
    result = run("tarkit", "audit", "failed")
    failed = b"147 of 148 samples used, 1 left out, as they failed or transform dropped them\n"
    assert result == (3, b"epoch 0: complete: " + failed, "")
    shutil.copy("whole.tar", "train-0007.tar")
    running = iter(training("stopped"))
    next(running)
    next(running)
    result = run("tarkit", "audit", "stopped")
    (found,) = map(json.loads, run("tarkit", "audit", "--json", "stopped").lines)
    assert (found["complete"], found["used"], found["in_hand"], found["problems"]) == (False, 4, 4, [])
    line = b"epoch 0: not complete: 4 of 148 samples used, 4 given, and not known to be used\n"
    assert result == (1, line, "")
    other = iter(training("stopped"))
    next(other)
    list(running)
    list(other)
    result = run("tarkit", "audit", "stopped", "train-{0000..0147}.tar")
    assert result.code == 65 and len(result.lines) == 20 + 2
    assert result.lines[0].startswith("twice: epoch 0, sample 0 of train-0")
    found = json.loads(run("tarkit", "audit", "--json", "stopped", "train-{0000..0147}.tar").stdout)
    assert found["problems"][:20] == result.lines[:20] and len(found["problems"]) > 20
    assert result.lines[20:] == [
        "… and 120 more",
        "epoch 0: wrong: 148 of 148 samples used, 8 undone by a later start, 140 missing, twice or wrong",
    ]
    assert len(run("tarkit", "audit", "stopped", "-v").lines) == 140 + 1
    (path,) = (folder / "audited").glob("*.audit")
    whole = path.read_bytes()
    path.write_bytes(whole[:200].replace(b"seed", b"sead") + whole[200:])
    result = run("tarkit", "audit", "audited")
    assert (result.code, result.stdout) == (65, b"")
    assert ".audit, offset " in result.stderr and "line 2 is damaged: its checksum differs; restore" in result.stderr


def test_the_example_of_the_page(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGE.partition("<!-- example: audit -->\n```\n")[2].partition("```")[0]
    shown = [b"\t".join(line.encode().rsplit(b" ", 1)) + b"\n" for line in example.splitlines()]
    monkeypatch.chdir(tmp_path)
    for number, keys in enumerate(("abc", "de")):
        with TarWriter(f"s-{number}.tar", index=True) as writer:
            for key in keys:
                writer.write({"__key__": key, "txt": key})
    list(EpochLoader(BatchSource("s-{0..1}.tar", batch=3, lanes=1, equalize="pad", audit="audited")))
    (path,) = (tmp_path / "audited").glob("rank-00000-*.audit")
    written = [line for _, line in read_lines(str(path))]
    path.write_bytes(b"".join(shown))
    for line, (_, of_page) in zip(written, read_lines(str(path)), strict=True):
        same = {name: of_page[name] for name in ("host", "pid", "at") if name in line}
        assert audit_line({**line, **same}) == audit_line(of_page)
    result = run("tarkit", "audit", "audited", "s-{0..1}.tar")
    assert result == (0, b"epoch 0: complete: 5 of 5 samples used\n", "")
