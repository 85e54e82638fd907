"""RecordIO files that Go's package reads, and ranges of a file on a server."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpserver import FaultServer
from recordiobuild import DATA, RECORDS, written

from tarkit.formats.recordio import read_index, read_records

COMPRESSIONS = pytest.mark.parametrize("compression", ["none", "snappy", "gzip"])


@COMPRESSIONS
def test_go_reads_what_is_written(compression: str, tmp_path: Path) -> None:
    snappy = Path("/usr/share/gocode/src/github.com/golang/snappy")
    if shutil.which("go") is None or not snappy.is_dir():
        pytest.skip("Go or its snappy is not on this machine (golang-go, golang-github-golang-snappy-dev)")
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
    program = tmp_path / "recordio"
    subprocess.run(["go", "build", "-o", program, DATA / "recordio.go"], env=environment, check=True, timeout=300)
    content = written(RECORDS, compression, 200_000)
    done = subprocess.run([program, "read"], input=content, capture_output=True, check=True)
    assert done.stdout == b"".join(struct.pack("<I", len(each)) + each for each in RECORDS)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


def test_a_range_of_a_url_is_one_request_for_its_chunks(server: FaultServer) -> None:
    content = written(RECORDS, "snappy", 20_000)
    url = server.put("a.recordio", content)
    index = read_index(url)
    assert index == read_index(io.BytesIO(content))
    chunk = index.chunks[7]
    before = len(server.asked("a.recordio"))
    start, stop = chunk.first + 1, chunk.first + chunk.records + 1
    assert list(read_records(url, start=start, stop=stop, index=index)) == RECORDS[start:stop]
    # The first byte tells which object it is, and so does the answer with the range.
    ranges = [each["Range"] for each in server.asked("a.recordio")[before:]]
    assert ranges == ["bytes=0-0", f"bytes={chunk.offset}-{index.chunks[9].offset - 1}"]
