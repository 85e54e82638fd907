"""Dedup beside GNU tar and b2sum, and in several processes."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from dedupruns import dedup, files_of, of_webdataset, repeating_inputs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return repeating_inputs(tmp_path_factory.mktemp("inputs"))


def test_members_keep_their_headers_and_gnu_tar_reads_them(inputs: list[str], tmp_path: Path) -> None:
    dedup(inputs, tmp_path / "out", "bin").run()
    listed = subprocess.run(
        ["tar", "--utc", "-tvf", tmp_path / "out" / "in-2.tar"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(listed) == 2 * len(of_webdataset(tmp_path / "out" / "in-2.tar")) > 0
    with tarfile.open(tmp_path / "out" / "in-2.tar") as archive:
        assert {info.mtime for info in archive} == {2}


def test_the_same_bytes_for_any_slices_processes_and_memory(inputs: list[str], tmp_path: Path) -> None:
    dedup(inputs, tmp_path / "a", "bin", listing=str(tmp_path / "a.jsonl")).run()
    expected = files_of(tmp_path / "a")
    assert {f"in-{number}{end}" for number in range(5) for end in (".tar", ".idx", ".tar.done.json")} == {*expected}
    for slices, parallel, mem in ((1, 1, 20_000), (3, 1, 20_000), (5, 3, 1 << 26)):
        name = f"b{slices}"
        listing = tmp_path / f"{name}.jsonl"
        dedup(
            inputs, tmp_path / name, "bin", slices=slices, parallel=parallel, mem=mem, listing=str(listing)
        ).run()  # fmt: skip
        assert files_of(tmp_path / name) == expected
        assert listing.read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_the_list_names_what_goes_and_what_it_equals_in_input_order(inputs: list[str], tmp_path: Path) -> None:
    listing = tmp_path / "gone.jsonl"
    dedup(inputs, tmp_path / "out", "bin", listing=str(listing)).run()
    firsts: dict[bytes, tuple[str, str]] = {}
    wanted = []
    for url in inputs:
        for key, fields in of_webdataset(url):
            first = firsts.setdefault(fields["bin"], (key, url))
            if first != (key, url):
                digest = subprocess.run(["b2sum", "-l", "128"], input=fields["bin"], capture_output=True, check=True)
                wanted.append((key, url, *first, digest.stdout.split()[0].decode()) if len(wanted) < 5 else (key, url))
    found = [json.loads(line) for line in listing.read_text().splitlines()]
    names = ("key", "shard", "equals_key", "equals_shard", "digest")
    assert [tuple(each[name] for name in names)[: len(row)] for each, row in zip(found, wanted, strict=True)] == wanted
