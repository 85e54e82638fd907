"""tarkit count: a table with a total by field, as JSON, behind bad shards and from a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarbuild import END, member

from tarkit import TarWriter

Run = Callable[..., Any]


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for number in range(2):
        with TarWriter(str(tmp_path / f"s-{number}.tar"), index=number == 0) as writer:
            for each in range(number + 1):
                writer.write({"__key__": f"{each}", "cls": each, "jpg": bytes(1000)})
    return str(tmp_path / "s-{0..1}.tar")


def test_a_table_with_a_total_by_field(run: Run, shards: str, tmp_path: Path) -> None:
    result = run("tarkit", "count", shards)
    assert (result.code, result.stderr) == (0, "")
    assert [line.split() for line in result.lines] == [
        ["samples", "bytes", "shard"],
        ["1", "1001", f"{tmp_path}/s-0.tar"],
        ["2", "2002", f"{tmp_path}/s-1.tar"],
        ["3", "3003", "total"],
        ["3", "3", ".cls"],
        ["3", "3000", ".jpg"],
    ]


def test_json(run: Run, shards: str, tmp_path: Path) -> None:
    found = [json.loads(line) for line in run("tarkit", "count", "--json", shards, "-p", "1").lines]
    fields = {"cls": {"samples": 2, "bytes": 2}, "jpg": {"samples": 2, "bytes": 2000}}
    assert [each.get("from") for each in found] == ["index", "headers", None]
    assert found[1] == {"url": f"{tmp_path}/s-1.tar", "from": "headers", "samples": 2, "bytes": 2002, "fields": fields}
    assert (found[2]["shards"], found[2]["samples"], found[2]["bytes"]) == (2, 3, 3003)


def test_standard_input_and_what_has_no_samples(run: Run, shards: str, tmp_path: Path) -> None:
    content = (tmp_path / "s-1.tar").read_bytes()
    found = json.loads(run("tarkit", "count", "--json", stdin=content).lines[0])
    assert (found["from"], found["samples"], found["url"]) == ("whole", 2, "-")
    assert run("tarkit", "count", stdin=END).lines[-1].split() == ["0", "0", "total"]


def test_bad_shards_and_stale_indexes_are_reported(run: Run, shards: str, tmp_path: Path) -> None:
    (tmp_path / "s-1.tar").write_bytes((tmp_path / "s-1.tar").read_bytes()[:3000])
    (tmp_path / "s-0.idx").write_bytes(b"v1.2 7\n")
    result = run("tarkit", "count", shards)
    assert result.code == 65
    assert result.lines[2].split(None, 2)[2] == f"{tmp_path}/s-1.tar (bad; counted up to the error)"
    assert result.lines[3].split(None, 2)[2] == "total (1 of 2 shards bad)"
    first, last = result.stderr.splitlines()
    assert first.startswith(f"tarkit count: {tmp_path}/s-1.tar, offset")
    assert last == f"tarkit count: stale indexes that were not used: 1, the first {tmp_path}/s-0.idx"
    found = [json.loads(line) for line in run("tarkit", "count", "--json", shards).lines]
    assert "offset" in found[1]["error"] and found[0]["samples"] == 1
    (tmp_path / "s-1.tar").unlink()
    assert run("tarkit", "count", shards).code == 66
    assert (
        run("tarkit", "count", "--on-damage", "skip", stdin=member(b"a.x") + b"x" * 512 + member(b"b.x") + END).code
        == 3
    )


def test_what_is_selected_is_counted(run: Run, shards: str) -> None:
    result = run("tarkit", "count", shards, "--where", "cls == 0", "--fields", "jpg")
    assert [line.split()[:2] for line in result.lines[1:]] == [
        ["1", "1000"],
        ["1", "1000"],
        ["2", "2000"],
        ["2", "2000"],
    ]
    assert result.code == 0 and result.stderr == "tarkit count: samples dropped by --where 1\n"
    found = [json.loads(line) for line in run("tarkit", "count", "--json", shards, "--match", "0").lines]
    assert found[0]["from"] == "whole" and found[2]["samples"] == 2
    assert run("tarkit", "count", shards, "--fields", "png").code == 65
